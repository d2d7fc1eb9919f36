"""Ranks in a container whose ``/dev/shm`` is small: nothing writes beyond it, which would kill the process."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
import tenon as torch, tenon.distributed as dist
from tenon import nn
from tenon.distributed.fsdp import fully_shard
from tenon.nn.parallel import DistributedDataParallel

communicator = dist.get_communicator()
torch.manual_seed(0)
sharded = nn.Sequential(*(nn.Linear(700, 700, bias=False) for _ in range(4)))
replicated = nn.Sequential(*(nn.Linear(700, 700, bias=False) for _ in range(4)))
replicated.load_state_dict(sharded.state_dict())
for layer in sharded:
    fully_shard(layer, reshard_after_forward=True)
models = fully_shard(sharded), DistributedDataParallel(replicated)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in models]
x = torch.ones(4, 700) * (communicator.rank + 1)
for _ in range(4):
    losses = []
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) <= 1e-5 * losses[1], losses
windows = communicator._windows
places = communicator._memory is not None, bool(windows._common), bool(windows._windows)
print(communicator.rank, *map(int, places), flush=True)
"""


def run(size, program=PROGRAM):
    """Two ranks with ``/dev/shm`` of ``size``."""
    inside = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec mpirun -n 2 "$0" -c "$1"'
    return subprocess.run(
        ["unshare", "-m", "bash", "-c", inside, sys.executable, program],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip


def may_mount():
    """Whether this account may mount file systems in a namespace of its own."""
    tried = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    return shutil.which("unshare") is not None and subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/shm is Linux's")
@pytest.mark.parametrize(
    ("size", "shares", "common", "windows"),
    [("10m", 0, 0, 0), ("26m", 1, 1, 0), ("256m", 1, 1, 1)],
    ids=["too small", "small", "large enough"],
)
def test_ranks_take_no_more_shared_memory_than_there_is(size, shares, common, windows):
    if not may_mount():
        pytest.skip("mounting a small /dev/shm needs the right to")
    done = run(size)

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == [f"{rank} {shares} {common} {windows}" for rank in (0, 1)]
    assert ("docker run --shm-size" in done.stderr) == (not shares), done.stderr


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/shm is Linux's")
@pytest.mark.parametrize("starts", [True, False], ids=["after MPI's start", "before"])
def test_the_report_of_a_bus_error_names_a_small_shared_memory(starts):
    if not may_mount():
        pytest.skip("mounting a small /dev/shm needs the right to")
    begin = "import os, time, tenon.distributed as d\n" + "d.get_communicator().barrier()\n" * starts
    done = run(
        "40m", begin + "time.sleep(1)\nos.kill(os.getpid(), 7) if d.get_rank() == 1 else time.sleep(9)"
    )

    told = "was killed by SIGBUS, perhaps as /dev/shm has only 40 MB (a container gets a larger one by"
    assert told in done.stderr, done.stderr
