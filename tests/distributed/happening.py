"""Let an event of the catalogue (``what_happens.py``) happen to real ranks, and look at what is left of them.

The clock starts where the program writes the time to ``CLOCK``, or where ``act`` has done something to the
job from outside, and stops when the last process of the job is gone. How long it may run is said for a machine
that does nothing else: ``in_time`` allows a busy one as many times more as processes take longer there, and
``soon`` lets it happen again where it took too long even so, as machines stall at times.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tenon.config import process_environment
from tenon.serialize.checkpoint import checkpoints, latest_valid
from tenon.testing.suites.communicator import find_mpirun, is_mpich

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 2.0
RANKS = 4
MEMORY_LIMIT = 32 << 20
DISK = "1m"
LATEST = 300.0
TRIES = 3
TRACEBACK = "Traceback (most recent call last)"
NOTHING = "nothing"
CHECKPOINT = "the last checkpoint"
Found = TypeVar("Found")
Surroundings = Callable[[Path], contextlib.AbstractContextManager[Mapping[str, str]]]


@contextlib.contextmanager
def as_it_is(folder: Path) -> Iterator[Mapping[str, str]]:
    """No special environment."""
    yield {}


@dataclass(frozen=True)
class Event:
    """An event in a job, and how the job must end; ``happens`` and ``report`` are cells of the table."""

    name: str
    happens: str
    command: tuple[str, ...]
    """What each rank runs, in the folder of the programs; ``{run}`` is a folder of the job's own."""
    status: int
    report: str
    words: tuple[str, ...] = ()
    reporter: str = "3"
    """Pattern of the ranks that may print the one report; empty where no rank does."""
    traceback: bool = False
    """Whether the report holds one."""
    complaints: int = 0
    """Tracebacks outside the report."""
    left: str = NOTHING
    limit: float = LIMIT
    timed: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    surroundings: Surroundings = as_it_is
    act: Callable[[subprocess.Popen[str], Path], float] | None = None
    """Do to the running job what happens; return the time at which it was done."""
    mpich: str = ""
    """Why only MPICH's launcher lets it happen, if so."""
    launcher_reports: bool = False
    """Whether Open MPI's launcher ends the ranks before one can report, with a status of its own."""
    noticed: bool = False
    """A signal kills the rank; another may report it with Open MPI, whose launcher takes 0.3 s to end all."""
    also: tuple[int, ...] = ()
    """Other statuses with which it may end."""


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    status: int
    seconds: float
    out: str
    err: str
    processes: list[str]
    files: list[str]


def happen(event: Event, folder: Path) -> Ending:
    """Run the job of ``event`` in ``folder``, which must be empty."""
    if event.mpich and not is_mpich():
        pytest.skip(event.mpich)
    clock = folder / "clock"
    with event.surroundings(folder) as more, noting_shared_memory(f"CLOCK={clock}") as mapped:
        environment = {
            **process_environment(), "OMP_NUM_THREADS": "1", "CLOCK": str(clock), **event.variables, **more,
        }  # fmt: skip
        job = subprocess.Popen(
            [find_mpirun(), "-n", str(RANKS), *(part.format(run=folder / "run") for part in event.command)],
            cwd=PROGRAMS, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            began = event.act(job, folder) if event.act is not None else None
            out, err = job.communicate(timeout=LATEST)
        finally:
            job.kill()
        if began is None:
            began = float(clock.read_text()) if clock.exists() else time.time()
        living = _soon_empty(lambda: processes_with(f"CLOCK={clock}"), time.time() + LATEST / 5)
        seconds = time.time() - began
        files = _soon_empty(lambda: [path for path in mapped if Path(path).exists()], time.time() + 5)
        _check_what_is_left(event, folder)
    return Ending(job.returncode, seconds, out, err, living, files)


def check(event: Event, ending: Ending) -> None:
    """Assert that the job ended as the catalogue says, however long it took."""
    headlines = re.findall(rf"^=== tenon: rank (\d) of {RANKS} on host .* ===$", ending.err, re.MULTILINE)
    report = "".join(
        re.findall(r"^=== tenon: rank .*^=== tenon: ended all ", ending.err, re.MULTILINE | re.DOTALL)
    )
    assert ending.processes == [] and ending.files == [], (ending.processes, ending.files, ending.err)
    if event.launcher_reports and not is_mpich():
        assert ending.status != 0
        return
    # MPICH's launcher ends with the number of the signal that killed a rank, Open MPI's with 128 plus it.
    killed = 128 + event.status if event.noticed else event.status
    assert ending.status in (event.status, killed, *event.also), ending.err
    if event.noticed and "RankFailedError" in report and not is_mpich():
        assert len(headlines) == 1, ending.err
        return
    if event.reporter:
        assert len(headlines) == 1 and re.fullmatch(event.reporter, headlines[0]), ending.err
    else:
        assert headlines == [], ending.err
    assert (TRACEBACK in report) == event.traceback, ending.err
    assert ending.err.replace(report, "").count(TRACEBACK) == event.complaints, ending.err
    for word in event.words:
        assert word in ending.err + ending.out, ending.err


def _check_what_is_left(event: Event, folder: Path) -> None:
    if event.left == NOTHING:
        assert not (folder / "run").exists()
    if event.left == CHECKPOINT:
        found = checkpoints(folder / "run" / "checkpoints")
        assert found and latest_valid(found[0].parent) == found[0]


def soon(run: Callable[[Path], tuple[Found, float]], limit: float, folder: Path) -> Found:
    """Return the result of ``run(folder)`` within ``limit``, and the seconds; each attempt has a new folder."""
    took = []
    for number in range(TRIES):
        (folder / str(number)).mkdir()
        found, seconds = run(folder / str(number))
        if in_time(seconds, limit):
            return found
        took.append(round(seconds, 2))
    pytest.fail(f"took {took} s, longer than {limit} s each time: {found}")


def held_up(err: str) -> bool:
    """Whether the watchdog's report names several ranks: the machine delayed others than the one that stalls."""
    return re.search(r"has waited [\d.]+ s for ranks ", err) is not None


def in_time(seconds: float, limit: float) -> bool:
    """Whether ``seconds`` are below ``limit``, scaled by how busy this machine is."""
    return seconds < limit or seconds < limit * slowness()


def slowness() -> float:
    """How many times longer processes take now than with the cores to themselves; 1 on an idle machine."""
    used, began = sum(os.times()[2:4]), time.monotonic()
    for job in [subprocess.Popen([sys.executable, "-c", "import numpy"]) for _ in range(RANKS)]:
        job.wait()
    taken, used = time.monotonic() - began, sum(os.times()[2:4]) - used
    return max(1.0, taken * min(RANKS, len(os.sched_getaffinity(0))) / used)


def processes_with(entry: str) -> list[str]:
    """Numbers of the living processes with ``NAME=value`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_text(errors="replace")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if entry in environment.split("\0") and state != "Z":
            found.append(folder.name)
    return found


@contextlib.contextmanager
def noting_shared_memory(entry: str) -> Iterator[set[str]]:
    """Inside, the set grows by the files in ``/dev/shm`` that processes with ``NAME=value`` map."""
    found: set[str] = set()
    over = threading.Event()

    def note() -> None:
        while not over.wait(0.2):
            for process in processes_with(entry):
                with contextlib.suppress(OSError):
                    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
                    mapped = [line[line.index("/") :] for line in lines if "/dev/shm/" in line]
                    found.update(path.removesuffix(" (deleted)") for path in mapped)

    watcher = threading.Thread(target=note)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


def _soon_empty(look: Callable[[], list[str]], deadline: float) -> list[str]:
    """What ``look`` still finds at the deadline."""
    while (found := look()) and time.time() < deadline:
        time.sleep(0.02)
    return found


# What can be done to a job from outside.


def wait_for(there: Callable[[], object], job: subprocess.Popen[str]) -> None:
    """Wait until ``there()`` is true, or the job has ended."""
    deadline = time.time() + LATEST
    while not there() and job.poll() is None and time.time() < deadline:
        time.sleep(0.02)


def interrupt(job: subprocess.Popen[str], folder: Path) -> float:
    """Send Ctrl-C once the last rank has written the time."""
    wait_for((folder / "clock").exists, job)
    job.send_signal(signal.SIGINT)
    return time.time()


def _wait_for_checkpoint(job: subprocess.Popen[str], folder: Path) -> Path:
    saved = folder / "run" / "checkpoints"
    wait_for(lambda: checkpoints(saved), job)
    return saved


def terminate(job: subprocess.Popen[str], folder: Path) -> float:
    """SIGTERM to the launcher, once there is a checkpoint."""
    _wait_for_checkpoint(job, folder)
    job.send_signal(signal.SIGTERM)
    return time.time()


def fill_disk(job: subprocess.Popen[str], folder: Path) -> float:
    """Leave no free byte where checkpoints go, once there is one."""
    saved = _wait_for_checkpoint(job, folder)
    began, filled = time.time(), -1
    with open(saved / "other", "wb", buffering=0) as file:
        while job.poll() is None and time.time() < began + 1:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            if file.tell() > filled:  # an old checkpoint that was being deleted has left room once more
                began, filled = time.time(), file.tell()
            time.sleep(0.01)
    return began


def forbid_writing(job: subprocess.Popen[str], folder: Path) -> float:
    """Make the disk of the checkpoints read-only, once there is one."""
    saved = _wait_for_checkpoint(job, folder)
    command = ["mount", "-o", "remount,ro", str(saved)]
    wait_for(lambda: subprocess.run(command, capture_output=True).returncode == 0, job)  # busy while written
    return time.time()


# What can be set up around a job.


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Mapping[str, str]]:
    """The folder of the checkpoints is a disk of its own, of one megabyte."""
    saved = folder / "run" / "checkpoints"
    saved.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(saved)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here to make a small disk with")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield {}
    finally:
        subprocess.run(["umount", "--lazy", str(saved)], check=True)


@contextlib.contextmanager
def memory_group(folder: Path) -> Iterator[Mapping[str, str]]:
    """A control group of little memory, for the rank that joins it; the kernel kills who takes more."""
    old = Path("/sys/fs/cgroup/memory")
    limits = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    if not old.is_dir():
        limits = ("memory.max", "memory.swap.max")
    group = (old if old.is_dir() else old.parent) / f"tenon-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        if not (group / limits[0]).exists():
            pytest.skip(f"control groups do not limit memory here: there is no {limits[0]}")
        for limit in limits:
            if (group / limit).exists():
                (group / limit).write_text(str(MEMORY_LIMIT if limit != "memory.swap.max" else 0))
        yield {"MEMORY_GROUP": str(group / "cgroup.procs")}
    finally:
        group.rmdir()
