"""A tensor as a Python object: copies, pickles, conversions, comparisons, memory."""

import copy
import gc
import operator
import pickle
import subprocess
import sys
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import tenon
from tenon.errors import GradError

pytestmark = pytest.mark.together

oracle = pytest.mark.oracle


def attributes(t):
    x = t.arange(6.0).reshape(2, 3)
    return (
        x.shape, x.size(), x.size(1), x.dim(), x.ndim, x.numel(), x.nelement(), len(x), x.stride(), x.t().stride(), x.is_contiguous(),
        x.t().is_contiguous(), x.dtype, x.device, x.itemsize, x.nbytes, x.element_size(), x.is_floating_point(), x.is_complex(),
        x.requires_grad, x.is_leaf, x.grad, x.grad_fn, x.type(), x.long().type(), x.storage_offset(), x[1].storage_offset(), x.output_nr,
        x.is_cuda, x.layout, str(x.device.type),
    )  # fmt: skip


def conversions(t):
    x = t.tensor([1.5])
    found = [
        float(x),
        int(x),
        bool(x),
        complex(x),
        x.item(),
        t.tensor(3).__index__(),
        [1, 2, 3, 4][t.tensor(2)],
    ]
    return (
        found,
        t.tensor([[1, 2], [3, 4]]).tolist(),
        t.tensor(2.5).tolist(),
        f"{t.tensor(2.5):.3f}",
        round(t.tensor(2.567).item(), 1),
    )


def iteration(t):
    x = t.arange(6).reshape(3, 2)
    a, _, c = x
    return [row.sum() for row in x], a, c, t.tensor(4) in x, 9 in x, list(reversed(x))


def truth_of_several(t):
    return bool(t.ones(2))


def length_of_scalar(t):
    return len(t.tensor(1.0))


def iterating_a_scalar(t):
    return list(t.tensor(1.0))


def item_of_several(t):
    return t.ones(2).item()


def numpy_of_tracked(t):
    return t.ones(2, requires_grad=True).numpy()


def numpy_by_force(t):
    return t.ones(2, requires_grad=True).numpy(force=True).tolist()


def equality_and_hash(t):
    x = t.ones(2)
    return (
        x == None,  # noqa: E711
        x != None,  # noqa: E711
        len({x, x}),
        (x == x).all(),
        x.equal(t.ones(2)),
        x.equal(t.ones(3)),
        x is x,
    )


def constructors(t):
    return (
        t.tensor([1, 2]), t.tensor([1.0, 2]), t.tensor([True, False]), t.tensor([[1, 2.5]]), t.tensor(3), t.tensor([]), t.tensor([1 + 2j]),
        t.tensor([t.tensor(1), t.tensor(2)]), t.tensor(np.arange(3)), t.tensor(np.float32(2.5)), t.tensor([1, 2], dtype=t.float16),
        t.tensor((1, 2, 3)), t.tensor(range(3)), t.as_tensor([1.5]), t.from_numpy(np.ones(2)), t.Tensor([1, 2]), t.Tensor(2, 0).shape,
        t.tensor([np.float64(1.5), 2.0]), t.tensor([[], []]), t.tensor(2**40), t.tensor([True, 2]),
    )  # fmt: skip


def ragged_list(t):
    return t.tensor([[1, 2], [3]])


def factories(t):
    x = t.ones(2, 3, dtype=t.float64)
    return (
        t.zeros(2, 3), t.zeros((2, 3)), t.ones(2, dtype=t.int32), t.full((2,), 7), t.full((2,), 1.5), t.full((), True), t.eye(3), t.eye(2, 3),
        t.arange(5), t.arange(1, 7, 2), t.arange(0.0, 1.0, 0.25), t.arange(3, 0, -1), t.linspace(0, 1, 5), t.logspace(0, 2, 3), t.zeros_like(x),
        t.ones_like(x, dtype=t.int64), t.full_like(x, 3), t.empty(0).shape, t.tril_indices(3, 3), x.new_zeros(2), x.new_full((2,), 4),
        x.new_tensor([1]), x.new_ones((1, 2)), t.linspace(0, 1, 1), t.zeros(2, requires_grad=True), t.scalar_tensor(3.0),
    )  # fmt: skip


def arange_by_zero(t):
    return t.arange(0, 3, 0)


def arange_backwards(t):
    return t.arange(3, 0, 1)


def negative_size(t):
    return t.zeros(-1)


def shapes_are_sizes(t):
    s = t.ones(2, 3, 4).shape
    return repr(s), s.numel(), repr(s[1:]), s[0], (*s, 5), s == (2, 3, 4), tuple(s), repr(t.Size([1, 2]))


def to_forms(t):
    x = t.ones(2)
    return (
        x.to(t.float64), x.to("cpu") is x, x.to(t.float32) is x, x.to(t.float32, copy=True) is x, x.to(t.ones(1, dtype=t.int64)), x.double(), x.half(),
        x.long(), x.bool(), x.type(t.int32), x.type_as(t.ones(1).double()), x.float() is x, x.contiguous() is x, x.to(device="cpu", dtype=t.int8),
    )  # fmt: skip


def casts(t):
    x = t.tensor([-1.7, 0.0, 2.9])
    return (
        x.int(),
        x.bool(),
        x.long(),
        x.to(t.int8),
        t.tensor([300]).to(t.uint8),
        t.tensor([True]).float(),
        x.to(t.complex64),
    )


def dtype_views(t):
    return (
        t.ones(2).view(t.int32),
        t.arange(4, dtype=t.uint8).view(t.int16),
        t.ones(2, dtype=t.float64).view(t.uint8).shape,
    )


def data_and_detach(t):
    x = t.ones(2, requires_grad=True)
    x.data.mul_(3)
    x.detach().add_(1)
    return x, x.requires_grad, x.data.requires_grad


def deepcopies(t):
    x = t.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    z = copy.deepcopy({"a": x, "b": x})
    y.data.add_(1)
    return x, y, y.grad, z["a"] is z["b"], z["a"].grad


PROGRAMS = [
    v for k, v in list(globals().items()) if callable(v) and getattr(v, "__code__", None) and v.__code__.co_varnames[:1] == ("t",)
    and v.__code__.co_argcount == 1
]  # fmt: skip


@oracle
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_tensors_are_torchs(program, parity):
    parity(program)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool", "complex64"])
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickles_come_back_equal(dtype, protocol):
    x = tenon.tensor([[1, 0], [2, 3]]).to(getattr(tenon, dtype)).t()

    y = pickle.loads(pickle.dumps(x, protocol))

    assert y.dtype == x.dtype
    assert y.equal(x)
    assert y.is_leaf


def test_a_pickled_leaf_keeps_requires_grad_and_attributes():
    x = tenon.ones(2, requires_grad=True)
    x.note = "mine"

    y = pickle.loads(pickle.dumps(x))

    assert y.requires_grad
    assert y.note == "mine"


def test_a_tensor_with_history_is_not_pickled():
    with pytest.raises(GradError, match="detach"):
        pickle.dumps(tenon.ones(2, requires_grad=True) * 2)


def test_pickles_of_views_hold_no_more_than_the_view():
    big = tenon.zeros(100_000)

    assert len(pickle.dumps(big[:2])) < 2000


def test_from_numpy_shares_memory_both_ways():
    array = np.zeros(3)
    x = tenon.from_numpy(array)
    array[0] = 5
    x[1] = 7

    assert x.tolist() == [5.0, 7.0, 0.0]
    assert array.tolist() == [5.0, 7.0, 0.0]
    assert x.numpy() is not None
    assert np.shares_memory(x.numpy(), array)


def test_tensor_copies_its_data():
    array = np.zeros(3)
    x = tenon.tensor(array)
    array[0] = 5

    assert x.tolist() == [0.0, 0.0, 0.0]


def test_numpy_takes_tensors_and_tensors_take_arrays():
    x = tenon.arange(3.0)

    assert np.asarray(x).tolist() == [0.0, 1.0, 2.0]
    assert isinstance(np.ones(3) + x, tenon.Tensor)
    assert np.add(x.numpy(), 1).tolist() == [1.0, 2.0, 3.0]


def test_dlpack_shares_memory():
    x = tenon.arange(3.0)

    y = np.from_dlpack(x)

    assert np.shares_memory(x.numpy(), y)


def test_attributes_of_ones_own_stay_with_the_tensor():
    x = tenon.ones(2)
    x.tag = 3

    assert copy.deepcopy(x).tag == 3


def test_tensors_die_by_reference_count():
    gc.collect()
    gc.disable()
    try:
        x = tenon.ones(3)
        y = x[1:].t()
        refs = weakref.ref(x), weakref.ref(y)
        del x, y
        assert [r() for r in refs] == [None, None]
    finally:
        gc.enable()


def test_infinities_and_nans_come_without_warnings():
    x = tenon.tensor([0.0, -1.0, 1e30, float("inf")])

    assert (1 / x).tolist()[0] == float("inf")
    assert x.log().isnan().tolist() == [False, True, False, False]
    assert (x * x).tolist()[2] == float("inf")
    y = tenon.tensor([0.0], requires_grad=True)
    (1 / y).sum().backward()
    assert y.grad.tolist() == [-float("inf")]


def test_numpys_own_error_mode_is_left_alone():
    tenon.tensor([0.0]).log()

    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.log(np.zeros(1))


def test_meta_tensors_have_shapes_and_no_data():
    x = tenon.empty(2, 3, device="meta")
    y = (x @ x.t()).sum(0)
    x.add_(1)

    assert (tuple(y.shape), y.device.type, y.dtype) == ((2,), "meta", tenon.float32)
    with pytest.raises(RuntimeError, match="no data"):
        y.tolist()
    with pytest.raises(RuntimeError, match="no data"):
        y.sum().item()


def test_meta_tensors_take_gradients():
    x = tenon.empty(2, 3, device="meta", requires_grad=True)
    (x.exp() * 2).sum().backward()

    assert x.grad.shape == x.shape
    assert x.grad.device.type == "meta"


@oracle
@pytest.mark.parametrize("name", ["requires_grad", "_grad_fn", "_backward_hooks", "data", "grad_fn", "shape"])
def test_what_cannot_be_deleted(parity, name):
    def program(t):
        x = t.ones(2, requires_grad=True)
        try:
            delattr(x, name)
        except (RuntimeError, AttributeError) as error:
            return isinstance(error, RuntimeError), x.requires_grad

    parity(program)


@oracle
def test_hooks_of_a_tensor_can_be_counted(parity):
    def program(t):
        leaf = t.ones(2, requires_grad=True)
        made = leaf * 2
        before = leaf._backward_hooks, made._backward_hooks
        handles = [x.register_hook(lambda g: g) for x in (leaf, made, made)]
        held = len(leaf._backward_hooks), len(made._backward_hooks)
        for handle in handles:
            handle.remove()
        return before, held, len(made._backward_hooks)

    parity(program)


@oracle
def test_hooks_of_a_tensor_can_be_exchanged(parity):
    def program(t):
        leaf = t.ones(2, requires_grad=True)
        made = leaf * 2
        leaf.register_hook(lambda g: g * 7)
        leaf._backward_hooks = OrderedDict({0: lambda g: g * 3})
        made.sum().backward(retain_graph=True)
        first, leaf.grad = leaf.grad, None
        leaf._backward_hooks = OrderedDict()
        made.sum().backward()
        return first, leaf.grad

    parity(program)


@pytest.mark.slow
def test_the_first_thing_a_program_does_may_be_to_print_a_tensor():
    program = "import tenon; print(tenon.ones(2, requires_grad=True) * 2)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("tensor([2., 2.], grad_fn=<MulBackward0>)\n", "")


def test_a_tensor_can_be_seen_as_one_of_a_subclass():
    class Named(tenon.Tensor):
        pass

    leaf = tenon.ones(2, requires_grad=True)
    seen = leaf.as_subclass(Named)
    (seen * 3).sum().backward()

    assert type(seen) is Named and seen.data_ptr() == leaf.data_ptr()
    assert leaf.grad.tolist() == [3, 3]
    with pytest.raises(TypeError, match="must be a subclass of Tensor"):
        leaf.as_subclass(dict)


def test_a_subclass_is_made_over_the_memory_of_a_tensor():
    class Holder(tenon.Tensor):
        __slots__ = ("inner",)

        @staticmethod
        def __new__(cls, inner):
            made = tenon.Tensor._make_subclass(cls, inner.to("meta"), inner.requires_grad)
            made.inner = inner
            return made

    inner = tenon.ones(2, requires_grad=True)
    held, shared = Holder(inner), tenon.Tensor._make_subclass(tenon.nn.Parameter, inner)

    assert type(held) is Holder and held.is_meta and held.requires_grad and held.inner is inner
    assert type(copy.deepcopy(held)) is Holder and copy.deepcopy(held).inner.tolist() == [1.0, 1.0]
    assert shared.data_ptr() == inner.data_ptr() and shared.is_leaf and not shared.requires_grad
    with pytest.raises(TypeError, match="does not inherit from Tensor"):
        tenon.Tensor._make_subclass(dict, inner)
    with pytest.raises(TypeError, match="must be Tensor, not int"):
        tenon.Tensor._make_subclass(Holder, 3)


def test_a_size_holds_integers():
    size = operator.add(tenon.Size(tenon.tensor([2, 3])), (tenon.tensor(4), True))

    assert repr(tenon.Size(size)) == "torch.Size([2, 3, 4, 1])" and tenon.Size(n for n in (1, 2)) == (1, 2)
    assert (
        isinstance(operator.add((1,), tenon.Size([2])), tenon.Size)
        and pickle.loads(pickle.dumps(size)) == size
    )
    for wrong in (tenon.ones(2), [1.5], ["a"]):
        with pytest.raises(TypeError, match=r"takes an iterable of 'int' \(item 0 is "):
            tenon.Size(wrong)
    with pytest.raises(TypeError, match="can only concatenate tuple"):
        operator.add(size, [3])


def test_functions_called_for_every_element_have_to_give_numbers():
    x, y = tenon.arange(3), tenon.zeros(3)

    assert x.clone().apply_(lambda n: n + 0.7).tolist() == [0, 1, 2]
    for tensor, made in ((x, "1"), (y, "1"), (y, None)):
        with pytest.raises(TypeError, match=r"interpreted as an integer|must be real number"):
            tensor.clone().apply_(lambda n, made=made: made)
    with pytest.raises(
        TypeError, match=r"map_: expected torch.FloatTensor for 'other' \(got torch.LongTensor"
    ):
        y.map_(x, lambda a, b: a)
    with pytest.raises(RuntimeError, match=r"Can't call map2_\(\) on Variable that requires grad"):
        y.map2_(y, tenon.zeros(3, requires_grad=True), lambda a, b, c: a)


@pytest.mark.parametrize("text", ["other", "other:0", "CPU", "cuda:01", "cuda: 2", "cuda:", "", "cpu:-1"])
def test_what_is_not_a_device(text):
    with pytest.raises(RuntimeError, match=r"device type at start of|Invalid device|must not be empty"):
        tenon.device(text)
    with pytest.raises(TypeError, match="argument 'type'"):
        tenon.device(1.5)


def test_generators_are_for_devices_that_draw():
    for place in ("opengl", "meta"):
        with pytest.raises(RuntimeError, match="device type not an accelerator"):
            tenon.Generator(place)


def test_tolerances_are_numbers():
    x = tenon.ones(2)

    assert tenon.isclose(x, x + 1, tenon.tensor(1), tenon.tensor(0.5)).all()
    for wrong in ("a", tenon.ones(2), tenon.tensor(1.0, requires_grad=True), 1j):
        with pytest.raises(TypeError, match=r"argument 'atol' \(position 4\) must be float"):
            x.isclose(x, 1, wrong)


def test_means_and_deviations_have_to_broadcast():
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(2\)"):
        tenon.normal(tenon.zeros(3), tenon.ones(2))
    with pytest.raises(TypeError, match="'size'"):
        tenon.normal(0.0, 1.0)


def test_overlaps_inside_a_tensor_are_told_as_torch_tells_them():
    x = tenon.zeros(2, 3)

    found = [tenon._debug_has_internal_overlap(t) for t in (x, x.t(), x[:1].expand(4, 3), x.unfold(1, 2, 1))]

    assert found == [0, 0, 1, 2]
