"""Checkpoints on real ranks: resumed on other numbers of them, killed at any moment, without room on the disk."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tenon.config import process_environment
from tenon.distributed import checkpoint as dcp
from tenon.testing.suites.communicator import OPEN_MPI, find_mpirun, launch

pytestmark = pytest.mark.mpi
FOLDER = Path(__file__).parent
RESUMING, LOOP = str(FOLDER / "resuming.py"), str(FOLDER / "saving_in_a_loop.py")


def result(size, *arguments):
    done = launch(size, [RESUMING, *map(str, arguments)])
    found = re.search(r"^loss (.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return [float(each) for each in found[1].split()]


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        pytest.param(("sharded", 2), [("data", 1)], marks=pytest.mark.slow),
        pytest.param(("sharded", 3), [("sharded", 2), ("hybrid", 2)], marks=pytest.mark.slow),
        pytest.param(("data", 2), [("hybrid", 4), ("zero", 3)], marks=pytest.mark.slow),
        pytest.param(("zero", 2), [("zero", 4), ("wrapper", 2)], marks=pytest.mark.slow),
        pytest.param(("hybrid", 4), [("data", 1), ("sharded", 4)], marks=pytest.mark.slow),
        pytest.param(("wrapper", 2), [("sharded", 4), ("zero", 2)], marks=pytest.mark.slow),
        pytest.param(("sharded", 6), [("hybrid", 6), ("wrapper", 3)], marks=pytest.mark.slow),
    ],
    ids=lambda case: case[0] if isinstance(case, tuple) else "",
)
def test_training_goes_on_in_another_layout(tmp_path, saved, loaded):
    expected = result(saved[1], "save", saved[0], tmp_path)

    for kind, size in loaded:
        assert result(size, "load", kind, tmp_path) == pytest.approx(expected, rel=2e-4), (kind, size)


def start(size, folder, way):
    return subprocess.Popen(
        [find_mpirun(), "-n", str(size), sys.executable, LOOP, str(folder), way],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**process_environment(), **OPEN_MPI},
        start_new_session=True,
        text=True,
    )


def children(pid):
    """The Python processes under ``pid``."""
    found = []
    with contextlib.suppress(
        FileNotFoundError, ProcessLookupError
    ):  # threads and processes that end meanwhile
        for each in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (each / "children").read_text().split():
                    words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                    if LOOP.encode() in words and b"mpi" not in words[0]:
                        found.append(int(child))
                    found += children(child)
    return found


def check(folder, last):
    """The checkpoint is whole, and not older than ``last``."""
    state = dcp.load_whole(checkpoint_id=folder)
    arrays = [np.asarray(t.raw) for t in (*state["weights"], state["plain"])]
    assert state["step"] >= last
    assert all((array == state["step"]).all() for array in arrays)
    return state["step"]


def kill_at_a_random_moment(folder, size, way, rng):
    """Kill all ranks, or one of them, some time after the first checkpoint; return the step of the last."""
    process = start(size, folder, way)
    last, lines = 0, []
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("complete"):
                last = int(line.split()[1])
                break
        assert last, "".join(lines)
        time.sleep(rng.uniform(0, 0.5))
        ranks = children(process.pid)
        for pid in ranks if rng.random() < 0.5 else rng.sample(ranks, 1):
            os.kill(pid, signal.SIGKILL)
        rest = process.communicate(timeout=60)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode != 0, rest
    complete = [int(number) for number in re.findall(r"^complete (\d+)", rest, re.M)]
    return check(folder, max([last, *complete]))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["save", "async"])
def test_kills_lose_nothing(tmp_path, way):
    rng = random.Random(way)
    steps = [kill_at_a_random_moment(tmp_path, rng.choice((2, 3)), way, rng) for _ in range(2)]

    assert steps == sorted(steps)
    assert len(list(tmp_path.iterdir())) < 40


@pytest.mark.manual
@pytest.mark.parametrize("way", ["save", "async", "background"])
@pytest.mark.parametrize("size", [2, 4])
def test_many_kills_lose_nothing(tmp_path, way, size):
    rng = random.Random(f"{way}{size}")
    for number in range(int(os.environ.get("TENON_KILLS", "25"))):
        kill_at_a_random_moment(tmp_path, size, way, rng)
        print("kill", number, flush=True)


FULL = """
import resource, sys
import tenon as torch
import tenon.distributed as dist
from tenon.distributed import checkpoint as dcp

folder = sys.argv[1]
state = {"first": torch.ones(500), "step": 1}
dcp.save(state, checkpoint_id=folder)
if dist.get_rank() == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
big = {"first": torch.full((500,), 2.0), "big": torch.zeros(50_000), "other": torch.zeros(50_000), "step": 2}
saved = dcp.async_save(big, checkpoint_id=folder)
try:
    saved.result()
except dcp.CheckpointException as error:
    assert list(error.failures) == [1] and "MB are free" in str(error), error
    print("refused on", dist.get_rank(), flush=True)
"""


@pytest.mark.slow
def test_a_rank_without_room_fails_the_save_on_all(tmp_path):
    done = launch(2, ["-W", "ignore", "-c", FULL, str(tmp_path)])

    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"refused on (\d)", done.stdout)) == ["0", "1"]
    state = dcp.load_whole(checkpoint_id=tmp_path)
    assert state["step"] == 1 and state["first"].tolist() == [1.0] * 500


ENDING = """
import sys
import tenon as torch
import tenon.distributed as dist
from tenon.distributed import checkpoint as dcp

dcp.async_save({"w": torch.full((300_000,), 5.0), "step": 5}, checkpoint_id=sys.argv[1])
"""


@pytest.mark.slow
def test_a_program_ends_when_its_checkpoint_is_complete(tmp_path):
    done = launch(3, ["-c", ENDING, str(tmp_path)])

    assert done.returncode == 0, done.stderr
    assert dcp.load_whole("step", checkpoint_id=tmp_path) == {"step": 5}


DIFFERENT = """
import sys
import tenon as torch
import tenon.distributed as dist
from tenon.distributed import checkpoint as dcp

if dist.get_rank() == 1:
    dist.barrier()
else:
    dcp.async_save({"step": 5}, checkpoint_id=sys.argv[1])
"""


@pytest.mark.slow
def test_a_rank_that_does_not_save_is_named(tmp_path):
    done = launch(2, ["-c", DIFFERENT, str(tmp_path)])

    assert done.returncode != 0
    assert "CollectiveMismatchError" in done.stderr and "checkpoint: plan" in done.stderr, done.stderr


MEMORY = """
import sys, tracemalloc
import tenon as torch
import tenon.distributed as dist
from tenon.distributed import checkpoint as dcp
from tenon.distributed.tensor import Shard, zeros

mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
MB = 1 << 18
state = {f"w{n}": zeros((8 * MB,), device_mesh=mesh, placements=[Shard(0)]) + n for n in range(8)}
tracemalloc.start()
dcp.save(state, checkpoint_id=sys.argv[1])
saving = tracemalloc.get_traced_memory()[1]
tracemalloc.reset_peak()
for value in state.values():
    value.to_local().zero_()
dcp.load(state, checkpoint_id=sys.argv[1])
loading = tracemalloc.get_traced_memory()[1]
assert all((value.to_local() == n).all() for n, value in enumerate(state.values()))
print("peaks", saving >> 20, loading >> 20, flush=True)
"""


@pytest.mark.slow
def test_no_rank_has_the_whole_in_memory(tmp_path):
    """Of 64 MB on 4 ranks each has 16 MB, in chunks of 2 MB: writing copies nothing, reading takes a few chunks."""
    done = launch(4, ["-c", MEMORY, str(tmp_path)])

    assert done.returncode == 0, done.stderr
    peaks = [[*map(int, found)] for found in re.findall(r"^peaks (\d+) (\d+)", done.stdout, re.M)]
    assert (
        len(peaks) == 4
        and max(saving for saving, _ in peaks) <= 3
        and max(loading for _, loading in peaks) <= 9
    )
