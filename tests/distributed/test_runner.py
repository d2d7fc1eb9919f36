"""A script that fails before it knows tenon ends the job all the same, with the runner and without it."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import find_mpirun, launch

pytestmark = pytest.mark.mpi

SCRIPT = """
import os, signal, sys, time

rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
if rank == int(sys.argv[4]):
    time.sleep(float(sys.argv[3]))
    with open(sys.argv[2], "w") as file:
        file.write(repr(time.time()))
    match sys.argv[1]:
        case "exception":
            raise ValueError("a bad value")
        case "import":
            import a_module_that_is_not_there
        case "exit":
            sys.exit(3)
        case "raised_exit":
            raise SystemExit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)

from tenon.distributed import barrier

barrier()
"""


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("exception", 1, ["failed with ValueError", "a bad value"]),
        ("import", 1, ["No module named 'a_module_that_is_not_there'"]),
        ("exit", 3, ["called sys.exit(3)"]),
        ("raised_exit", 3, ["SystemExit(3)"]),
        ("kill", 9, []),
    ],
)
def test_a_script_that_fails_early_ends_the_job(tmp_path, how, status, words):
    script, clock = tmp_path / "script.py", tmp_path / "clock"
    script.write_text(SCRIPT)

    done = launch(4, ["-m", "tenon.distributed", str(script), how, str(clock), "0.3", "3"], timeout=60)

    assert time.time() - float(clock.read_text()) < 2
    assert done.returncode in (status, 128 + status), done.stderr
    reports = re.findall(r"^=== tenon: rank (\d) of 4 on host .*===$", done.stderr, re.MULTILINE)
    assert reports == ([] if how == "kill" else ["3"]), done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("how", "rank", "words"), [("import", "3", "a_module_that_is_not_there"), ("raised_exit", "0", "")]
)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells which processes live")
def test_without_the_runner_the_others_notice_that_it_never_came(tmp_path, how, rank, words):
    if not is_mpich():
        pytest.skip("Open MPI's launcher ends the job by itself")
    script, clock = tmp_path / "script.py", tmp_path / "clock"
    script.write_text(SCRIPT)

    # Late enough for the others to wait by then.
    done = launch(4, [str(script), how, str(clock), "2.5", rank], timeout=60)

    assert time.time() - float(clock.read_text()) < 2
    assert done.returncode == 1, done.stderr
    headlines = re.findall(r"^=== tenon: rank \d of 4 on host .*===$", done.stderr, re.MULTILINE)
    assert len(headlines) == 1, done.stderr
    assert f"cannot start: rank {rank} ended before `import tenon`" in headlines[0]
    assert words in done.stderr


def is_mpich():
    done = subprocess.run([find_mpirun(), "--version"], capture_output=True, text=True)
    return "HYDRA" in done.stdout
