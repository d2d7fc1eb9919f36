"""``tenon launch`` reports ranks that die before any rank of its host has imported tenon, once and by name."""

import os
import re
import subprocess
import sys
import time

import pytest

from tenon.testing.suites.communicator import OPEN_MPI

pytestmark = pytest.mark.mpi
HOST = os.uname().nodename
#: Python imports it in each process before anything else.
SITE = """
import ctypes, os, signal, time
rank = next((os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ), None)
how = os.environ["HOW"]
if rank is not None and rank == os.environ["DYING"]:
    time.sleep(0.5)
    if how == "exit":
        os._exit(3)
    elif how == "raise":
        os.write(2, b"no such library\\n")
        os._exit(1)
    elif how == "crash":
        ctypes.string_at(0)
    elif how != "later":
        os.kill(os.getpid(), getattr(signal, how))
elif rank is not None and how in ("SIGKILL", "SIGTERM", "crash"):
    time.sleep(60)  # no rank has imported tenon
"""
SCRIPT = """
import os, signal
import tenon.distributed as dist
dist.barrier()
if os.environ["HOW"] == "later" and dist.get_rank() == int(os.environ["DYING"]):
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


def run(folder, how, dying="1"):
    (folder / "sitecustomize.py").write_text(SITE)
    (folder / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **OPEN_MPI, "PYTHONPATH": path, "HOW": how, "DYING": dying}
    return subprocess.run(
        [sys.executable, "-m", "tenon.cli", "launch", "-n", "2", "train.py"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def headlines(done):
    return re.findall(r"^=== tenon: (rank \d of \d on host .*) ===$", done.stderr, re.MULTILINE)


def outcome(done):
    (found,) = re.findall(
        r"attempt 1 ended after [\d.]+ s with status (\d+): (.*)$", done.stderr, re.MULTILINE
    )
    return found


@pytest.mark.parametrize(
    ("how", "name", "dying"),
    [
        pytest.param("SIGKILL", "SIGKILL", "1", marks=pytest.mark.slow),  # by default: one that exits, below
        pytest.param("SIGKILL", "SIGKILL", "0", marks=pytest.mark.slow),
        pytest.param("SIGTERM", "SIGTERM", "1", marks=pytest.mark.slow),
        pytest.param("crash", "SIGSEGV", "0", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_killed_before_any_has_imported_tenon_is_named(tmp_path, how, name, dying):
    began = time.monotonic()

    done = run(tmp_path, how, dying)

    text = f"rank {dying} of 2 on host {HOST} was killed by {name}"
    assert done.returncode != 0 and headlines(done) == [text], done.stderr
    assert outcome(done)[1].startswith(text)
    assert time.monotonic() - began < 50  # the other rank sleeps for 60 s


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status", "dying"), [("exit", 3, "1"), ("exit", 3, "0"), ("raise", 1, "1")])
def test_a_rank_that_exits_before_its_import_is_named_and_ends_the_others(tmp_path, how, status, dying):
    done = run(tmp_path, how, dying)

    text = f"rank {dying} of 2 on host {HOST} left with exit status {status} before its `import tenon`"
    assert headlines(done) == [text], done.stderr
    assert outcome(done) == (str(status), text) and done.returncode == status
    assert how != "raise" or "no such library" in done.stderr


@pytest.mark.slow
def test_once_mpi_runs_the_monitor_of_the_ranks_reports(tmp_path):
    done = run(tmp_path, "later")

    assert headlines(done) == [f"rank 1 of 2 on host {HOST} was killed by SIGKILL"], done.stderr
    assert "its end was noticed" in done.stderr and "MPI had not started yet" not in done.stderr


@pytest.mark.slow
def test_a_job_that_ends_well_has_no_report(tmp_path):
    done = run(tmp_path, "never", "7")

    assert done.returncode == 0 and headlines(done) == [], done.stderr
