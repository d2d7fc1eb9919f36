"""A host is cut off: the ranks of the other one name those they wait for, and both hosts' ranks end."""

import time

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.manual]

LIMIT = 10.0
"""Longer than rank 0 alone takes to read the data, also on a busy machine."""
MARGIN = 3.0
"""What may pass besides: the watchdog looks 20 times per limit, and the launcher has to end."""
PROGRAM = """
import pathlib, sys, time

import numpy as np

import tenon.distributed as dist

communicator = dist.get_communicator()
communicator.step = 9
for step in range(10_000):
    communicator.all_reduce(np.ones(1000), name="fc.weight")
    time.sleep(0.01)
    if step == 150 and communicator.rank == 0:
        pathlib.Path(sys.argv[1]).touch()
"""


def cut_when(hosts, condition, job):
    """Disconnect ``node2`` when ``condition()`` holds; return the report, and when each host's ranks had ended."""
    deadline = time.monotonic() + 100
    while not condition():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(hosts.ranks("node1")) == len(hosts.ranks("node2")) == 2
    hosts.cut("node2")
    start = time.monotonic()
    gone = {}
    while len(gone) < 2 and time.monotonic() < start + LIMIT + 20:
        for name in {"node1", "node2"} - set(gone):
            if not hosts.ranks(name):
                gone[name] = time.monotonic() - start
        time.sleep(0.05)
    _, errors = job.communicate(timeout=60)
    return errors, gone, time.monotonic() - start


def test_a_host_that_is_cut_off_is_named_and_the_job_ends_in_time_on_both_hosts(hosts, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "hosts").write_text("node1:2\nnode2:2\n")
    running = tmp_path / "running"
    command = ["mpirun", "-f", "hosts", "-n", "4", "python", "program.py", str(running)]
    job = hosts.start_on_first(*command, folder=tmp_path, TENON_WATCHDOG=str(LIMIT))

    errors, gone, took = cut_when(hosts, running.exists, job)

    assert job.returncode == 124, errors
    assert took < LIMIT + MARGIN
    assert set(gone) == {"node1", "node2"} and max(gone.values()) < LIMIT + MARGIN, gone
    assert errors.count("=== tenon: rank") == 1, errors
    assert "on host node1, step 9 has waited 10" in errors and "s for ranks 2, 3 ===" in errors
    assert errors.count("sent its last heartbeat ") == 2
    assert errors.count("all_reduce(sum) of float64[1000] named 'fc.weight' at step 9") == 3


def test_a_cable_pulled_in_the_middle_of_training_ends_the_run_which_goes_on_on_the_other_host(
    hosts, tmp_path
):
    (tmp_path / "hosts").write_text("node1:2\nnode2:2\n")
    command = ["mpirun", "-f", "hosts", "-n", "4", "tenon", "train", "digits", "--run", "run"]
    settings = ["--set", "epochs=1000", "--set", "checkpoint.steps=10", "--set", "log.every=1"]
    job = hosts.start_on_first(*command, *settings, folder=tmp_path, TENON_WATCHDOG=str(LIMIT))

    errors, gone, took = cut_when(hosts, lambda: any(tmp_path.glob("run/checkpoints/step-*")), job)

    assert job.returncode == 124, errors
    assert took < LIMIT + MARGIN
    assert set(gone) == {"node1", "node2"} and max(gone.values()) < LIMIT + MARGIN, gone
    assert "on host node1, step " in errors and "for ranks 2, 3 ===" in errors
    assert "at all_reduce(" in errors

    (tmp_path / "hosts").write_text("node1:2\n")
    again = ["mpirun", "-f", "hosts", "-n", "2", "tenon", "train", "--resume", "run", "--set", "epochs=1"]
    done = hosts.run(*again, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "resumes after step " in done.stdout and "2 ranks on cpu" in done.stdout
