"""Pipelines on real ranks: training over every engine, data parallel stages, deaths."""

import re
import sys
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.mpi
FOLDER = str(Path(__file__).parent)

TRAINING = """
import sys
sys.path.insert(0, FOLDER)
from stages import *
from tenon.distributed import get_communicator, init_device_mesh
from tenon.distributed.fsdp import fully_shard

communicator = get_communicator()
size = communicator.size
width, rows = int(sys.argv[1]), 32
for cls in [Schedule1F1B, MULTI[2]] if width == 16 and size == 2 else SINGLE + MULTI:
    count = size if cls in SINGLE else 2 * size
    modules = layers(count, width)
    x, y = batch(rows, width)
    output, loss, wanted = plain(modules, x, y)
    stages = local_stages(communicator, modules, size, cls=cls)
    schedule = cls(stages[0] if cls in SINGLE else stages, 8, loss_fn=mse)
    for _ in range(2):
        losses = []
        for stage in stages:
            stage.submod.zero_grad()
        found = schedule.step(x, target=y, losses=losses)
    for stage in stages:
        for name, p in stage.submod.named_parameters():
            value = wanted[f"{stage.stage_index}.{name}"]
            assert (p.grad - value).abs().max() <= 1e-4 * value.abs().max(), (cls, name)
    evaluated = schedule.eval(x, target=y)
    if any(stage.is_last for stage in stages):
        torch.testing.assert_close(found, output.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(evaluated, output.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.stack(losses).mean(), loss, rtol=1e-4, atol=1e-5)

if size == 4:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    modules = layers(2, width)
    stage_index, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
    x, y = batch(rows, width)
    wanted = plain(modules, x, y)[2]
    part = slice(16 * replica, 16 * replica + 16)
    for wrap in (lambda m: DDP(m, process_group=mesh.get_group("dp")), lambda m: fully_shard(m, mesh=mesh["dp"])):
        module = wrap(copy.deepcopy(modules[stage_index]))
        schedule = Schedule1F1B(PipelineStage(module, stage_index, 2, "cpu", group=mesh.get_group("pp")), 4, loss_fn=mse)
        schedule.step(x[part], target=y[part])
        for name, p in module.named_parameters():
            grad = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
            value = wanted[f"{stage_index}.{name.removeprefix('module.')}"]
            assert (grad - value).abs().max() <= 1e-4 * value.abs().max(), name
print("equal on", communicator.rank, communicator.name)
""".replace("FOLDER", repr(FOLDER)).replace(
    "from tenon.distributed.fsdp import fully_shard",
    "from tenon.distributed.fsdp import fully_shard\n"
    "from tenon.distributed.replicas.data_parallel import DistributedDataParallel as DDP",
)


@pytest.mark.parametrize(
    ("size", "communicator", "width"),
    [
        (2, "mpi", 16),
        pytest.param(2, "mpi", 20, marks=pytest.mark.slow),
        pytest.param(2, "mpi-messages", 1200, marks=pytest.mark.slow),
        pytest.param(2, "mpi-shared", 1200, marks=pytest.mark.slow),
        pytest.param(4, "mpi", 300, marks=pytest.mark.slow),
        pytest.param(3, "mpi-messages", 16, marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_plain_modules(size, communicator, width):
    done = launch(size, ["-c", TRAINING, str(width)], TENON_COMMUNICATOR=communicator)

    assert done.stdout.count("equal on") == size, done.stdout + done.stderr


@pytest.mark.slow
def test_stages_on_several_nodes():
    done = launch(4, ["-c", TRAINING, "300"], TENON_COMMUNICATOR="mpi", TENON_MPI_NODES="2")

    assert done.stdout.count("equal on") == 4, done.stdout + done.stderr


ENDS = """
import os, signal, sys
sys.path.insert(0, FOLDER)
from stages import *
from tenon.distributed import get_communicator

communicator = get_communicator()


class Ending(nn.Linear):
    calls = 0

    def forward(self, x):
        Ending.calls += 1
        if communicator.rank == 1 and Ending.calls == 6:
            if sys.argv[1] == "raise":
                raise ValueError("boom")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


stage = PipelineStage(Ending(5, 5), communicator.rank, 3, "cpu")
schedule = Schedule1F1B(stage, 4, loss_fn=mse)
for step in range(3):
    schedule.step(batch()[0], target=batch()[1])
print("survived")
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "report"),
    [("raise", "in the forward pass of stage 1 of 3, Ending, for microbatch 1"), ("kill", "SIGKILL")],
)
def test_a_rank_that_ends_in_the_middle_of_a_step_ends_the_job_with_one_report(how, report):
    done = launch(3, ["-c", ENDS, how])

    reports = re.findall(r"^=== tenon: (rank \d of \d on host .*) ===$", done.stderr, re.MULTILINE)
    assert len(reports) == 1 and "rank 1 of 3" in reports[0], done.stderr
    assert report in done.stderr
    assert done.returncode != 0 and "survived" not in done.stdout


DIFFERENT = """
import sys
sys.path.insert(0, FOLDER)
from stages import *
from tenon.distributed import get_communicator

communicator = get_communicator()
stage = PipelineStage(nn.Linear(5, 5), communicator.rank, 2, "cpu")
schedule = Schedule1F1B(stage, 4, loss_fn=mse)
schedule.step(batch()[0], target=batch()[1])
(schedule.eval if communicator.rank else schedule.step)(batch()[0], target=batch()[1])
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.slow
def test_ranks_in_different_steps_are_told():
    done = launch(2, ["-c", DIFFERENT])

    assert "CollectiveMismatchError" in done.stderr and done.returncode != 0, done.stderr
    assert "training step 2" in done.stderr and "forward step 2" in done.stderr, done.stderr


COMPILED = """
import sys, warnings
sys.path.insert(0, FOLDER)
from stages import *
from tenon.distributed import get_communicator

communicator = get_communicator()
modules = layers(2)
x, y = batch()
wanted = plain(modules, x, y)[2]
(stage,) = local_stages(communicator, modules, 2)
schedule = Schedule1F1B(stage, 4, loss_fn=mse)
step = torch.compile(lambda x, y: schedule.step(x, target=y))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(4):
        stage.submod.zero_grad()
        step(x, y)
for name, p in stage.submod.named_parameters():
    torch.testing.assert_close(p.grad, wanted[f"{stage.stage_index}.{name}"])
assert any("tenon.distributed.pipelining cannot be recorded" in str(w.message) for w in caught), caught
print("equal on", communicator.rank)
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.slow
def test_steps_in_compiled_functions_run_eagerly():
    done = launch(2, ["-c", COMPILED])

    assert done.stdout.count("equal on") == 2, done.stdout + done.stderr
