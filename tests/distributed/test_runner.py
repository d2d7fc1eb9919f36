"""A script that fails before it imports tenon ends the job, with the runner and without it."""

import re
import sys
import time
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

from happening import LIMIT, is_mpich, soon

pytestmark = pytest.mark.mpi

SCRIPT = str(Path(__file__).parent / "programs" / "early.py")


def run(tmp_path, size, *arguments):
    def failing(folder):
        done = launch(size, list(arguments), CLOCK=str(folder / "clock"))
        return done, time.time() - float((folder / "clock").read_text())

    return soon(failing, LIMIT, tmp_path)


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("exception", 1, ["failed with ValueError", "a bad value"]),
        ("exit", 3, ["called sys.exit(3)"]),
        ("raised_exit", 3, ["SystemExit(3)"]),
        ("kill", 9, []),
    ],
)
def test_a_script_that_fails_early_ends_the_job(tmp_path, how, status, words):
    done = run(tmp_path, 2, "-m", "tenon.distributed", SCRIPT, how, "0.3", "1")

    # Hydra's proxy gives up, with 255, if it is just answering the killed rank's start-up request.
    ended = "unable to forward PMI response" in done.stderr if how == "kill" else False
    assert done.returncode in (status, 128 + status) or (ended and done.returncode == 255), done.stderr
    reports = re.findall(r"^=== tenon: rank (\d) of 2 on host .*===$", done.stderr, re.MULTILINE)
    assert reports == ["1"] or (how == "kill" and not reports), done.stderr  # killed before tenon's import
    for word in words:
        assert word in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells which processes live")
def test_without_the_runner_the_others_notice_that_rank_0_never_came(tmp_path):
    if not is_mpich():
        pytest.skip("Open MPI's launcher ends the job by itself")
    # Late enough for the others to wait by then.
    done = run(tmp_path, 4, SCRIPT, "raised_exit", "2.5", "0")

    assert done.returncode == 1, done.stderr
    headlines = re.findall(r"^=== tenon: rank \d of 4 on host .*===$", done.stderr, re.MULTILINE)
    assert len(headlines) == 1, done.stderr
    assert "cannot start: rank 0 ended before `import tenon`" in headlines[0]
