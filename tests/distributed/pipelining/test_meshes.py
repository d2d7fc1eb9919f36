"""Pipelines whose stages are tensor-parallel and sharded, on meshes of two and three dimensions."""

import copy
import sys
import warnings
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import checkpoint, init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import fully_shard
from tenon.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, pipeline
from tenon.distributed.tensor import DTensor
from tenon.distributed.tensor.parallel import loss_parallel, parallelize_module
from tenon.testing.suites.communicator import launch

TENSOR = str(Path(__file__).parents[1] / "tensor")
sys.path.insert(0, TENSOR)

from transformer import assert_equal_states, batch, sequence_plan, tensor_plan, transformer  # noqa: E402

NAMES = ("pp", "replicate", "dp", "tp")


def loss_of(scores, target):
    """The mean over words; the scores may be split by words."""
    with loss_parallel():
        return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def plain_training(base, x, y, steps):
    model = copy.deepcopy(base)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def split(model, depth):
    """The modules of the stages; traced before threads start, as tracing replaces methods of all modules."""
    pipe = pipeline(model, (torch.zeros(1, 4, dtype=torch.int64),), num_stages=depth)
    return [pipe.get_stage_module(i) for i in range(depth)]


def stage_of(modules, mesh, plan):
    """The stage of this rank, tensor-parallel by ``plan`` and sharded over the other dimensions."""
    depth, index = mesh["pp"].size(), mesh.get_local_rank("pp")
    module = copy.deepcopy(modules[index])
    if "tp" in mesh.mesh_dim_names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of entries for other stages
            parallelize_module(module, mesh["tp"], plan)
    shards = tuple(name for name in mesh.mesh_dim_names if name in ("replicate", "dp"))
    if shards:
        for block in [m for m in module.modules() if type(m).__name__ == "Block"]:
            fully_shard(block, mesh=mesh[shards])
        fully_shard(module, mesh=mesh[shards])
    return PipelineStage(module, index, depth, "cpu", group=mesh.get_group("pp"))


def train(modules, mesh, plan, x, y, schedule=Schedule1F1B, microbatches=2, steps=2):
    """Losses of the last stage, and the whole state dict of this rank's stage."""
    stage = stage_of(modules, mesh, plan)
    optimizer = torch.optim.SGD(stage.submod.parameters(), 0.1, momentum=0.9)
    rows = [name for name in mesh.mesh_dim_names if name in ("replicate", "dp")]
    count = place = 1
    place = 0
    for name in rows:
        place = place * mesh[name].size() + mesh.get_local_rank(name)
        count *= mesh[name].size()
    own = [t.chunk(count)[place] for t in (x, y)]
    steps_of = schedule(stage, n_microbatches=microbatches, loss_fn=loss_of)
    means = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses = []
        steps_of.step(own[0], target=own[1], losses=losses)
        optimizer.step()
        whole = [loss.full_tensor() if isinstance(loss, DTensor) else loss for loss in losses]
        means.append(sum(t.item() for t in whole) / len(whole) if whole else None)
    state = {
        n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in stage.submod.state_dict().items()
    }
    return means, state, stage


def check(sizes, names, plan, rows=8, **options):
    base, (x, y) = transformer(), batch(rows)
    losses, expected = plain_training(base, x, y, 2)
    modules = split(base, sizes[0])

    def work(communicator):
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        means, state, _ = train(modules, mesh, plan(), x, y, **options)
        return means, state

    results = run_ranks(torch.tensor(sizes).prod().item(), work)
    for step, loss in enumerate(losses):
        found = [means[step] for means, _ in results if means[step] is not None]
        assert sum(found) / len(found) == pytest.approx(loss, rel=1e-5)
    seen = set()
    for _, state in results:
        seen |= set(state)
        assert_equal_states(state, {name: expected[name] for name in state})
    assert seen == set(expected)


@pytest.mark.parametrize(
    "plan", [tensor_plan, pytest.param(sequence_plan, marks=pytest.mark.slow)], ids=["tensor", "sequence"]
)
def test_pipeline_and_tensor_parallel(plan):
    check((2, 2), ("pp", "tp"), plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [tensor_plan, sequence_plan], ids=["tensor", "sequence"])
@pytest.mark.parametrize("schedule", [Schedule1F1B, ScheduleGPipe])
def test_pipeline_shards_and_tensor_parallel(plan, schedule):
    check((2, 2, 2), ("pp", "dp", "tp"), plan, schedule=schedule)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes, names",
    [
        ((2, 2), ("pp", "dp")),
        ((2, 2, 2), ("pp", "replicate", "dp")),
        ((2, 1, 2), ("pp", "dp", "tp")),
        ((1, 2, 2), ("pp", "dp", "tp")),
        ((2, 2, 1, 2), NAMES),
    ],
    ids=str,
)
def test_other_meshes(sizes, names):
    check(sizes, names, tensor_plan)


@pytest.mark.slow
def test_checkpoints_of_all_dimensions_load_into_the_plain_model(tmp_path):
    base, (x, y) = transformer(), batch(8)
    modules = split(base, 2)

    def work(communicator):
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        _, state, stage = train(modules, mesh, sequence_plan(), x, y)
        checkpoint.save({"model": stage.submod.state_dict()}, checkpoint_id=tmp_path)
        plain = transformer().state_dict()
        checkpoint.load({"model": plain}, checkpoint_id=tmp_path)
        assert_equal_states(state, {name: plain[name] for name in state}, 0, 0)
        other = init_device_mesh("cpu", (2, 4), mesh_dim_names=("pp", "dp"))
        again = stage_of(modules, other, {})
        own = again.submod.state_dict()
        checkpoint.load({"model": own}, checkpoint_id=tmp_path)
        assert_equal_states({n: t.full_tensor() for n, t in own.items()}, {n: plain[n] for n in own}, 0, 0)

    run_ranks(8, work)


PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_meshes import *
from tenon.distributed import get_communicator

sizes, names = eval(sys.argv[1])
base, (x, y) = transformer(), batch(8)
losses, expected = plain_training(base, x, y, 2)
mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
for plan in (tensor_plan, sequence_plan):
    means, state, _ = train(split(base, sizes[0]), mesh, plan(), x, y)
    assert_equal_states(state, {{name: expected[name] for name in state}})
if get_communicator().rank == 0:
    print("equal on", sizes)
"""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes, names", [((2, 2), ("pp", "tp")), ((2, 2, 2), ("pp", "dp", "tp"))], ids=["2x2", "2x2x2"]
)
def test_real_ranks(sizes, names):
    done = launch(torch.tensor(sizes).prod().item(), ["-c", PROGRAM, str((sizes, names))])

    assert f"equal on {sizes}" in done.stdout, done.stdout + done.stderr
