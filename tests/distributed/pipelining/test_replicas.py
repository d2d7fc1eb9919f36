"""Pipelines of data-parallel stages on a mesh of 2 x 2 threads, and checkpoints of their stages."""

import copy
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import checkpoint, init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import fully_shard
from tenon.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    SplitPoint,
    pipeline,
)
from tenon.distributed.replicas.data_parallel import DistributedDataParallel
from tenon.distributed.tensor import DTensor
from tenon.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.insert(0, str(Path(__file__).parent))

from stages import assert_equal, batch, layers, mse, plain


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def wrap(module, kind, mesh):
    if kind == "ddp":
        return DistributedDataParallel(module, process_group=mesh.get_group("dp"))
    if kind != "parts":
        fully_shard(module[0], mesh=mesh["dp"], reshard_after_forward=kind == "reshard")
    return fully_shard(module, mesh=mesh["dp"], reshard_after_forward=kind == "reshard")


class Counted:
    """How many reductions over ``group`` there have been."""

    def __init__(self, group):
        self.count = 0
        for name in ("all_reduce", "reduce_scatter_several", "reduce_scatter"):
            setattr(group, name, self._counting(getattr(group, name)))

    def _counting(self, function):
        def counted(*args, **kwargs):
            self.count += 1
            return function(*args, **kwargs)

        return counted


CASES = [
    (Schedule1F1B, "ddp"),
    (Schedule1F1B, "reshard"),
    (ScheduleGPipe, "ddp"),
    (ScheduleGPipe, "keep"),
    (ScheduleInterleaved1F1B, "ddp"),
    (ScheduleInterleaved1F1B, "parts"),
    (ScheduleInterleavedZeroBubble, "ddp"),
    (ScheduleInterleavedZeroBubble, "reshard"),
]


@pytest.mark.parametrize(
    ("cls", "kind"), [pytest.param(*c, marks=[] if c in CASES[:2] else [pytest.mark.slow]) for c in CASES]
)
def test_gradients_are_reduced_once_over_the_replicas(cls, kind):
    several = cls in (ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble)
    modules = layers(4 if several else 2)
    x, y = batch(16)
    expected = copy.deepcopy(modules)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in expected]
    for _ in range(2):
        output = x
        for module in expected:
            output = module(output)
        mse(output, y).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
        stages = [
            PipelineStage(
                wrap(copy.deepcopy(modules[i]), kind, mesh),
                i,
                len(modules),
                "cpu",
                group=mesh.get_group("pp"),
            )
            for i in range(mesh.get_local_rank("pp"), len(modules), 2)
        ]
        schedule = cls(stages if several else stages[0], 4, loss_fn=mse)
        parameters = [p for stage in stages for p in stage.submod.parameters()]
        optimizer = torch.optim.SGD(parameters, 0.1)
        own = slice(8 * mesh.get_local_rank("dp"), 8 * mesh.get_local_rank("dp") + 8)
        counts = []
        for _ in range(2):
            counted = Counted(mesh.get_group("dp"))
            losses = []
            schedule.step(x[own], target=y[own], losses=losses)
            counts.append(counted.count)
            optimizer.step()
            optimizer.zero_grad()
        states = {s.stage_index: {n: whole(v) for n, v in s.submod.state_dict().items()} for s in stages}
        return states, counts

    for states, counts in run_ranks(4, work):
        for index, state in states.items():
            assert_equal(state, expected[index].state_dict())
        assert counts[1] <= 2 * len(states), counts  # a bucket or group for each stage and its module


def test_gradients_of_a_step_that_is_not_synchronized_stay_on_the_rank():
    modules = layers(1)
    x, y = batch()

    def work(communicator):
        module = DistributedDataParallel(copy.deepcopy(modules[0]))
        own = slice(4 * communicator.rank, 4 * communicator.rank + 4)
        (alone,) = communicator_of_one(communicator)
        schedule = ScheduleGPipe(PipelineStage(module, 0, 1, "cpu", group=alone), 2, loss_fn=mse)
        with module.no_sync():
            schedule.step(x[own], target=y[own])
        local = [p.grad.clone() for p in module.parameters()]
        schedule.step(x[own], target=y[own])
        return local, [p.grad for p in module.parameters()]

    ranks = run_ranks(2, work)
    for rank, (local, total) in enumerate(ranks):
        own = slice(4 * rank, 4 * rank + 4)
        wanted = list(plain(modules, x[own], y[own])[2].values())
        whole_batch = list(plain(modules, x, y)[2].values())
        for found, both, mine, mean in zip(local, total, wanted, whole_batch, strict=True):
            torch.testing.assert_close(found, mine)
            torch.testing.assert_close(both, mean * 2)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize(
    "cls", [Schedule1F1B, pytest.param(ScheduleInterleavedZeroBubble, marks=pytest.mark.slow)]
)
def test_stages_may_be_tensor_parallel(cls):
    torch.manual_seed(0)
    modules = [Perceptron() for _ in range(2 if cls is Schedule1F1B else 4)]
    x, y = batch(8, 6)
    wanted = plain(modules, x, y)[2]

    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        stages = [
            PipelineStage(
                parallelize_module(copy.deepcopy(modules[i]), mesh["tp"], plan),
                i,
                len(modules),
                "cpu",
                group=mesh.get_group("pp"),
            )
            for i in range(mesh.get_local_rank("pp"), len(modules), 2)
        ]
        cls(stages[0] if cls is Schedule1F1B else stages, 4, loss_fn=mse).step(x, target=y)
        return {f"{s.stage_index}.{n}": whole(p.grad) for s in stages for n, p in s.submod.named_parameters()}

    ranks = run_ranks(4, work)
    found = ranks[0] | ranks[2]
    assert_equal(found, {name: wanted[name] for name in found})
    assert set(found) == set(wanted)


def communicator_of_one(communicator):
    mesh = init_device_mesh("cpu", (communicator.size, 1), mesh_dim_names=("dp", "pp"))
    return [mesh.get_group("pp")]


@pytest.mark.parametrize("sharded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_checkpoints_of_stages_are_those_of_the_model(tmp_path, sharded):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    x, y = torch.randn(8, 4), torch.randn(8, 3)
    splits = {"2": SplitPoint.BEGINNING}

    def split(size):
        """The stages, of which each rank takes one: tracing is for one thread at a time."""
        pipes = [pipeline(copy.deepcopy(model), (x,), split_spec=splits) for _ in range(size)]
        return [pipe.get_stage_module(rank * 2 // size) for rank, pipe in enumerate(pipes)]

    size = 4 if sharded else 2
    modules = split(size)

    def build(mesh):
        stage = modules[mesh.get_rank()]
        return fully_shard(stage, mesh=mesh["dp"]) if sharded else stage

    def save(communicator):
        mesh = init_device_mesh("cpu", (2, communicator.size // 2), mesh_dim_names=("pp", "dp"))
        stage = build(mesh)
        own = PipelineStage(stage, mesh.get_local_rank("pp"), 2, "cpu", group=mesh.get_group("pp"))
        Schedule1F1B(own, 2, loss_fn=mse).step(x, target=y)
        torch.optim.SGD(stage.parameters(), 0.1).step()
        checkpoint.save(stage.state_dict(), checkpoint_id=tmp_path)
        return {name: whole(value) for name, value in stage.state_dict().items()}

    states = run_ranks(size, save)
    trained = copy.deepcopy(model)
    state = trained.state_dict()
    checkpoint.load(state, checkpoint_id=tmp_path)
    trained.load_state_dict(state)

    assert_equal({**states[0], **states[-1]}, trained.state_dict())
    assert not torch.equal(trained[0].weight, model[0].weight)

    with torch.no_grad():
        trained[3].bias.fill_(7)
    checkpoint.save(trained.state_dict(), checkpoint_id=tmp_path / "plain")

    def load(communicator):
        mesh = init_device_mesh("cpu", (2, communicator.size // 2), mesh_dim_names=("pp", "dp"))
        stage = build(mesh)
        found = stage.state_dict()
        checkpoint.load(found, checkpoint_id=tmp_path / "plain")
        stage.load_state_dict(found)
        return {name: whole(value) for name, value in stage.state_dict().items()}

    modules = split(size)
    loaded = run_ranks(size, load)
    assert_equal({**loaded[0], **loaded[-1]}, trained.state_dict())
