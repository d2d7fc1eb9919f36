"""Ranks that wait for a hanging one: the watchdog names it, and ends the job within the time limit."""

import math
import re
import sys
import time
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

from happening import held_up, soon

PROGRAM = str(Path(__file__).parent / "programs" / "stalling.py")
LIMIT = 1.0

pytestmark = pytest.mark.mpi


def run(tmp_path, kind, hosts, limit=LIMIT, longest=LIMIT + 2, size=4):
    variables = {"TENON_WATCHDOG": "0" if hosts == "several" else str(limit)}
    if hosts == "messages":
        variables["TENON_COMMUNICATOR"] = "mpi-messages"

    def stalling(folder):
        clock = folder / "clock"
        done = launch(size, [PROGRAM, kind, hosts, str(limit)], CLOCK=str(clock), **variables)
        seconds = time.time() - float(clock.read_text())
        return (done, seconds), math.inf if held_up(done.stderr) else seconds

    return soon(stalling, longest, tmp_path)


# One host is in the catalogue (test_what_happens.py).
@pytest.mark.slow
@pytest.mark.parametrize("hosts", ["several", "messages"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sleep", ["rank 3 (process ", "is computing", "in sleep_deep_inside", "stalling.py:"]),
        ("stop", ["rank 3 (process ", "last heartbeat"]),
    ],
)
def test_a_rank_that_stalls_is_named_with_its_last_collective(tmp_path, kind, words, hosts):
    done, took = run(tmp_path, kind, hosts)

    assert done.returncode == 124, done.stderr
    headlines = re.findall(r"^=== tenon: rank (\d) of 4 .*===$", done.stderr, re.MULTILINE)
    assert len(headlines) == 1 and headlines != ["3"], done.stderr
    waited = re.search(r"step 17 has waited ([\d.]+) s for rank 3 ===", done.stderr)
    assert waited and LIMIT <= float(waited[1]) < took, done.stderr
    assert "ranks 0, 1, 2 at all_reduce(sum) of float64[3] named 'fc.bias' at step 17" in done.stderr
    assert "call 3, all_reduce(sum) of float64[3] named 'fc.weight' at step 17" in done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    if kind == "stop" and hosts != "several":
        assert "it is stopped (SIGSTOP)" in done.stderr
    assert took > LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "hosts", "limit"),
    # A rank is late by a second, and ranks may wait for a core on a busy machine besides.
    [
        ("late", "one", 6.0),
        ("late", "several", 6.0),
        ("slow_end", "one", LIMIT),
    ],
)
def test_a_rank_that_is_late_by_less_ends_nothing(tmp_path, kind, hosts, limit):
    done, _ = run(tmp_path, kind, hosts, limit, longest=60.0)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.slow
def test_a_time_that_is_not_a_number_is_refused():
    done = launch(2, ["-c", "import tenon.distributed as d; d.get_rank()"], TENON_WATCHDOG="soon")

    assert done.returncode == 1
    assert "TENON_WATCHDOG='soon' is not a number of seconds" in done.stderr
