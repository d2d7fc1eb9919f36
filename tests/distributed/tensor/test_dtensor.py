"""DTensor: creation, conversions, autograd, changes in place, and what is refused."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import DeviceMesh, init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from tenon.distributed.tensor._utils import compute_local_shape_and_global_offset as part_in_whole
from tenon.distributed.tensor.experimental import implicit_replication
from tenon.errors import ArgumentError, ShapeError, TenonWarning, UnsavableError, UnsupportedError, ViewError

X = torch.arange(12.0).reshape(4, 3)


def on_ranks(work, ranks=2):
    """Call ``work(mesh)`` on each rank; return the results."""
    return run_ranks(ranks, lambda communicator: work(init_device_mesh("cpu", (communicator.size,))))


def sharded(mesh, axis=0):
    return distribute_tensor(X.clone(), mesh, [Shard(axis)])


def test_distribute_tensor_gives_each_rank_its_part():
    parts = on_ranks(lambda mesh: sharded(mesh).to_local(), 3)
    assert [part.tolist() for part in parts] == [X[:2].tolist(), X[2:].tolist(), []]
    wholes = on_ranks(lambda mesh: sharded(mesh, 1).full_tensor(), 2)
    assert all(torch.equal(whole, X) for whole in wholes)


def test_values_are_those_of_the_first_rank():
    def work(mesh):
        mine = torch.full((4,), float(mesh.get_rank()))
        first, own = (
            distribute_tensor(mine, mesh, [Shard(0)]),
            distribute_tensor(mine, mesh, src_data_rank=None),
        )
        return (
            first.full_tensor().tolist(),
            own.to_local().tolist(),
            distribute_tensor(mine, mesh).to_local().tolist(),
        )

    assert on_ranks(work)[1] == ([0] * 4, [1] * 4, [0] * 4)


def test_values_of_another_rank():
    def work(mesh):
        mine = torch.full((4,), float(mesh.get_rank()))
        with pytest.raises(ArgumentError, match="src_data_rank=2"):
            distribute_tensor(mine, mesh, src_data_rank=2)
        placements = [Shard(0)], [Replicate()]
        return [distribute_tensor(mine, mesh, p, src_data_rank=1).full_tensor().tolist() for p in placements]

    assert on_ranks(work) == [[[1] * 4] * 2] * 2


def test_a_leaf_stays_a_leaf_that_requires_grad():
    def work(mesh):
        x = X.clone().requires_grad_()
        d = distribute_tensor(x, mesh, [Shard(0)])
        with pytest.raises(ArgumentError, match="leaf"):
            distribute_tensor(x * 2, mesh)
        assert distribute_tensor(d, mesh, [Shard(0)]) is d
        with pytest.raises(ArgumentError, match="redistribute"):
            distribute_tensor(d, mesh, [Replicate()])
        return d.is_leaf, d.requires_grad

    assert on_ranks(work) == [(True, True)] * 2


def test_from_local_and_to_local_pass_gradients():
    def work(mesh):
        rank = mesh.get_rank()
        local = torch.full((2, 3), rank + 1.0, requires_grad=True)
        d = DTensor.from_local(local, mesh, [Shard(0)])
        whole = d.full_tensor()
        (whole * torch.arange(12.0).reshape(4, 3)).sum().backward()
        return tuple(d.shape), local.grad.tolist()

    results = on_ranks(work)
    assert [grad for _, grad in results] == [X[:2].tolist(), X[2:].tolist()]
    assert results[0][0] == (4, 3)


def test_from_local_of_partial_sums_is_their_sum():
    def work(mesh):
        local = torch.ones(2, requires_grad=True)
        d = DTensor.from_local(local, mesh, [Partial()])
        (d * 3).sum().backward()
        return d.full_tensor().tolist(), local.grad.tolist()

    assert on_ranks(work, 3) == [([3, 3], [3, 3])] * 3


def test_from_local_checks_parts():
    def uneven(mesh):
        rows = 2 if mesh.get_rank() == 0 else 1
        with pytest.raises(ShapeError, match="Pass shape="):
            DTensor.from_local(torch.ones(rows, 3), mesh, [Shard(0)], run_check=True)
        d = DTensor.from_local(torch.ones(rows, 3), mesh, [Shard(0)], shape=(3, 3), stride=(3, 1))
        return d.sum().item()

    assert on_ranks(uneven) == [9, 9]

    def different(mesh):
        return (
            DTensor.from_local(torch.full((2,), float(mesh.get_rank())), mesh, run_check=True)
            .to_local()
            .tolist()
        )

    assert on_ranks(different) == [[0, 0]] * 2

    def of_two_dtypes(mesh):
        local = torch.ones(2, dtype=torch.float64 if mesh.get_rank() else torch.float32)
        with pytest.raises(ShapeError, match=r"float32 \[4\].*; float64 \[4\]"):
            DTensor.from_local(local, mesh, [Shard(0)], run_check=True)
        with pytest.raises(ArgumentError, match="Please pass both shape and stride"):
            DTensor.from_local(local, mesh, [Shard(0)], stride=(1,))

    on_ranks(of_two_dtypes)


def test_redistribute_passes_gradients_by_the_placements_of_the_input():
    def work(mesh):
        d = sharded(mesh).requires_grad_()
        e = d.redistribute(placements=[Replicate()])
        (e * e).sum().backward()
        return e.placements, d.grad.placements, d.grad.full_tensor().tolist()

    assert on_ranks(work)[0] == ((Replicate(),), (Shard(0),), (2 * X).tolist())


def test_redistribute_to_the_same_placements_makes_gradients_whole(calls):
    def work(mesh):
        d = distribute_tensor(X, mesh).requires_grad_()
        if mesh.get_rank() == 0:
            calls.append(None)
        d.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()]).sum().backward()
        return d.grad.placements, d.grad.to_local().tolist()

    assert on_ranks(work) == [((Replicate(),), torch.full((4, 3), 2.0).tolist())] * 2
    assert calls[1:] == ["all_reduce"]


def test_redistribute_refuses_another_mesh_and_missing_placements():
    def work(mesh):
        with pytest.raises(ArgumentError, match=r"from Shard\(dim=0\) to Partial\(sum\)"):
            sharded(mesh).redistribute(placements=[Partial()])
        other = init_device_mesh("cpu", (2, 1))
        with pytest.raises(ArgumentError, match="moving it to"):
            sharded(mesh).redistribute(other, [Replicate(), Replicate()])
        with pytest.raises(ArgumentError, match="placements is needed for redistribute"):
            sharded(mesh).redistribute()

    on_ranks(work)


@pytest.mark.parametrize(
    "placements, message",
    [
        ([Shard(5)], "out of range"),
        ([Shard(0)] * 2, "must have the same length"),
        (["S(0)"], "not a placement"),
        (Shard(0), "one placement per mesh dimension"),
    ],
)
def test_invalid_placements(placements, message):
    with pytest.raises(ArgumentError, match=message):
        distribute_tensor(X, init_device_mesh("cpu", (1,)), placements)


def test_negative_axes_count_from_the_end():
    mesh = init_device_mesh("cpu", (1,))
    assert distribute_tensor(X, mesh, [Shard(-1)]).placements == (Shard(1),)


def test_invalid_partial():
    with pytest.raises(ArgumentError, match="'norm'"):
        Partial("norm")


def test_factories():
    def work(mesh):
        made = [zeros(5, 3, device_mesh=mesh, placements=[Shard(0)]), ones((5, 3), placements=[Shard(1)])]
        made += [full([5, 3], 2.5, device_mesh=mesh), empty(5, 3, placements=[Shard(0)], dtype=torch.float64)]
        return [(tuple(m.shape), tuple(m.to_local().shape), m.dtype) for m in made], made[1].sum().item()

    shapes, total = on_ranks(work)[1]
    assert shapes == [
        ((5, 3), (2, 3), torch.float32),
        ((5, 3), (5, 1), torch.float32),
        ((5, 3), (5, 3), torch.float32),
        ((5, 3), (2, 3), torch.float64),
    ]
    assert total == 15


def test_random_factories_draw_what_plain_ones_draw():
    mesh = init_device_mesh("cpu", (1,))
    torch.manual_seed(3)
    made = rand(4, 2, device_mesh=mesh), randn(4, 2, device_mesh=mesh, placements=[Shard(0)])
    torch.manual_seed(3)
    assert torch.equal(made[0].full_tensor(), torch.rand(4, 2))
    assert torch.equal(made[1].full_tensor(), torch.randn(4, 2))


def test_everything_that_is_made_of_a_dtensor_is_one():
    def work(mesh):
        d = sharded(mesh)
        made = [d + 1, d.detach(), d.data, d.clone(), d.to(torch.float64), d.half(), d[0], d.view(12), d.T]
        made += [torch.zeros_like(d), torch.rand_like(d), d.new_zeros(2), nn.Parameter(d), copy.copy(d)]
        made += [
            d.new_tensor([1.0]),
            d.new_empty_strided((4, 3), (3, 1)),
            copy.deepcopy(d),
            copy.deepcopy(nn.Parameter(d)),
            torch.stack([d, d]),
            *d.split(2),
        ]
        return all(isinstance(m, DTensor) for m in made), isinstance(nn.Parameter(d), nn.Parameter)

    assert on_ranks(work) == [(True, True)] * 2


def test_zeros_like_keeps_the_placements():
    def work(mesh):
        d = sharded(mesh)
        partial = DTensor.from_local(torch.ones(2), mesh, [Partial()])
        return (
            torch.zeros_like(d).placements,
            torch.randn_like(d).placements,
            torch.ones_like(partial).placements,
        )

    assert on_ranks(work)[0] == ((Shard(0),), (Shard(0),), (Replicate(),))


def test_random_numbers_do_not_depend_on_the_number_of_ranks():
    torch.manual_seed(0)
    expected = torch.rand(4, 3)
    mesh = init_device_mesh("cpu", (1,))
    torch.manual_seed(0)
    assert torch.equal(sharded(mesh).uniform_().full_tensor(), expected)


def test_python_numbers_of_partial_results_are_those_of_the_whole():
    def work(mesh):
        d = sharded(mesh)
        return (
            d.sum().item(),
            float(d.max()),
            int(d.argmax()),
            bool((d > 5).any()),
            bool((d > 5).all()),
            d.mean().item(),
        )

    assert on_ranks(work) == [(66, 11, 11, True, False, 5.5)] * 2


def test_results_of_any_and_all_are_not_added_up():
    def work(mesh):
        above = sharded(mesh) > 1
        return above.any(0).sum().item(), above.all(0).sum().item(), above.any(0).to(torch.int64).sum().item()

    above = X > 1
    expected = above.any(0).sum().item(), above.all(0).sum().item(), above.any(0).sum().item()
    assert on_ranks(work, 3) == [expected] * 3


def test_double_backward():
    def work(mesh):
        d = sharded(mesh).requires_grad_()
        (g,) = torch.autograd.grad((d**3).sum(), d, create_graph=True)
        g.sum().backward()
        return d.grad.full_tensor().tolist()

    assert on_ranks(work)[0] == (6 * X).tolist()


def test_hooks_receive_dtensors():
    def work(mesh):
        seen = []
        d = sharded(mesh).requires_grad_()
        y = d * 2
        y.register_hook(lambda grad: seen.append(type(grad)))
        y.sum().backward()
        return seen

    assert on_ranks(work) == [[DTensor]] * 2


def test_changes_in_place_keep_the_placements():
    def work(mesh):
        d = sharded(mesh)
        d.add_(1).mul_(d).clamp_(max=50)
        d += 1
        d[:, 1] = 7
        d[0] = 5
        d[d > 40] = 0
        return d.placements, d.full_tensor().tolist()

    expected = ((X + 1) ** 2).clamp(max=50) + 1
    expected[:, 1], expected[0] = 7, 5
    expected[expected > 40] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TenonWarning)
        assert on_ranks(work) == [((Shard(0),), expected.tolist())] * 2


def test_views_share_memory_and_history():
    def work(mesh):
        d = sharded(mesh)
        d.view(12).add_(1)
        d[:, 0].zero_()
        return d.full_tensor().tolist()

    expected = X + 1
    expected[:, 0] = 0
    assert on_ranks(work)[0] == expected.tolist()


def test_writing_into_a_slice_that_was_gathered_is_refused():
    def work(mesh):
        row = sharded(mesh)[1]
        with pytest.raises(ViewError, match="would be lost"):
            row.zero_()

    on_ranks(work)


def test_plain_tensors_are_refused_but_for_one_element():
    def work(mesh):
        d = sharded(mesh)
        assert (d + torch.tensor(2.0)).placements == (d * np.float32(2)).placements == d.placements
        with pytest.warns(TenonWarning, match=r"tensor of \[1\] is replicated"):
            assert (torch.ones(1) + d).placements == d.placements
        with pytest.raises(ArgumentError, match=r"got mixed torch\.Tensor and DTensor"):
            d + X

    on_ranks(work)


def test_implicit_replication_replicates_plain_tensors():
    def work(mesh):
        d, plain = sharded(mesh), X.clone().requires_grad_()
        with implicit_replication():
            (d * plain).sum().backward()
        return plain.grad.tolist()

    assert on_ranks(work) == [X.tolist()] * 2


def test_ranks_outside_of_the_mesh_have_nothing():
    def work(communicator):
        mesh = DeviceMesh("cpu", [0, 2])
        d = distribute_tensor(X, mesh, [Shard(0)])
        e = DTensor.from_local(torch.ones(3, 4), mesh, [Shard(0)])
        assert e.equal(e.clone()) and torch.equal(e, e + 0) and not e.equal(d)
        g = e.clone().requires_grad_()
        g.to_local().sum().backward()
        assert g.grad.shape == (6, 4) and g.grad.to_local().shape == e.to_local().shape
        return (
            tuple(d.to_local().shape),
            tuple((e + 2).to_local().shape),
            tuple(e.redistribute(placements=[Replicate()]).to_local().shape),
            e.sum().to_local().item(),
        )

    inside = (2, 3), (3, 4), (6, 4), 12
    assert run_ranks(3, work) == [inside, ((0,), (0,), (0,), 0), inside]


def test_what_distribute_tensor_refuses():
    def work(communicator):
        line, grid = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (1, 2))
        d = sharded(line)
        for tensor, mesh, placements, message in [
            (X, grid, [Shard(0)], "must have the same length"),
            (X.clone().requires_grad_() * 2, grid, [Shard(0)], "distribute leaf tensors"),
            (d, grid, [Replicate(), Shard(0)], "to a different device mesh"),
            (d, line, [Shard(1)], "to a different placements"),
        ]:
            with pytest.raises(ArgumentError, match=message):
                distribute_tensor(tensor, mesh, placements)

    run_ranks(2, work)


def test_where_the_part_of_a_rank_is():
    def work(communicator):
        grid, some = init_device_mesh("cpu", (2, 2)), DeviceMesh("cpu", [0, 2])
        shape, offset = part_in_whole((5, 3), grid, [Shard(0), Shard(0)])
        assert part_in_whole((5, 3), grid, [Shard(0), Shard(0)], skip_offset=True) == (shape, ())
        return shape, offset, part_in_whole((5, 3), some, [Shard(1)])

    assert run_ranks(4, work) == [
        ((2, 3), (0, 0), ((5, 2), (0, 0))),
        ((1, 3), (2, 0), ((0,), ())),
        ((1, 3), (3, 0), ((5, 1), (0, 2))),
        ((1, 3), (4, 0), ((0,), ())),
    ]
    assert run_ranks(3, lambda c: part_in_whole((2,), init_device_mesh("cpu", (3,)), [Shard(0)])[1]) == [
        (0,),
        (1,),
        (2,),
    ]


def test_tensors_of_two_equal_meshes_combine():
    def work(mesh):
        one, other = sharded(mesh).requires_grad_(), sharded(init_device_mesh("cpu", (2,))).requires_grad_()
        (one * other).sum().backward()
        return one.grad.full_tensor().tolist(), other.grad.full_tensor().tolist()

    assert on_ranks(work)[0] == (X.tolist(), X.tolist())


def test_tensors_of_different_meshes_do_not():
    def work(mesh):
        other = distribute_tensor(X, init_device_mesh("cpu", (1, 2)))
        with pytest.raises(ArgumentError, match="two meshes"):
            sharded(mesh) + other

    on_ranks(work)


@pytest.mark.parametrize(
    "convert", [DTensor.numpy, DTensor.tolist, np.asarray, DTensor.untyped_storage, DTensor.data_ptr]
)
def test_conversions_that_would_gather_are_refused(convert):
    with pytest.raises(UnsupportedError, match="full_tensor"):
        convert(sharded(init_device_mesh("cpu", (1,))))


def test_dtensors_are_neither_pickled_nor_saved():
    d = sharded(init_device_mesh("cpu", (1,)))
    with pytest.raises(UnsavableError, match="full_tensor"):
        pickle.dumps(d)
    with pytest.raises(UnsavableError, match=r"cannot save \S*weight.*full_tensor"):
        torch.save({"weight": d}, io.BytesIO())


def test_the_constructor_says_what_to_call():
    with pytest.raises(TypeError, match="distribute_tensor"):
        DTensor(X)


def test_printing_does_not_communicate():
    def work(mesh):
        d = sharded(mesh)
        return repr(d) if mesh.get_rank() == 0 else ""

    text = on_ranks(work)[0]
    assert text.startswith("DTensor(local_tensor=tensor([[0., 1., 2.]") and text.endswith(
        "placements=(Shard(dim=0),))"
    )


@pytest.mark.parametrize(
    "compute, expected",
    [
        (lambda d: (d * 2 + 1).relu().sum().backward(), []),
        (lambda d: torch.zeros_like(d.sum()), []),
        (lambda d: d.new_zeros(()), []),
        (lambda d: d.view(1, 4, 3).view(4, 1, 3).squeeze(1), []),
        (lambda d: d.amax(0).full_tensor(), ["all_reduce"]),
        (lambda d: (d @ d.T).sum(0).full_tensor(), ["all_gather", "all_reduce"]),
        (lambda d: d.mean().full_tensor(), ["all_reduce"]),
        (lambda d: d[:, :2].mean(0).full_tensor(), ["all_reduce"]),
        (lambda d: d.T.softmax(0).sum().item(), ["all_reduce"]),
        (lambda d: d.redistribute(placements=[Shard(1)]), ["all_to_all"]),
        (lambda d: d.logsumexp(0).full_tensor(), ["all_reduce", "all_reduce"]),
        (lambda d: d.gather(0, d.new_ones((2, 3), dtype=torch.int64)).full_tensor(), ["all_reduce"]),
    ],
)
def test_only_what_is_needed_is_communicated(calls, compute, expected):
    def work(mesh):
        d = sharded(mesh).requires_grad_()
        if mesh.get_rank() == 0:
            calls.append(None)
        compute(d)

    on_ranks(work)
    assert calls[1:] == expected


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_table_that_is_sharded_by_rows_stays_where_it_is(calls, ranks):
    table, indices = torch.randn(5, 3), torch.tensor([[0, 4, 2], [1, 4, 4]])
    plain = table.clone().requires_grad_()
    expected = nn.functional.embedding(indices, plain)
    expected.square().sum().backward()

    def work(mesh):
        d = distribute_tensor(table, mesh, [Shard(0)]).requires_grad_()
        places = distribute_tensor(indices, mesh)
        mesh.get_group().barrier()
        if mesh.get_rank() == 0:
            calls.append(None)
        out = nn.functional.embedding(places, d)
        silent = list(calls)
        out.square().sum().backward()
        with pytest.raises(IndexError, match=r"index 5, but the table has 5 rows"):
            nn.functional.embedding(places + 1, d)
        return silent, out.placements, out.full_tensor(), d.grad.full_tensor()

    results = on_ranks(work, ranks)
    assert results[0][0] == [None]
    for _, placements, out, grad in results:
        assert placements == (Partial(),)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(grad, plain.grad)


def test_methods_that_make_their_own_indices():
    def work(mesh):
        d = sharded(mesh)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TenonWarning)
            picked = d.index_select(1, distribute_tensor(torch.tensor([2, 0]), mesh))
            repeated, rolled = d.repeat_interleave(2, 1), d.roll(1, 1)
        return picked.full_tensor().tolist(), repeated.full_tensor().tolist(), rolled.full_tensor().tolist()

    expected = X[:, [2, 0]].tolist(), X.repeat_interleave(2, 1).tolist(), X.roll(1, 1).tolist()
    assert on_ranks(work) == [expected] * 2


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "shape", [(2, 6, 2, 8), (2, 6, 8, 2), (3, 2, 2, 16), (12, 16), (1, 2, 6, 16)], ids=str
)
def test_views_that_split_an_axis(axis, shape):
    whole = torch.arange(192.0).reshape(2, 6, 16)

    def work(mesh):
        d = distribute_tensor(whole, mesh, [Shard(axis)])
        return torch.equal(d.reshape(shape).full_tensor(), whole.reshape(shape))

    assert all(on_ranks(work, 4)) and all(on_ranks(work, 3))


@pytest.mark.parametrize("placed", [[Shard(0)], [Shard(1)]])
def test_convolutions_and_pools_with_fewer_channels_than_ranks(placed):
    x, w = torch.randn(2, 3, 8), torch.randn(3, 3, 3)

    def forward(x, w):
        return nn.functional.max_pool1d(nn.functional.conv1d(x, w), 2).square().sum()

    a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
    forward(a, b).backward()

    def work(mesh):
        d, v = (distribute_tensor(t, mesh, placed).requires_grad_() for t in (x, w))
        forward(d, v).backward()
        return d.grad.full_tensor(), v.grad.full_tensor()

    for found in on_ranks(work, 4):
        for grad, expected in zip(found, (a.grad, b.grad), strict=True):
            torch.testing.assert_close(grad, expected)


def test_random_functions_of_dtensors_return_dtensors():
    def work(mesh):
        d = distribute_tensor(torch.full((4, 3), 0.5), mesh, [Shard(0)])
        drawn = [torch.bernoulli(d), torch.normal(d, d), torch.poisson(d), torch.multinomial(d, 2)]
        return [type(x) for x in drawn], [tuple(x.shape) for x in drawn]

    assert on_ranks(work) == [([DTensor] * 4, [(4, 3)] * 3 + [(4, 2)])] * 2


def test_an_error_in_a_backward_pass_is_the_error_that_is_raised():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ShapeError("of the backward pass")

    d = sharded(init_device_mesh("cpu", (1,))).requires_grad_()
    with pytest.raises(ShapeError, match="of the backward pass"):
        Failing.apply(d).square().sum().backward()


def test_contiguous_is_about_the_part():
    def work(mesh):
        d = sharded(mesh).T
        return d.is_contiguous(), d.contiguous().to_local().is_contiguous(), d.storage_offset()

    assert on_ranks(work) == [(False, True, 0)] * 2


def test_an_op_without_a_rule_gathers_and_says_so_once():
    def work(mesh):
        d = distribute_tensor(torch.eye(4) * 2, mesh, [Shard(0)])
        return [torch.linalg.det(d).item() for _ in range(2)]

    from tenon.distributed.tensor.sharded_kernels import WARNED

    WARNED.discard("det")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert on_ranks(work) == [[16, 16]] * 2
    assert [str(w.message).split(":")[0] for w in seen] == ["det has no sharding rule"]


def test_meta_tensors_get_memory_for_their_part_only():
    def work(mesh):
        layer = nn.Linear(4, 6, device="meta")
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, [Shard(0)]))
        distribute_module(layer, mesh)
        layer.to_empty(device="cpu")
        return layer.weight.placements, tuple(layer.weight.to_local().shape), layer.weight.device.type

    assert on_ranks(work) == [((Shard(0),), (3, 4), "cpu")] * 2


def test_state_dicts_of_whole_tensors_load():
    weight = torch.randn(6, 4)

    def work(mesh):
        layer = nn.Linear(4, 6, bias=False)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.data, mesh, [Shard(0)]))
        layer.load_state_dict({"weight": weight})
        again = nn.Linear(4, 6, bias=False)
        again.weight = nn.Parameter(distribute_tensor(again.weight.data, mesh, [Shard(1)]))
        again.load_state_dict(layer.state_dict())
        return (
            layer.weight.placements,
            again.weight.placements,
            torch.equal(again.weight.full_tensor(), weight),
        )

    assert on_ranks(work) == [((Shard(0),), (Shard(1),), True)] * 2


def test_clip_grad_norm_is_that_of_the_whole():
    def work(mesh):
        p = nn.Parameter(sharded(mesh))
        (p * p).sum().backward()
        norm = nn.utils.clip_grad_norm_([p], 1.0)
        return norm.full_tensor().item(), p.grad.full_tensor().norm().item()

    plain = X.clone().requires_grad_()
    (plain * plain).sum().backward()
    for norm, clipped in on_ranks(work):
        assert norm == pytest.approx(plain.grad.norm().item()) and clipped == pytest.approx(1)


def test_empty_and_small_tensors():
    def work(mesh):
        none = distribute_tensor(torch.empty(0, 3), mesh, [Shard(0)])
        one = distribute_tensor(torch.ones(1, 3), mesh, [Shard(0)])
        product = none @ distribute_tensor(torch.ones(3, 2), mesh)
        return none.sum().item(), tuple(product.shape), one.sum().item(), one.max().item(), one.mean().item()

    assert on_ranks(work, 3) == [(0, (0, 2), 3, 1, 1)] * 3


@pytest.mark.parametrize("order", [0.5, 1, 2, 3.0, float("inf")])
def test_clipping_takes_one_collective_for_all_gradients(calls, order):
    torch.manual_seed(0)
    gradients = [torch.randn(5, 3), torch.randn(4), torch.randn(2, 2)]
    whole = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(whole, gradients, strict=True):
        parameter.grad = gradient.clone()
    expected = nn.utils.clip_grad_norm_(whole, 0.5, order)

    def work(mesh):
        placements = [[Shard(0)], [Shard(0)], [Replicate()]]
        own = [
            nn.Parameter(distribute_tensor(torch.zeros_like(g), mesh, p))
            for g, p in zip(gradients, placements, strict=True)
        ]
        for parameter, gradient, placed in zip(own, gradients, placements, strict=True):
            parameter.grad = distribute_tensor(gradient, mesh, placed)
        if mesh.get_rank() == 0:
            calls.append(None)
        total = nn.utils.clip_grad_norm_(own, 0.5, order)
        sent = calls[1:]
        return sent, total.full_tensor(), [p.grad.full_tensor() for p in own]

    results = on_ranks(work)
    assert results[0][0] == ["all_gather"]
    for _, total, clipped in results:
        torch.testing.assert_close(total, expected)
        torch.testing.assert_close(clipped, [p.grad for p in whole])


@pytest.mark.parametrize("dtypes", [("complex64", "complex64"), ("bfloat16", "float32")], ids=str)
def test_the_norm_of_sharded_gradients_has_the_dtype_of_the_plain_one(dtypes):
    torch.manual_seed(0)
    gradients = [torch.randn(4, 3).to(getattr(torch, kind)) for kind in dtypes]
    whole = [torch.zeros_like(g).requires_grad_() for g in gradients]
    for parameter, gradient in zip(whole, gradients, strict=True):
        parameter.grad = gradient.clone()
    expected = nn.utils.clip_grad_norm_(whole, 0.5)

    def work(mesh):
        own = [distribute_tensor(torch.zeros_like(g), mesh, [Shard(0)]).requires_grad_() for g in gradients]
        for parameter, gradient in zip(own, gradients, strict=True):
            parameter.grad = distribute_tensor(gradient, mesh, [Shard(0)])
        total = nn.utils.clip_grad_norm_(own, 0.5)
        return total.full_tensor(), [p.grad.full_tensor() for p in own]

    for total, clipped in on_ranks(work):
        torch.testing.assert_close(total, expected, rtol=1e-2, atol=0)
        torch.testing.assert_close(clipped, [p.grad for p in whole], rtol=2e-2, atol=1e-3)


def test_spec_of_a_dtensor():
    x = distribute_tensor(torch.ones(3, 2, dtype=torch.float64), init_device_mesh("cpu", (1,)), [Shard(1)])
    spec = x._spec

    assert (spec.mesh, spec.device_mesh, spec.placements) == (x.device_mesh, x.device_mesh, (Shard(1),))
    assert (spec.tensor_meta.shape, spec.tensor_meta.stride) == ((3, 2), (2, 1))
    assert (spec.tensor_meta.dtype, spec.shape, spec.ndim) == (torch.float64, (3, 2), 2)
    assert spec == x.clone()._spec != x.float()._spec


@pytest.mark.parametrize("target", [[Replicate()], [Shard(0)]], ids=str)
def test_parts_of_one_element_are_joined_contiguously(target):
    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        whole = torch.arange(8.0).reshape(2, 2, 2)
        moved = distribute_tensor(whole, mesh, [Shard(2)]).redistribute(placements=target)
        assert moved.to_local().is_contiguous()
        return moved.view(2, 4).full_tensor().tolist()

    assert run_ranks(2, work) == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2
