"""One rank fails: the job ends at once, with the right exit status and exactly one report."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import find_mpirun, launch

PROGRAM = str(Path(__file__).parent / "programs" / "failing.py")
LIMIT = 2.0

pytestmark = pytest.mark.mpi


def run(tmp_path, kind, size=4):
    clock = tmp_path / "clock"
    done = launch(size, [PROGRAM, kind, str(clock)], timeout=60)
    took = time.time() - float(clock.read_text()) if clock.exists() else None
    return done, took


def version_of_mpirun():
    done = subprocess.run([find_mpirun(), "--version"], capture_output=True, text=True)
    return done.stdout + done.stderr


def reports(done):
    return re.findall(r"^=== tenon: rank (\d) of \d.*===$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "status", "words"),
    [
        (
            "exception",
            1,
            ["step 17", "in module: features.3.conv", "ValueError: a bad value", "RuntimeError: wrapped"],
        ),
        ("thread", 1, ["in thread: loader", "ValueError: a bad value"]),
        ("exit", 3, ["called sys.exit(3)", "failing.py"]),
        ("exit_with_text", 1, ["no data in /data"]),
        ("interrupt", 130, ["was interrupted"]),
        ("abort", 1, ["ValueError: given up"]),
        ("early_import", 1, ["ModuleNotFoundError: No module named 'a_module_that_is_not_there'"]),
        ("early_exit", 3, ["called sys.exit(3)"]),
    ],
)
def test_a_failing_rank_ends_the_job_with_one_report(tmp_path, kind, status, words):
    done, took = run(tmp_path, kind)

    assert done.returncode == status, done.stderr
    assert reports(done) == ["3"], done.stderr
    assert took < LIMIT
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(("kind", "status"), [("kill", 9), ("terminate", 15)])
def test_a_killed_rank_ends_the_job(tmp_path, kind, status):
    done, took = run(tmp_path, kind)

    assert done.returncode in (status, 128 + status)  # MPICH's launcher and Open MPI's
    assert took < LIMIT


@pytest.mark.parametrize("kind", ["kill", "exception", "caught_exit"])
def test_no_shared_memory_file_is_left_behind(tmp_path, kind):
    done, _ = run(tmp_path, kind)

    segments = re.findall(r"(/dev/shm/mpich_shm_\w+) \(deleted\)", done.stdout)
    assert segments or "mpich_shm" not in done.stdout
    assert not any(Path(segment).exists() for segment in segments)


@pytest.mark.parametrize("kind", ["raised_exit", "raised_exit_deep", "early_raised_exit"])
def test_a_raised_exit_ends_the_job_at_once(tmp_path, kind):
    done, took = run(tmp_path, kind)

    assert done.returncode == 3, done.stderr
    assert reports(done) == ["3"], done.stderr
    assert took < LIMIT
    assert "raised SystemExit(3)" in done.stderr


def test_a_raised_exit_that_is_a_normal_end_ends_nothing(tmp_path):
    done, _ = run(tmp_path, "raised_normal_exit")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_raised_exit_that_is_caught_ends_nothing(tmp_path):
    done, _ = run(tmp_path, "caught_raised_exit")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_rank_that_leaves_quietly_is_named_by_those_that_wait_for_it(tmp_path):
    done, took = run(tmp_path, "skipped_collective")

    assert done.returncode != 0
    assert took < LIMIT
    assert len(reports(done)) == 1
    assert "rank 3 at the end of its program" in done.stderr
    assert "ranks 0, 1, 2 at all_reduce(sum) of float64[3] named 'fc.weight' at step 17" in done.stderr


def test_all_ranks_failing_together_print_one_report(tmp_path):
    done, took = run(tmp_path, "all")

    assert done.returncode == 1
    assert len(reports(done)) == 1
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert took < LIMIT


def test_ctrl_c_at_the_launcher_ends_ranks_that_wait_for_each_other(tmp_path):
    clock = tmp_path / "clock"
    command = [find_mpirun(), "-n", "3", sys.executable, PROGRAM, "sleep", str(clock)]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not clock.exists() and job.poll() is None:
        time.sleep(0.05)
    start = time.time()

    job.send_signal(signal.SIGINT)
    _, errors = job.communicate(timeout=30)

    assert time.time() - start < LIMIT
    if re.search("Open ?(MPI|RTE|PRTE)", version_of_mpirun()):
        assert job.returncode != 0  # its launcher reports by itself and kills the ranks before they can
        return
    assert job.returncode == 130
    assert len(re.findall(r"^=== tenon: rank \d of 3 .* was interrupted ===$", errors, re.MULTILINE)) == 1


def test_a_replaced_exception_hook_still_ends_the_job(tmp_path):
    done, took = run(tmp_path, "replaced_hook")

    assert done.returncode == 1
    assert reports(done) == ["3"]
    assert done.stderr.count("RuntimeError: wrapped") == 1
    assert took < LIMIT


def test_a_caught_exit_ends_nothing(tmp_path):
    done, _ = run(tmp_path, "caught_exit")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_an_exit_that_is_caught_and_kept_to_the_end_ends_nothing(tmp_path):
    done, _ = run(tmp_path, "kept_exit")

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_failing_worker_processes_of_a_rank_are_their_parents_business(tmp_path):
    done, _ = run(tmp_path, "failing_workers", size=2)

    assert done.returncode == 0, done.stderr
    assert reports(done) == []
    assert "ValueError: a bad value" in done.stderr  # multiprocessing's own traceback


def test_one_process_per_host_may_report(tmp_path):
    code = (
        "import sys, time\n"
        "from tenon.distributed import report\n"
        "report.WINNER_TIME = 0\n"
        "print(report.Claim('test-' + sys.argv[1]).take(), flush=True)\n"
        "time.sleep(float(sys.argv[2]))\n"
    )
    job = tmp_path.name + str(time.time())
    start = [sys.executable, "-c", code, job]
    first = subprocess.Popen([*start, "5"], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "True\n"
    assert subprocess.run([*start, "0"], capture_output=True, text=True).stdout == "False\n"
    first.kill()
    first.communicate()

    assert subprocess.run([*start, "0"], capture_output=True, text=True).stdout == "True\n"
