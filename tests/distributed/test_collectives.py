"""torch.distributed's names on tensors, over threads; the same on real ranks in test_ranks.py."""

import numpy as np
import pytest

import tenon
import tenon.distributed as dist
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import (
    CollectiveMismatchError,
    CommunicatorError,
    LaunchError,
    ModifiedValueError,
    ShapeError,
    TenonWarning,
)

SAME_AS_TORCH = [
    *[
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_reduce",
        "all_to_all",
        "all_to_all_single",
    ],
    *[
        "barrier",
        "batch_isend_irecv",
        "broadcast",
        "broadcast_object_list",
        "destroy_process_group",
        "gather",
    ],
    *[
        "gather_object",
        "get_backend",
        "get_global_rank",
        "get_group_rank",
        "get_node_local_rank",
        "get_process_group_ranks",
    ],
    *["get_rank", "get_world_size", "irecv", "is_available", "is_initialized", "isend"],
    *["monitored_barrier", "new_group", "new_subgroups", "recv", "reduce", "reduce_scatter"],
    *["reduce_scatter_tensor", "scatter", "scatter_object_list", "send"],
    *["all_gather_coalesced", "all_reduce_coalesced", "new_subgroups_by_enumeration"],
    *["all_gather_single", "reduce_scatter_single"],
    *["recv_object_list", "send_object_list", "get_backend_config", "is_backend_available"],
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
    flat = tenon.zeros(size * 6)
    dist.all_gather_single(flat, tenon.full((2, 3), float(rank)))
    assert flat.tolist() == [0.0] * 6 + [1.0] * 6 + [2.0] * 6
    with pytest.raises(ShapeError, match="world_size times input"):
        dist.all_gather_into_tensor(tenon.zeros(5), tenon.zeros(2))
    with pytest.raises(TypeError, match="one dtype"):
        dist.all_gather_into_tensor(tenon.zeros(6, dtype=tenon.float64), tenon.zeros(2))


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


@on_ranks()
def test_gather_and_scatter_need_lists_on_their_root_only(rank, size):
    parts = [tenon.zeros(()) for _ in range(size)] if rank == 1 else None
    dist.gather(tenon.tensor(rank + 0.5), parts, dst=1)
    assert rank != 1 or [part.item() for part in parts] == [0.5, 1.5, 2.5]
    part = tenon.zeros(2, 2).t()[:1]
    given = [tenon.full((1, 2), float(r)) for r in range(size)] if rank == 2 else None
    dist.scatter(part, given, src=2)
    assert part.tolist() == [[rank, rank]]
    with pytest.raises(ShapeError, match="gather_list has 0 tensors"):
        dist.gather(tenon.ones(1), None, dst=rank)
    values = [None]
    dist.scatter_object_list(values, ["a", "b", "c"] if rank == 0 else None, src=0)
    assert values == ["abc"[rank]]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object({"rank": rank}, gathered, dst=1)
    assert rank != 1 or gathered == [{"rank": r} for r in range(size)]


@on_ranks()
def test_all_to_all_exchanges_equal_and_different_parts(rank, size):
    output = tenon.zeros(size, 2)
    dist.all_to_all_single(output, tenon.arange(2.0 * size).reshape(size, 2) + 100 * rank)
    assert output.tolist() == [[100 * r + 2 * rank, 100 * r + 2 * rank + 1] for r in range(size)]
    outputs = [tenon.zeros(rank + r) for r in range(size)]
    dist.all_to_all(outputs, [tenon.full((rank + r,), 10.0 * rank + r) for r in range(size)])
    assert [out.tolist() for out in outputs] == [[10.0 * r + rank] * (rank + r) for r in range(size)]
    count = (1, 0, 2)[rank]
    rows = tenon.zeros(3 * count)
    dist.all_to_all_single(rows, tenon.full((3,), float(rank)), [count] * 3, [1, 0, 2])
    assert rows.tolist() == [0.0] * count + [1.0] * count + [2.0] * count


@on_ranks()
def test_two_ranks_send_and_receive(rank, size):
    tensor = tenon.full((2, 3), float(rank))
    if rank == 0:
        dist.send(tensor, 1, tag=5)
        dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, 2)])[0].wait()
    elif rank == 1:
        tensor = tenon.ones(3, 2).t()
        assert dist.recv(tensor, 0, tag=5) == 0
        assert tensor.tolist() == [[0.0] * 3] * 2
    else:
        work = dist.irecv(tensor, 0)
        work.wait()
        assert tensor.tolist() == [[0.0] * 3] * 2 and work.is_completed()
    with pytest.raises(CommunicatorError, match="any rank"):
        dist.irecv(tensor)
    with pytest.raises(CommunicatorError, match="tag=-1"):
        dist.isend(tensor, 0, tag=-1)


@on_ranks(4)
def test_groups_hold_some_of_the_ranks(rank, size):
    group = dist.new_group([3, 1])
    everyone = dist.new_group()
    mine, _ = dist.new_subgroups(2)
    tensor = tenon.tensor([float(rank)])
    dist.all_reduce(tensor, group=mine)
    assert tensor.item() == (1 if rank < 2 else 5)
    assert (dist.get_world_size(everyone), dist.get_process_group_ranks(mine)) == (
        4,
        [rank // 2 * 2, rank // 2 * 2 + 1],
    )
    if rank % 2 == 0:
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        with pytest.warns(TenonWarning, match="all_reduce does nothing on rank"):
            assert dist.all_reduce(tensor, group=group) is None
        return
    assert (dist.get_rank(group), dist.get_group_rank(group, 3), dist.get_global_rank(group, 0)) == (
        rank // 2,
        1,
        1,
    )
    tensor.fill_(rank)
    dist.broadcast(tensor, 3, group=group)
    assert tensor.item() == 3
    with pytest.raises(CommunicatorError, match="Global rank 0 is not part of group"):
        dist.broadcast(tensor, 0, group=group)


@on_ranks(4)
def test_groups_answer_like_torchs(rank, size):
    pair, pairs = dist.new_subgroups_by_enumeration([[0, 3], [2]])
    assert len(pairs) == 2 and (pair is None) == (rank == 1)
    if pair is not None:
        assert isinstance(pair, dist.ProcessGroup)
        assert (pair.size, pair.rank) == ((1, 0) if rank == 2 else (2, rank // 3))
        dist.destroy_process_group(pair)  # That group only.
    assert dist.group.WORLD.size == 4 and dist.group.WORLD.rank == dist.get_rank() == rank
    with pytest.raises(ValueError, match="both subgroup"):
        dist.new_subgroups_by_enumeration([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="must not exceed the world size"):
        dist.new_subgroups(5)
    with pytest.raises(ValueError, match="Invalid process group specified"):
        dist.get_backend(dist.GroupMember.NON_GROUP_MEMBER)


@on_ranks()
def test_several_tensors_and_objects_go_in_one_call(rank, size):
    tensors = [tenon.full((2,), float(rank)), tenon.tensor(1 + 1j)]
    work = dist.new_group().allreduce([tenon.ones(2)])
    assert work.get_future().then(lambda done: done.value()[0].tolist()).wait() == [3, 3]
    future = dist.all_reduce_coalesced(tensors, async_op=True)
    assert future.wait()[0].tolist() == [3, 3] and tensors[1].item() == 3 + 3j
    rows = [[tenon.zeros(2), tenon.zeros(0)] for _ in range(size)]
    dist.all_gather_coalesced(rows, [tenon.full((2,), float(rank)), tenon.zeros(0)])
    assert [row[0].tolist() for row in rows] == [[r, r] for r in range(size)]
    with pytest.raises(ShapeError, match="need one list each"):
        dist.all_gather_coalesced(rows[:1], [tenon.zeros(2)])
    if rank == 0:
        dist.send_object_list(["a", {1}, tenon.ones(2)], dst=2)
    elif rank == 2:
        values = [None, None, None]
        assert dist.recv_object_list(values, src=0) == 0
        assert values[:2] == ["a", {1}] and values[2].tolist() == [1, 1]


@on_ranks(2)
def test_lists_of_objects_that_are_sent_carry_the_name_that_is_given(rank, size):
    values = ["a", 1]
    for other, name in ((False, "counts"), (True, "losses")):
        with dist.named(name if rank else "counts"):
            if rank == 0:
                dist.send_object_list(values, dst=1)
            elif other:
                with pytest.raises(CollectiveMismatchError, match=r"named 'counts'.*named 'losses'"):
                    dist.recv_object_list([None, None], src=0)
            else:
                assert dist.recv_object_list([None, None], src=0) == 0


@on_ranks()
def test_bits_are_combined_and_complex_orders_refused(rank, size):
    for op, ints, bools in (("BAND", 0, False), ("BOR", 7, True), ("BXOR", 7, True)):
        bits = tenon.tensor([1 << rank], dtype=tenon.int16)
        flag = tenon.tensor([rank == 1])
        dist.all_reduce(bits, getattr(dist.ReduceOp, op))
        dist.all_reduce(flag, getattr(dist.ReduceOp, op))
        assert (bits.item(), flag.item()) == (ints, bools)
        with pytest.raises(RuntimeError, match="non-integral"):
            dist.all_reduce(tenon.ones(1), getattr(dist.ReduceOp, op))
    number = tenon.tensor([1j])
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        with pytest.raises(ValueError, match="all_reduce does not support"):
            dist.all_reduce(number, op)


def test_backends_have_torchs_names():
    assert dist.Backend("GLOO") == dist.Backend.GLOO == dist.get_default_backend_for_device("cpu") == "gloo"
    with pytest.raises(ValueError, match="string-ish"):
        dist.Backend(None)
    assert dist.is_backend_available("cpu:gloo") and not dist.is_backend_available("cpu:gloo,cuda:nccl")
    dist.init_process_group("GLOO")
    assert (dist.get_backend(), dist.get_backend_config()) == ("gloo", "cpu:gloo,cuda:gloo")
    dist.destroy_process_group()
    assert dist.get_backend() == "local"
    assert dist.reduce_op.SUM is dist.ReduceOp.SUM and not dist.is_nccl_available()
    from tenon.distributed.distributed_c10d import ProcessGroup, _get_default_group

    assert isinstance(_get_default_group(), ProcessGroup)


def test_groups_of_impossible_ranks_are_refused():
    for ranks in ([1], [0, 0], []):
        with pytest.raises(ValueError, match="must be different numbers"):
            dist.new_group(ranks)


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
    with pytest.raises(TypeError, match="all_reduce was given a ndarray"):
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
