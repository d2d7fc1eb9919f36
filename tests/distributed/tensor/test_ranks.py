"""Tensor-parallel training on real ranks: equal to that of the plain model, dropout included, and a dead rank."""

from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

pytestmark = pytest.mark.mpi
FOLDER = str(Path(__file__).parent)

TRAINING = f"""
import copy, sys
sys.path.insert(0, {FOLDER!r})
from transformer import *
from tenon.distributed import get_communicator, init_device_mesh
from tenon.distributed.fsdp import fully_shard
from tenon.distributed.tensor.parallel import parallelize_module

communicator = get_communicator()
sizes = eval(sys.argv[1])
names = ("replicate", "shard", "tensor")[-len(sizes):]
mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
for plan in (tensor_plan, sequence_plan):
    draws = len(sizes) == 1  # ranks with other rows would draw other numbers than the plain model
    base, data = transformer(dropout=0.5 if draws else 0.0), batch()
    losses, state = trained(base, *data)
    model = parallelize_module(copy.deepcopy(base), mesh["tensor"], plan())
    if len(sizes) > 1:
        for block in model.blocks:
            fully_shard(block, mesh=mesh[names[:-1]])
        fully_shard(model, mesh=mesh[names[:-1]])
    count = communicator.size // sizes[-1]
    own = [t.chunk(count)[communicator.rank // sizes[-1]] for t in data]
    torch.manual_seed(7)
    found = train(model, *own)
    for mean, loss in zip(communicator.all_gather(torch.tensor(found).numpy()).wait().mean(0), losses):
        assert abs(mean - loss) < 1e-5 * loss, (mean, loss)
    assert_equal_states(whole(model), state)
if communicator.rank == 0:
    print("equal on", sizes)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2,), (2, 2), (1, 2), (2, 2, 2), (4, 2)], ids=str)
def test_training_is_that_of_the_plain_model(sizes):
    ranks = 1
    for size in sizes:
        ranks *= size
    done = launch(ranks, ["-c", TRAINING, str(sizes)])

    assert f"equal on {sizes}" in done.stdout, done.stdout + done.stderr


DYING = f"""
import os, signal, sys
sys.path.insert(0, {FOLDER!r})
from transformer import *
from tenon.distributed import get_communicator, init_device_mesh
from tenon.distributed.tensor.parallel import parallelize_module

communicator = get_communicator()
model = parallelize_module(transformer(), init_device_mesh("cpu", (2,)), tensor_plan())
if communicator.rank == 1:
    model.blocks[1].register_forward_pre_hook(lambda m, inputs: os.kill(os.getpid(), signal.SIGKILL))
train(model, *batch())
"""


@pytest.mark.slow
def test_a_rank_that_is_killed_between_layers_ends_the_job():
    done = launch(2, ["-c", DYING])

    assert done.returncode != 0
    assert "rank 1" in done.stderr and "SIGKILL" in done.stderr, done.stderr
