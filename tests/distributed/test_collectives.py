"""torch.distributed's names on tensors, over threads; the same on real ranks in test_ranks.py."""

import numpy as np
import pytest

import tenon
import tenon.distributed as dist
from tenon.distributed.threaded import run_ranks
from tenon.errors import CommunicatorError, LaunchError, ModifiedValueError, ShapeError

SAME_AS_TORCH = [
    *["all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast"],
    *["broadcast_object_list", "destroy_process_group", "get_backend", "get_node_local_rank", "get_rank"],
    *[
        "get_world_size",
        "is_available",
        "is_initialized",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
    ],
]
DTYPES = [tenon.float32, tenon.float64, tenon.float16, tenon.bfloat16, tenon.int64, tenon.uint8, tenon.bool]


def on_ranks(size=3):
    """Run the decorated function as a test, on ``size`` ranks at once."""

    def decorate(function):
        def test():
            run_ranks(size, lambda communicator: function(communicator.rank, communicator.size))

        test.__name__ = function.__name__
        return test

    return decorate


@on_ranks()
def test_all_reduce_works_in_place(rank, size):
    for dtype in DTYPES[:-1]:
        tensor = tenon.full((2, 3), rank + 1, dtype=dtype)
        version = tensor._version
        assert dist.all_reduce(tensor) is None
        assert tensor.tolist() == [[6, 6, 6], [6, 6, 6]]
        assert tensor.dtype is dtype
        assert tensor._version > version


@on_ranks()
def test_every_reduction_has_torchs_name(rank, size):
    expected = {
        dist.ReduceOp.SUM: 6.0,
        dist.ReduceOp.AVG: 2.0,
        dist.ReduceOp.PRODUCT: 6.0,
        dist.ReduceOp.MIN: 1.0,
        dist.ReduceOp.MAX: 3.0,
    }
    for op, value in expected.items():
        tensor = tenon.tensor(rank + 1.0)
        dist.all_reduce(tensor, op=op)
        assert tensor.item() == value


@on_ranks()
def test_strided_views_are_written_where_they_lie(rank, size):
    base = tenon.zeros(3, 4)
    view = base[:, 1:3].t()
    view += rank + 1
    dist.all_reduce(view)
    assert base.tolist() == [[0, 6, 6, 0]] * 3


@on_ranks()
def test_async_work_can_be_waited_for(rank, size):
    tensor = tenon.tensor([1.0])
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.is_completed()
    assert tensor.item() == size
    assert dist.barrier(async_op=True).is_completed()


@on_ranks()
def test_broadcast_copies_from_the_source(rank, size):
    for src in range(size):
        tensor = tenon.full((2,), float(rank))
        dist.broadcast(tensor, src)
        assert tensor.tolist() == [src, src]
    tensor += rank
    dist.broadcast(tensor, group_src=0)
    assert tensor.tolist() == [2, 2]
    with pytest.raises(CommunicatorError, match="either src or group_src"):
        dist.broadcast(tensor)


@on_ranks()
def test_reduce_changes_only_the_destination(rank, size):
    tensor = tenon.tensor([rank + 1.0])
    dist.reduce(tensor, 1)
    assert tensor.item() == (6 if rank == 1 else rank + 1)


@on_ranks()
def test_all_gather_fills_the_list_in_rank_order(rank, size):
    parts = [tenon.zeros(2, dtype=tenon.int64) for _ in range(size)]
    dist.all_gather(parts, tenon.tensor([rank, rank * 10]))
    assert [part.tolist() for part in parts] == [[0, 0], [1, 10], [2, 20]]
    with pytest.raises(ShapeError, match="2 tensors for 3 ranks"):
        dist.all_gather(parts[:2], tenon.tensor([rank, rank]))
    with pytest.raises(ShapeError, match=r"tensor_list\[0\]"):
        dist.all_gather(parts, tenon.tensor([rank]))


@on_ranks()
def test_all_gather_into_tensor_joins_or_stacks(rank, size):
    joined, stacked = tenon.zeros(6), tenon.zeros(3, 2)
    dist.all_gather_into_tensor(joined, tenon.full((2,), float(rank)))
    dist.all_gather_into_tensor(stacked, tenon.full((2,), float(rank)))
    assert joined.tolist() == [0, 0, 1, 1, 2, 2]
    assert stacked.tolist() == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(ShapeError, match="output_tensor"):
        dist.all_gather_into_tensor(tenon.zeros(5), tenon.zeros(2))


@on_ranks()
def test_reduce_scatter_gives_each_rank_its_part(rank, size):
    output = tenon.zeros(2)
    dist.reduce_scatter_tensor(output, tenon.arange(6.0))
    assert output.tolist() == [3 * 2 * rank, 3 * (2 * rank + 1)]
    dist.reduce_scatter(output, [tenon.full((2,), float(r)) for r in range(size)], dist.ReduceOp.MAX)
    assert output.tolist() == [rank, rank]
    with pytest.raises(ShapeError, match="must hold 3 times"):
        dist.reduce_scatter_tensor(output, tenon.zeros(5))
    with pytest.raises(ShapeError, match="one tensor each"):
        dist.reduce_scatter(output, [tenon.zeros(2)])


@on_ranks()
def test_plain_values_are_gathered_and_broadcast(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "name": "x" * rank})
    assert gathered == [{"rank": r, "name": "x" * r} for r in range(size)]
    values = [(rank, "a"), rank] if rank == 2 else [None, None]
    dist.broadcast_object_list(values, src=2)
    assert values == [(2, "a"), 2]


def test_objects_of_other_types_are_refused_before_anything_is_sent():
    class Secret:
        pass

    with pytest.raises(CommunicatorError, match="never pickles"):
        dist.all_gather_object([None], Secret())


@on_ranks()
def test_a_parameter_is_reduced_without_touching_autograd(rank, size):
    parameter = tenon.nn.Parameter(tenon.ones(2) * rank)
    dist.all_reduce(parameter)
    assert parameter.tolist() == [3, 3]
    assert parameter.is_leaf and parameter.requires_grad


def test_a_tensor_that_backward_still_needs_may_not_be_reduced_unnoticed():
    x = tenon.ones(2, requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    with tenon.no_grad():
        dist.all_reduce(y)
    with pytest.raises(ModifiedValueError):
        z.backward()


def test_arrays_are_refused_by_type():
    with pytest.raises(CommunicatorError, match="tensor is a ndarray, not a Tensor"):
        dist.all_reduce(np.ones(2))


def test_alone_every_collective_works_on_one_rank():
    tensor = tenon.ones(2)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    gathered = [None]
    dist.all_gather_object(gathered, 5)
    assert (dist.get_rank(), dist.get_world_size(), gathered, tensor.tolist()) == (0, 1, [5], [1, 1])


def test_joining_is_optional_and_repeatable():
    dist.init_process_group()
    dist.init_process_group("gloo", init_method="env://", world_size=1, rank=0)
    assert dist.is_available() and dist.is_initialized()
    dist.destroy_process_group()
    assert not dist.is_initialized()
    assert dist.get_world_size() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(init_method="tcp://10.0.0.1:2345"), "find each other through the launcher"),
        (dict(world_size=2, rank=0), r"rank\s+0 of 1"),
        (dict(backend="smoke"), "TENON_COMMUNICATOR=smoke"),
    ],
)
def test_what_contradicts_the_launcher_is_refused(options, words):
    with pytest.raises(LaunchError, match=words):
        dist.init_process_group(**options)


def test_a_group_must_be_a_communicator():
    with pytest.raises(CommunicatorError, match="group is a str"):
        dist.get_rank("world")


@pytest.mark.oracle
def test_signatures_are_torchs():
    import inspect

    torch_distributed = pytest.importorskip("torch.distributed")
    for name in SAME_AS_TORCH:
        ours = list(inspect.signature(getattr(dist, name)).parameters)
        assert ours == list(inspect.signature(getattr(torch_distributed, name)).parameters), name
