"""``CommDebugMode``: the collectives of a block, counted on each rank apart."""

import threading

import pytest

import tenon as torch
import tenon.distributed as dist
from tenon import nn
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import fully_shard
from tenon.distributed.tensor import Replicate, Shard, distribute_tensor
from tenon.distributed.tensor.debug import CommDebugMode
from tenon.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def test_a_collective_is_counted_under_all_of_its_names():
    def work(communicator):
        x = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        with CommDebugMode() as mode:
            x.full_tensor()
            x.sum().redistribute(placements=[Replicate()])
            dist.all_reduce(torch.ones(2))
            dist.scatter(torch.empty(1), [torch.ones(1)] * 2 if communicator.rank == 0 else None)
        counts = mode.get_comm_counts()
        functional, c10d = torch.ops.c10d_functional, torch.ops.c10d
        assert counts[functional.all_gather_into_tensor] == counts[c10d._allgather_base_] == 1
        assert counts[functional.all_reduce] == counts[c10d.allreduce_] == 2
        assert counts[c10d.scatter_] == 1 and counts[c10d._reduce_scatter_base_] == 0
        return mode.get_total_counts()

    assert run_ranks(2, work) == [4, 4]


def test_counts_are_those_of_the_block_alone():
    def work(communicator):
        mode = CommDebugMode()
        with mode, CommDebugMode() as inner:
            dist.all_reduce(torch.ones(2))
        first = mode.get_total_counts(), inner.get_total_counts()
        dist.all_reduce(torch.ones(2))
        dist.barrier()
        with mode:
            if communicator.rank == 0:
                dist.send(torch.ones(1), 1)
            else:
                dist.recv(torch.ones(1), 0)
        return first, mode.get_total_counts()

    assert run_ranks(2, work) == [((1, 1), 0)] * 2


def test_collectives_that_another_thread_makes_are_not_counted():
    with CommDebugMode() as mode:
        dist.all_reduce(torch.ones(2))
        other = threading.Thread(target=dist.all_reduce, args=(torch.ones(2),))
        other.start()
        other.join()
        assert repr(mode) == "CommDebugMode(get_total_counts()=1)"


def test_names_that_no_collective_has():
    with pytest.raises(AttributeError, match=r"no collective of the name .all_redouce.: .*all_reduce"):
        getattr(torch.ops.c10d_functional, "all_" + "redouce")


@pytest.mark.parametrize(("reshard", "backward"), [(None, 2), (True, 3), (False, 0)])
def test_fully_shard_gathers_and_reduces_each_module_once(reshard, backward):
    ops = torch.ops.c10d

    def work(communicator):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        for module in (model[0], model[1], model):
            fully_shard(module, reshard_after_forward=reshard)
        with CommDebugMode() as forward_mode:
            loss = model(torch.ones(2, 4)).sum()
        with CommDebugMode() as backward_mode:
            loss.backward()
        counts = backward_mode.get_comm_counts()
        gathers = counts[ops._allgather_base_], forward_mode.get_total_counts()
        return *gathers, counts[ops._reduce_scatter_base_]

    assert run_ranks(2, work) == [(backward, 3, 3)] * 2


def test_tensor_parallel_layers_reduce_once_in_each_direction():
    def work(communicator):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        mesh = init_device_mesh("cpu", (2,))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel(output_layouts=Shard(0))}
        parallelize_module(model, mesh, plan)
        mode = CommDebugMode()
        with mode:
            loss = model(torch.ones(2, 4, requires_grad=True)).sum()
        forward = {str(kind): count for kind, count in mode.get_comm_counts().items()}
        with mode:
            loss.backward()
        return forward, {str(kind): count for kind, count in mode.get_comm_counts().items()}

    assert run_ranks(2, work)[1] == ({"reduce_scatter": 1}, {"all_gather": 1, "all_reduce": 1})


@pytest.mark.parametrize("order", [0.5, 2, float("inf")])
def test_the_norm_of_all_gradients_takes_one_collective_a_mesh_dimension(order):
    torch.manual_seed(0)
    gradients = [torch.randn(6, 4) for _ in range(4)]
    placements = [[Shard(0), Shard(1)], [Shard(0), Replicate()], [Replicate(), Shard(0)], [Replicate()] * 2]
    expected = nn.utils.get_total_norm(gradients, order)

    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 2))
        own = [distribute_tensor(g, mesh, p) for g, p in zip(gradients, placements, strict=True)]
        with CommDebugMode() as mode:
            norm = nn.utils.get_total_norm(own, order)
        torch.testing.assert_close(norm.full_tensor(), expected)
        return mode.get_total_counts()

    assert run_ranks(4, work) == [2] * 4
