"""One of four ranks of `tenon train` fails: the job ends at once, with one report, and leaves nothing behind."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

LIMIT = 2.0
DOOMED = """

import os
import signal
import sys
import time

from tenon.distributed import get_rank, get_world_size

HOW, CLOCK = os.environ["HOW"], os.environ["CLOCK"]


def last():
    return get_rank() == get_world_size() - 1


def start_clock():
    with open(CLOCK, "w") as file:
        file.write(repr(time.time()))


if HOW == "import" and last():
    start_clock()
    import a_module_that_is_not_there


class Doomed(Net):
    calls = 0

    def forward(self, x):
        Doomed.calls += 1
        if Doomed.calls == 4 and last():
            start_clock()
            if HOW == "exception":
                raise ValueError("a bad value")
            if HOW == "memory":
                raise MemoryError("cannot allocate 1 TB")
            if HOW == "exit":
                sys.exit(3)
            if HOW == "raised_exit":
                raise SystemExit(3)
            if HOW == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
"""


def processes_with(marker):
    """Numbers of the living processes that have ``marker`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if marker in environment.decode(errors="replace").split("\0") and state != "Z":
            found.append(folder.name)
    return found


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("exception", 1, ["step 3 failed with ValueError", "in module: (the model itself)", "a bad value"]),
        ("memory", 1, ["step 3 failed with MemoryError", "cannot allocate 1 TB"]),
        ("exit", 3, ["step 3 called sys.exit(3)", "small.py"]),
        ("raised_exit", 3, ["step 3 raised SystemExit(3)", "small.py"]),
        ("import", 1, ["failed with ModuleNotFoundError", "a_module_that_is_not_there"]),
        ("kill", 9, []),
    ],
)
def test_a_failing_rank_ends_the_run(project, how, status, words):
    with open(project.folder / "small.py", "a") as file:
        file.write(DOOMED)
    clock = project.folder / "clock"
    environment = {**project.environment, "HOW": how, "CLOCK": str(clock)}
    done = subprocess.run(
        project.command("my.toml", "--set", "model=small:Doomed", ranks=4),
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )
    while processes_with(f"CLOCK={clock}") and time.time() - float(clock.read_text()) < 5 * LIMIT:
        time.sleep(0.02)
    took = time.time() - float(clock.read_text())

    assert done.returncode in (status, 128 + status), done.stderr
    assert took < LIMIT
    reports = re.findall(r"^=== tenon: rank (\d) of 4 on host .*===$", done.stderr, re.MULTILINE)
    assert reports == ([] if how == "kill" else ["3"]), done.stderr
    assert done.stderr.count("Traceback (most recent call last)") == (
        how in ("exception", "memory", "import")
    )
    for word in words:
        assert word in done.stderr
    assert not [name for name in os.listdir("/dev/shm") if "tenon" in name]
