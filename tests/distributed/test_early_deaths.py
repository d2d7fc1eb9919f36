"""Ranks that die or are stopped before MPI starts, or after the end of their program: one report, by name."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenon.distributed.processes import process_state
from tenon.testing.suites.communicator import is_mpich, launch

PROGRAM = str(Path(__file__).parent / "programs" / "early_deaths.py")
HOST = os.uname().nodename

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def run(folder, how, rank, **variables):
    return launch(3, [PROGRAM, how, rank], READY=str(folder), timeout=120, **variables)


def headlines(done):
    return re.findall(r"^=== tenon: (rank \d of \d on host .*) ===$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("rank", ["0", "2"])
@pytest.mark.parametrize(
    ("how", "name"), [("kill", "SIGKILL"), ("terminate", "SIGTERM"), ("crash", "SIGSEGV")]
)
def test_a_rank_that_a_signal_kills_before_mpi_starts_is_named(tmp_path, how, name, rank):
    done = run(tmp_path, how, rank)

    assert done.returncode != 0
    assert headlines(done) == [f"rank {rank} of 3 on host {HOST} was killed by {name}"], done.stderr
    assert "MPI had not started yet" in done.stderr


@pytest.mark.parametrize(
    ("how", "reason", "status"),
    [("exit", "called os._exit(3)", 3), ("raise", "failed with ValueError", 1)],
)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_that_fails_before_mpi_starts_is_reported_once(tmp_path, how, reason, status, rank):
    done = run(tmp_path, how, rank)

    assert done.returncode == status
    assert headlines(done) == [f"rank {rank} of 3 on host {HOST} {reason}"], done.stderr
    assert "early_deaths.py" in done.stderr


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_that_is_stopped_before_mpi_starts_is_waited_for_as_long_as_the_watchdog_says(tmp_path, rank):
    began = time.monotonic()

    done = run(tmp_path, "stop", rank, TENON_WATCHDOG="3")

    assert 10 < time.monotonic() - began < 100
    assert done.returncode == 124 if is_mpich() else done.returncode != 0
    (headline,) = headlines(done)
    assert re.fullmatch(
        rf"rank [0-2] of 3 on host {HOST} has waited 10 s for the start of MPI on rank {rank}", headline
    )
    assert f"rank {rank} (process" in done.stderr and "it is stopped (SIGSTOP)" in done.stderr


def test_a_rank_that_is_stopped_at_the_end_is_waited_for_as_long_as_the_watchdog_says(tmp_path):
    done = run(tmp_path, "stop_at_the_end", "1", TENON_WATCHDOG="3")

    assert done.returncode == 124 or not is_mpich()
    (headline,) = headlines(done)
    assert headline.endswith("has ended its program, and has no sign of life of rank 1"), done.stderr
    assert "it is stopped (SIGSTOP)" in done.stderr


def test_a_rank_that_is_stopped_when_all_programs_have_ended_ends_the_job(tmp_path):
    done = run(tmp_path, "stop_in_finalize", "1", TENON_WATCHDOG="3")

    assert done.returncode != 0
    expected = f"rank 1 of 3 on host {HOST} is stopped (SIGSTOP) for 3 s, after the end of its program"
    assert headlines(done) == [expected], done.stderr


@pytest.mark.parametrize("how", ["alone", "nothing"])
def test_programs_that_end_are_no_deaths_and_leave_no_process(tmp_path, how):
    done = run(tmp_path, how, "0")

    assert done.returncode == 0 and done.stderr == ""
    deadline = time.monotonic() + 60
    while (found := with_variable(f"READY={tmp_path}")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not found


def with_variable(entry):
    """The processes with ``entry`` in their environment."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            if entry.encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:
            continue
    return found


def test_children_are_found_by_the_number_in_their_environment():
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, "PMI_RANK": "7"}
    ) as child:
        while process_state.number_in(child.pid, process_state.RANK_VARIABLES) is None:
            time.sleep(0.005)  # it has not replaced its program yet
        assert child.pid in process_state.children_of(os.getpid())
        assert process_state.number_in(child.pid, process_state.RANK_VARIABLES) == 7
        child.communicate(b"\n")
