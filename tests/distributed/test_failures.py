"""One rank fails in a way that is easy to miss: the job ends at once even so, with exactly one report.

The ordinary ways are rows of the catalogue (``what_happens.py``).
"""

import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

from happening import LIMIT, soon

PROGRAM = str(Path(__file__).parent / "programs" / "failing.py")

pytestmark = pytest.mark.mpi


def run(tmp_path, kind, size=2):
    def failing(folder):
        clock = folder / "clock"
        done = launch(size, [PROGRAM, kind], CLOCK=str(clock))
        return done, time.time() - float(clock.read_text()) if clock.exists() else 0.0

    return soon(failing, LIMIT, tmp_path)


def reports(done):
    return re.findall(r"^=== tenon: rank (\d) of \d.*===$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        pytest.param("abort", 1, "ValueError: given up", marks=pytest.mark.slow),
        ("early_exit", 3, "called sys.exit(3)"),
        pytest.param("early_raised_exit", 3, "raised SystemExit(3)", marks=pytest.mark.slow),
        pytest.param("raised_exit_deep", 3, "raised SystemExit(3)", marks=pytest.mark.slow),
        pytest.param("replaced_hook", 1, "RuntimeError: wrapped", marks=pytest.mark.slow),
    ],
)
def test_a_failing_rank_ends_the_job_with_one_report(tmp_path, kind, status, words):
    done = run(tmp_path, kind)

    assert done.returncode == status, done.stderr
    assert reports(done) == ["1"], done.stderr
    assert done.stderr.count(words) == 1


def test_a_report_is_read_before_the_job_is_ended():
    program = (
        "from tenon.distributed import failure; from tenon.distributed.processes.launcher import RankFacts\n"
        "failure.READING_TIME = 60\n"
        "failure.Guard(RankFacts('none', 1, 2, 1, 2), {}).fail('the report', 3)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        assert select.select([process.stderr], [], [], 60)[0]  # it is written
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert process.stderr.read(10) == b"the report"
        assert process.wait(40) == 3


@pytest.mark.parametrize("how", ["fails", "ends"])
def test_a_rank_whose_launcher_has_ended_leaves_at_once(how):
    """The monitor has reported that, and holds the claim; MPI's last calls would wait for the launcher."""
    program = (
        "import os, sys, time; from tenon.distributed import failure\n"
        "from tenon.distributed.communication.local import LocalCommunicator\n"
        "from tenon.distributed.processes.heartbeat_table import HeartbeatTable, table_bytes\n"
        "from tenon.distributed.processes.launcher import RankFacts\n"
        "from tenon.distributed.processes.monitor_connection import MonitorConnection\n"
        "class Communicator(LocalCommunicator):\n"
        "    def kill(self, code): time.sleep(600)\n"
        "import atexit; atexit.register(time.sleep, 600)\n"  # as late as MPI_Finalize
        "guard = failure.Guard(RankFacts('none', 0, 2, 0, 2), {})\n"
        "guard.communicator = Communicator()\n"
        "guard.monitor = MonitorConnection(guard.communicator, HeartbeatTable(bytearray(table_bytes(1)), 1, [0]))\n"
        "guard.monitor.table.abandoned = True\n"
        "print('done')\n"
        "guard.fail('the report', 3) if sys.argv[1] == 'fails' else guard._on_exit()"
    )

    done = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, timeout=120)

    assert done.returncode == (3 if how == "fails" else 143)
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["raised_normal_exit", pytest.param("kept_exit", marks=pytest.mark.slow)])
def test_an_exit_that_is_not_a_failure_ends_nothing(tmp_path, kind):
    done = run(tmp_path, kind)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_all_ranks_failing_together_print_one_report(tmp_path):
    done = run(tmp_path, "all", size=4)

    assert done.returncode == 1
    assert len(reports(done)) == 1
    assert done.stderr.count("Traceback (most recent call last)") == 1


@pytest.mark.slow
def test_failing_worker_processes_of_a_rank_are_their_parents_business(tmp_path):
    done = run(tmp_path, "failing_workers")

    assert done.returncode == 0, done.stderr
    assert reports(done) == []
    assert "ValueError: a bad value" in done.stderr  # multiprocessing's own traceback


@pytest.mark.slow
def test_one_process_per_host_may_report_and_the_others_wait_until_it_is_gone(tmp_path):
    code = (
        "import sys, time\n"
        "from tenon.distributed import report\n"
        "report.REPORTING_TIME, report.WINNER_TIME = 300, 0\n"
        "print('asks', flush=True)\n"
        "print(report.Claim('test-' + sys.argv[1]).take(), flush=True)\n"
        "time.sleep(float(sys.argv[2]))\n"
    )
    job = tmp_path.name + str(time.time())
    start = [sys.executable, "-c", code, job]
    first = subprocess.Popen([*start, "600"], stdout=subprocess.PIPE, text=True)
    assert (first.stdout.readline(), first.stdout.readline()) == ("asks\n", "True\n")
    second = subprocess.Popen([*start, "0"], stdout=subprocess.PIPE, text=True)
    assert second.stdout.readline() == "asks\n"
    assert select.select([second.stdout], [], [], 0.3)[0] == []
    first.kill()
    first.communicate()

    assert second.communicate(timeout=200)[0] == "False\n"
    assert subprocess.run([*start, "0"], capture_output=True, text=True).stdout == "asks\nTrue\n"
