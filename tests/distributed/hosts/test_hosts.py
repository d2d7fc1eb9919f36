"""Jobs over two hosts, started as deploy/hosts describes: the host file is checked, models train, ranks die."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from happening import LIMIT, in_time

pytestmark = [pytest.mark.mpi, pytest.mark.manual]

FOLDER = Path(__file__).parents[3] / "deploy" / "hosts"
SUMS = """
import numpy as np
from tenon.distributed import get_communicator

communicator = get_communicator()
array = communicator.allocate(1 << 18, np.dtype(np.float32))
for _ in range(32):
    array[:] = communicator.rank
    communicator.all_reduce(array, out=array)
places = communicator.all_gather_bytes(f"{communicator.host}.{communicator.local_rank}".encode())
if communicator.rank == 0:
    print(array.min(), array.max(), *sorted(place.decode() for place in places))
"""


@pytest.fixture
def folder(tmp_path):
    """A working folder with the host file of the guide, for two processes a host."""
    (tmp_path / "hosts").write_text((FOLDER / "hosts").read_text().replace(":8", ":2"))
    return tmp_path


def test_each_host_of_the_file_is_reported_usable_or_with_what_it_lacks(hosts, folder):
    check = str(FOLDER / "check.sh")
    fit = hosts.run(check, "hosts", folder=folder)
    with (folder / "hosts").open("a") as file:
        file.write("node4:2\n")
    unfit = hosts.run(check, "hosts", folder=folder)

    assert fit.returncode == 0, fit.stdout + fit.stderr
    assert [line.partition(",")[0] for line in fit.stdout.splitlines()] == ["node1: tenon", "node2: tenon"]
    assert unfit.returncode == 1
    assert unfit.stdout.splitlines()[:2] == fit.stdout.splitlines()
    assert unfit.stdout.splitlines()[2].startswith("node4: cannot take part: ")


def test_each_host_sends_a_sum_once_however_many_ranks_it_has(hosts, folder):
    before = hosts.bytes_sent("node1")

    done = hosts.run("mpirun", "-f", "hosts", "-n", "4", "python", "-c", SUMS, folder=folder)

    assert done.stdout.split() == ["6.0", "6.0", "node1.0", "node1.1", "node2.0", "node2.1"], done.stderr
    assert 32 <= (hosts.bytes_sent("node1") - before) / (1 << 20) < 36


def test_digits_trains_with_two_ranks_on_each_of_two_hosts(hosts, folder):
    command = ["mpirun", "-f", "hosts", "-n", "4", "tenon", "train", "digits", "--run", "run"]
    done = hosts.run(*command, "--set", "epochs=3", folder=folder)

    assert done.returncode == 0, done.stderr
    assert "4 ranks on cpu" in done.stdout
    final = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert final["final"] and final["world_size"] == 4 and final["samples_seen"] == 3 * 1438
    assert final["test_accuracy"] > 0.95


def test_a_rank_that_is_killed_on_another_host_ends_the_job_on_all(hosts, folder):
    command = ["mpirun", "-f", "hosts", "-n", "4", "tenon", "train", "digits", "--run", "run"]
    job = hosts.start_on_first(*command, "--set", "epochs=100000", folder=folder)
    deadline = time.monotonic() + 100
    while not any(folder.glob("run/checkpoints/step-*")):
        assert job.poll() is None and time.monotonic() < deadline, job.communicate(timeout=60)
        time.sleep(0.05)

    os.kill(int(hosts.ranks("node2")[0]), signal.SIGKILL)
    start = time.monotonic()
    output, errors = job.communicate(timeout=60)
    took = time.monotonic() - start

    # 255 where the launcher finds its connections closed before it has read the status.
    assert job.returncode in (9, 255) and "EXIT CODE: 9" in output, output + errors
    assert in_time(took, LIMIT)
    assert hosts.ranks("node1") == hosts.ranks("node2") == []


def test_a_host_whose_ranks_are_slow_is_named(hosts, folder):
    slow = [part for rank in (2, 3) for part in ("--inject", f"rank={rank} step=50 slow=0.3")]
    command = ["mpirun", "-f", "hosts", "-n", "4", "tenon", "train", "digits", "--run", "run"]
    done = hosts.run(
        *command, "--set", "epochs=5", *slow, folder=folder, TENON_SLOW_RANKS_WINDOW="5"
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "tenon: node 1 (host node2, ranks 2, 3) is slow: the other 2 ranks wait for it" in done.stdout
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    (said,) = [line for line in lines if "slow_rank" in line]
    assert said["slow_node"] == 1 and said["slow_host"] == "node2" and said["slow_part"] == "compute"
