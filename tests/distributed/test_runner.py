"""`python -m tenon.distributed SCRIPT`: a script that fails before it knows tenon ends the job all the same."""

import re
import time

import pytest

from tenon.testing.suites.communicator import launch

pytestmark = pytest.mark.mpi

SCRIPT = """
import os, signal, sys, time

rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
if rank == 3:
    time.sleep(0.3)
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

    done = launch(4, ["-m", "tenon.distributed", str(script), how, str(clock)], timeout=60)

    assert time.time() - float(clock.read_text()) < 2
    assert done.returncode in (status, 128 + status), done.stderr
    reports = re.findall(r"^=== tenon: rank (\d) of 4 on host .*===$", done.stderr, re.MULTILINE)
    assert reports == ([] if how == "kill" else ["3"]), done.stderr
    for word in words:
        assert word in done.stderr
