"""Every kind of key, read and written, as in torch: shapes, axis order, gradients, errors."""

import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]


def key_of(t, key):
    """``key`` with ``("t", data)`` made a tensor, ``("mask", data)`` a boolean one."""
    if isinstance(key, tuple) and len(key) == 2 and key[0] in ("t", "mask"):
        return t.tensor(key[1], dtype=t.bool if key[0] == "mask" else t.int64)
    if isinstance(key, tuple):
        return tuple(key_of(t, k) for k in key)
    return key


ALL = slice(None)
MASK_34 = [[True, False, False, True], [False] * 4, [True] * 4]
KEYS = {
    "integer": 1, "negative": -1, "slice": slice(1, 3), "open_slice": slice(1, None), "step": slice(None, None, 2), "far_slice": slice(1, 99),
    "negative_slice": slice(-2, None), "empty_slice": slice(2, 1), "none": None, "ellipsis": ..., "whole": ALL, "two_integers": (1, 2),
    "all_integers": (1, 2, 3), "ellipsis_integer": (..., 1), "integer_ellipsis": (1, ...), "middle_ellipsis": (0, ..., 1), "none_first": (None, 1),
    "none_middle": (1, None, 2), "none_last": (..., None), "many_nones": (None, ALL, None, 1, None), "slice_integer": (ALL, 1, slice(0, 2)),
    "empty_tuple": (), "list": [0, 2], "index": ("t", [2, 0, 0]), "negative_index": ("t", [-1, -3]),
    "zero_d_index": ("t", 1), "index_2d": ("t", [[0, 1], [2, 2]]), "empty_index": ("t", []), "index_slice": (("t", [0, 2]), slice(1, 3)),
    "slice_index": (ALL, ("t", [3, 0])), "last_index": (..., ("t", [1, 0, 4])), "two_indices": (("t", [0, 1]), ("t", [3, 2])),
    "broadcast_indices": (("t", [[0], [2]]), ("t", [1, 3])), "apart": (("t", [0, 1]), ALL, ("t", [4, 2])), "apart_broadcast": (("t", [[0], [1]]), ALL, ("t", [4, 2])),
    "integer_then_index": (1, ("t", [0, 2])), "index_then_integer": (("t", [0, 2]), 1), "integer_between": (("t", [0, 2]), 1, ("t", [3, 4])),
    "integer_slice_index": (1, ALL, ("t", [0, 2])), "index_slice_integer": (("t", [0, 2]), ALL, 1), "none_and_index": (None, ("t", [0, 2])),
    "index_none_index": (("t", [0, 2]), None, ("t", [1, 1])), "three_indices": (("t", [0, 1]), ("t", [1, 2]), ("t", [0, 4])),
    "mask_first": ("mask", [True, False, True]), "mask_two_axes": ("mask", MASK_34), "mask_then_slice": (("mask", [True, False, True]), slice(0, 2)),
    "slice_then_mask": (ALL, ("mask", [True, False, True, True])), "mask_and_index": (("mask", [True, False, True]), ("t", [0, 3])),
    "mask_nothing": ("mask", [False] * 3), "mask_and_integer": (("mask", [True, False, True]), 2), "true": True, "false": False,
    "ellipsis_mask": (..., ("mask", [True, False, True, False, True])),
    "integer_out_of_range": 3, "negative_out_of_range": -4, "index_out_of_range": ("t", [0, 3]), "index_below_range": ("t", [-4]),
    "too_many": (0, 0, 0, 0), "float": 1.5, "mask_of_wrong_size": ("mask", [True, False]),
    "zero_step": slice(None, None, -1), "indices_do_not_broadcast": (("t", [0, 1]), ("t", [0, 1, 2])),
}  # fmt: skip


def source(t):
    return (t.arange(60, dtype=t.float64) * 0.25).reshape(3, 4, 5)


@pytest.mark.parametrize("name", KEYS)
def test_reading(name, parity):
    def program(t):
        x = source(t).requires_grad_()
        y = x[key_of(t, KEYS[name])]
        weights = t.arange(y.numel(), dtype=t.float64).reshape(y.shape)
        (y * weights).sum().backward()
        return y, x.grad

    parity(program)


@pytest.mark.parametrize("name", KEYS)
def test_writing_a_number(name, parity):
    def program(t):
        x = source(t)
        x[key_of(t, KEYS[name])] = -1.5
        return x

    parity(program)


@pytest.mark.parametrize("name", KEYS)
def test_writing_a_tensor_under_autograd(name, parity):
    def program(t):
        key = key_of(t, KEYS[name])
        x = source(t).requires_grad_()
        shape = source(t)[key].shape
        v = (t.arange(source(t)[key].numel(), dtype=t.float64) * 0.5).reshape(shape).requires_grad_()
        y = x * 2
        y[key] = v
        (y * y).sum().backward()
        # Gradients of values that were overwritten or never written are zeros in one, none in the other.
        return (y, x.grad, v.grad) if name not in ("index", "empty_slice", "false") else y

    parity(program)


@pytest.mark.parametrize(
    "name",
    ["integer", "slice", "index", "mask_first", "apart", "slice_index", "mask_two_axes", "two_integers"],
)
def test_writing_what_broadcasts(name, parity):
    def program(t):
        key = key_of(t, KEYS[name])
        x = source(t)
        x[key] = t.full(
            tuple(source(t)[key].shape)[-1:] if source(t)[key].dim() else (), 7.0, dtype=t.float64
        )
        return x

    parity(program)


@pytest.mark.parametrize("name", ["integer", "index", "mask_first", "slice"])
def test_writing_a_wrong_shape_fails_and_changes_nothing(name):
    x = source(tenon)
    before = x.clone()

    with pytest.raises((RuntimeError, ValueError)):
        x[key_of(tenon, KEYS[name])] = tenon.ones(9, 9, dtype=tenon.float64)

    assert x.equal(before)


def test_writing_casts_to_the_target(parity):
    def program(t):
        x = t.zeros(4)
        x[0] = 3
        x[1] = t.tensor(2.5, dtype=t.float64)
        x[t.tensor([2, 3])] = t.tensor([7.0, 8.0])
        y = t.zeros(3, dtype=t.int64)
        y[0] = 2.9
        y[1:] = t.tensor([1.7, -1.7])
        z = t.zeros(2, dtype=t.bool)
        z[0] = 5
        return x, y, z

    parity(program)


def test_writing_lists_and_arrays():
    x = tenon.zeros(2, 3)

    x[0] = tenon.tensor([1.0, 2.0, 3.0]).numpy()
    x[1, :2] = tenon.tensor([4, 5])

    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 0.0]]


GATHERS = {
    "gather": lambda t, x: x.gather(1, t.tensor([[0, 3], [1, 1], [2, 0]])),
    "gather_first": lambda t, x: x.gather(0, t.tensor([[0, 2, 1, 0]])),
    "take": lambda t, x: x.take(t.tensor([0, 11, -1])),
    "index_select": lambda t, x: x.index_select(1, t.tensor([3, 3, 0])),
    "masked_select": lambda t, x: x.masked_select(x > 1),
    "masked_select_broadcast": lambda t, x: x.masked_select(t.tensor([True, False, True, False])),
    "take_along_dim": lambda t, x: x.take_along_dim(x.argsort(1), 1),
    "select": lambda t, x: x.select(1, -1),
    "narrow": lambda t, x: x.narrow(1, 1, 2),
    "diagonal": lambda t, x: x.diagonal(1),
    "scatter": lambda t, x: x.scatter(1, t.tensor([[0], [1], [2]]), x[:, :1] * 3),
    "scatter_number": lambda t, x: x.scatter(0, t.tensor([[0, 1, 2, 0]]), 7.5),
    "scatter_add": lambda t, x: x.scatter_add(0, t.tensor([[0, 0, 0, 0], [1, 1, 1, 1]]), x[1:]),
    "index_add": lambda t, x: x.index_add(0, t.tensor([2, 2]), x[:2], alpha=2),
    "index_copy": lambda t, x: x.index_copy(1, t.tensor([1, 3]), x[:, :2] * 2),
    "index_fill": lambda t, x: x.index_fill(1, t.tensor([1]), 4.0),
    "masked_fill": lambda t, x: x.masked_fill(x > 1, 0.25),
    "masked_scatter": lambda t, x: x.masked_scatter(x > 1, x * 10),
    "index_put": lambda t, x: x.index_put((t.tensor([0, 0]), t.tensor([1, 1])), x[0, :2], accumulate=True),
    "index_put_numbers": lambda t, x: x.index_put((t.tensor(2), t.tensor(1)), x[0, 0] * 3, accumulate=True),
    "index_put_number": lambda t, x: x.index_put((t.tensor(1),), x[0] * 2),
    "index_put_number_beside": lambda t, x: x.index_put(
        (t.tensor(1), t.tensor([0, 2, 2])), x[0, 0] + 5, accumulate=True
    ),
    "index_put_beside_number": lambda t, x: x.index_put((t.tensor([0, 2]), t.tensor(3)), x[1, :2]),
    "index_put_all": lambda t, x: x.index_put((t.tensor(True), t.tensor(1)), x[0]),
    "index_put_dtype": lambda t, x: x.index_put((t.tensor(1),), t.ones(4)),
    "where": lambda t, x: t.where(x > 1, x, -x),
    "nonzero": lambda t, x: (x > 1).nonzero(),
    "nonzero_tuple": lambda t, x: (x > 1).nonzero(as_tuple=True),
    "unfold": lambda t, x: x.unfold(1, 2, 1),
    "sort": lambda t, x: x.sin().sort(1),
    "topk": lambda t, x: x.sin().topk(2, 0),
    "gather_out_of_range": lambda t, x: x.gather(1, t.tensor([[9]])),
    "gather_wrong_rank": lambda t, x: x.gather(1, t.tensor([0])),
    "gather_float_index": lambda t, x: x.gather(1, t.tensor([[0.0]])),
    "index_select_out_of_range": lambda t, x: x.index_select(0, t.tensor([3])),
    "select_out_of_range": lambda t, x: x.select(0, 5),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gather_and_its_kin(name, parity):
    def program(t):
        x = (t.arange(12, dtype=t.float64) * 0.25).reshape(3, 4).requires_grad_()
        found = GATHERS[name](t, x)
        for part in found if isinstance(found, tuple) else (found,):
            if part.requires_grad:
                (part * part).sum().backward(retain_graph=True)
        return tuple(found) if isinstance(found, tuple) else found, x.grad

    parity(program)


def test_bytes_are_masks_and_warn():
    x = tenon.arange(12).reshape(3, 4)
    rows = tenon.tensor([1, 0, 1], dtype=tenon.uint8)

    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated"):
        assert x[rows].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    with pytest.warns(UserWarning, match="deprecated"):
        x[rows] = -1
    assert x[:, 0].tolist() == [-1, 4, -1]
    assert x[tenon.tensor(0, dtype=tenon.uint8)].shape == (0, 3, 4)
    with pytest.raises(IndexError, match="must be long, int, byte or bool"):
        x[rows.to(tenon.int8)]


def test_a_short_sequence_of_sequences_is_a_tuple_of_keys_and_warns():
    x = tenon.arange(6).reshape(2, 3)

    for key in ([[0, 1], [2, 0]], [range(2), [2, 0]]):
        with pytest.warns(UserWarning, match="non-tuple sequence"):
            assert x[key].tolist() == [2, 3]
    assert tenon.arange(40)[[range(i, i + 2) for i in range(32)]].shape == (32, 2)


def test_what_is_copied_by_index_arrays_is_contiguous():
    x = tenon.arange(24).reshape(2, 3, 4)

    for key in ((slice(None), [0, 2]), (..., [1, 0]), (slice(None), [[0, 1]], [[2, 3]])):
        assert x[key].is_contiguous()


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        (0.5, IndexError, "valid indices .got float"),
        ((0, 1.5), IndexError, "valid indices .got float"),
        (slice(0.0, 2.0), TypeError, "slice indices must be integers"),
        (slice("0", None), TypeError, "slice indices must be integers"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
        (slice(None, None, -1), ValueError, "step must be greater than zero"),
        ([5], IndexError, "^index 5 is out of bounds for dimension 0 with size 3"),
        ((slice(None), [0, -5]), IndexError, "^index -5 is out of bounds for dimension 1 with size 4"),
    ],
)
def test_a_wrong_key_is_named(key, kind, words):
    x = tenon.zeros(3, 4)

    with pytest.raises(kind, match=words):
        x[key]
    with pytest.raises(kind, match=words):
        x[key] = 1.0


def test_what_has_no_place_is_refused():
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        tenon.tensor(1)[0]
    with pytest.raises(IndexError, match="cannot be applied to a 0-dim"):
        tenon.tensor(1)[:]
    with pytest.raises(IndexError, match="for dimension with size 0"):
        tenon.empty(10, 0)[:, [0, 1]]
    with pytest.raises(TypeError, match="does not support deleting"):
        del tenon.zeros(3)[0]
    with pytest.raises(IndexError, match="index -1 is out of bounds"):
        tenon.zeros(3).index_copy_(0, tenon.tensor([-1]), tenon.zeros(1))
    with pytest.raises(RuntimeError, match="Expected dtype int32 or int64"):
        tenon.zeros(3).index_select(0, tenon.tensor([0], dtype=tenon.int16))
    with pytest.raises(RuntimeError, match="should be Long but got Int"):
        tenon.zeros(3).take_along_dim(tenon.tensor([0], dtype=tenon.int32), 0)
    with pytest.raises(RuntimeError, match="complex Scalar"):
        tenon.zeros(3).index_fill(0, tenon.tensor([0]), 1j)


def test_a_tensor_written_at_indices_has_the_same_dtype():
    x = tenon.zeros(3)
    whole, mask = tenon.tensor([2, 3]), tenon.tensor([True, False, True])

    for key in ([0, 1], mask, tenon.tensor([0, 1])):
        with pytest.raises(RuntimeError, match="Index put requires the source and destination dtypes match"):
            x[key] = whole
    with pytest.raises(RuntimeError, match=r"value tensor of shape \[3\].*result of shape \[2\]"):
        x[[0, 1]] = tenon.zeros(3)
    x[mask] = whole[0]  # one number fills the mask
    x[1:2] = whole[1]  # a slice is copied into
    assert x.tolist() == [2.0, 3.0, 2.0]


def test_operators_by_their_torch_name_can_be_called():
    x = tenon.arange(6).reshape(2, 3)
    aten = tenon.ops.aten

    assert aten.index.Tensor(x, [None, tenon.tensor([2])]).tolist() == [[2], [5]]
    assert aten.add.Tensor(x, 1)[1, 2].item() == 6
    aten.index_put_(x, [None, tenon.tensor([0])], tenon.tensor(9))
    assert x[:, 0].tolist() == [9, 9]
    with pytest.raises(IndexError, match="at least one index"):
        aten.index.Tensor(x, [])


def test_places_along_one_axis_are_a_vector_of_integers_and_values_of_one_dtype():
    x, one = tenon.zeros(3), tenon.ones(1)

    for call in (x.index_add, x.index_copy, x.index_add_, x.index_copy_):
        with pytest.raises(RuntimeError, match="int32/int64 for index but got: Float"):
            call(0, tenon.tensor([0.0]), one)
        with pytest.raises(IndexError, match="supposed to be a vector"):
            call(0, tenon.tensor([[0]]), one)
    with pytest.raises(RuntimeError, match="same dtypes but got Float and Double"):
        x.masked_scatter(x == 0, tenon.ones(3).double())
    with pytest.raises(RuntimeError, match="either add or multiply"):
        x.scatter(0, tenon.tensor([0]), one, reduce="bad")
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        "a" in x  # noqa: B015 - the question itself is refused


@pytest.mark.parametrize("how", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("own", [True, False])
def test_scattered_numbers_of_many_rows_and_their_gradients(how, own, parity):
    def program(t):
        x, y = (t.arange(12000, dtype=t.float32).reshape(100, 120).mul(k).remainder(7) - 3 for k in (3, 5))
        x[1, 2], y[3, 4], y[5] = float("nan"), float("nan"), float("inf")
        x, y = x.requires_grad_(), y.requires_grad_()
        places = t.arange(12000).reshape(100, 120) * 7 % 90
        made = [x.scatter_reduce(d, places, y, how, include_self=own) for d in (0, 1)]
        made.append(x.index_reduce(0, places[0, :100], y, how, include_self=own))
        gradients = [g for m in made[:2] for g in t.autograd.grad(m.sum(), (x, y))] if how[0] == "a" else []
        return [v.detach() for v in (*made, *gradients)]

    parity(program)


def test_many_masked_numbers_are_written_in_order(parity):
    def program(t):
        x, y = t.arange(20000.0).reshape(100, 200).requires_grad_(), t.arange(30000.0).neg().requires_grad_()
        made = x.masked_scatter(t.arange(20000).reshape(100, 200) % 3 == 0, y)
        return [made.detach(), *t.autograd.grad((made * made).sum(), (x, y))]

    parity(program)


def test_an_index_without_axes_is_one_place():
    x = tenon.arange(3.0).requires_grad_()
    index, y = tenon.tensor(1), tenon.tensor(5.0, requires_grad=True)
    assert x.gather(0, index).shape == () and x.gather(0, index).item() == 1.0
    (x.gather(0, index) + (x.scatter(0, index, y) * tenon.arange(3.0)).sum()).backward()
    assert x.grad.tolist() == [0.0, 1.0, 2.0] and y.grad.item() == 1.0
    assert tenon.zeros(3).scatter_add_(0, index, y.detach()).tolist() == [0.0, 5.0, 0.0]
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        tenon.ones(2, 2).gather(0, index)


def test_index_copy_refuses_indices_that_are_no_integers():
    for index in (tenon.tensor([0j]), tenon.tensor([0.5])):
        for x in (tenon.zeros(3), tenon.tensor(1.0)):
            with pytest.raises(RuntimeError, match="Expected dtype int32/int64 for index but got"):
                x.index_copy(0, index, tenon.ones(1))
