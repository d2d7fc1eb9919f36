"""A rank that dies without running a hook is reported too: once, by the monitor of its host."""

import json
import mmap
import os
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenon.distributed.processes import exit_pipe, failure_record, host_monitor, process_state
from tenon.distributed.processes.heartbeat_table import Heartbeat, HeartbeatTable, table_bytes
from tenon.testing.suites.communicator import is_mpich, launch

PROGRAM = str(Path(__file__).parent / "programs" / "silent_deaths.py")
FIELDS = set(
    [
        "schema",
        "rank",
        "size",
        "host",
        "process",
        "step",
        "time",
        "job",
        "attempt",
        "reported",
        "reason",
        "signal",
        "status",
        "line",
        "report",
    ]
)


def die(kind, folder, size=3):
    clock = folder / "clock"
    return launch(size, [PROGRAM, kind], CLOCK=str(clock), RECORDS=str(folder))


def headlines(done):
    return re.findall(r"^=== tenon: (rank \d of \d on host .*) ===$", done.stderr, re.MULTILINE)


def records(folder):
    """The records of a job, which its monitor may still be writing for the ranks that are being ended."""
    deadline = time.monotonic() + 60
    while len(found := sorted(folder.glob("failures/rank-*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    return [json.loads(path.read_text()) for path in found]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason", "signal", "line"),
    [
        ("segfault", "was killed by SIGSEGV", "SIGSEGV", "string_at"),
        ("immediate_exit", "called os._exit(3)", None, "<lambda>"),
        ("exit_in_c", "left with exit status 3 before the end of its program", None, None),
        ("bus_error", "was killed by SIGBUS", "SIGBUS", "read_beyond_a_file"),
        ("abort_in_c", "was killed by SIGABRT", "SIGABRT", "<module>"),
        ("kill", "was killed by SIGKILL", "SIGKILL", None),
        (
            "memory_to_the_last_byte",
            "failed with MemoryError",
            None,
            "use_up_memory_to_the_last_byte",
        ),
    ],
)
def test_a_rank_that_dies_is_reported_once_and_every_rank_has_a_record(tmp_path, kind, reason, signal, line):
    done = die(kind, tmp_path)

    host = os.uname().nodename
    assert done.returncode != 0
    assert headlines(done) == [f"rank 2 of 3 on host {host}, step 17 {reason}"], done.stderr
    first, second, last = records(tmp_path)
    assert set(first) == set(last) == FIELDS
    assert (last["reported"], last["reason"], last["signal"]) == (True, reason, signal)
    assert (last["schema"], last["rank"], last["size"], last["step"]) == ("tenon.failure/1", 2, 3, 17)
    assert last["report"] in done.stderr
    assert line is None or line in last["line"]
    assert [(r["reported"], r["reason"]) for r in (first, second)] == [
        (False, "ended with the job, after the failure of rank 2")
    ] * 2
    assert len({r["job"] for r in (first, second, last)}) == 1 and last["host"] == host
    assert [path for path in (tmp_path / "failures").iterdir() if path.name.startswith(".")] == []


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["launcher", "proxy"])
def test_a_launcher_that_ends_is_reported_and_takes_its_ranks_along(tmp_path, kind):
    if kind == "proxy" and not is_mpich():
        pytest.skip("Open MPI's launcher has no process of its own beside the ranks of one host")
    done = die(kind, tmp_path)

    name = "hydra_pmi_proxy" if kind == "proxy" else "(mp|prte|orte)\\w+"
    (headline,) = headlines(done)
    assert re.fullmatch(
        rf"rank 0 of 3 on host \S+, step 17 lost its launcher: {name} \(process \d+\) was killed by SIGKILL",
        headline,
    ), done.stderr
    ended = records(tmp_path)
    assert [r["reported"] for r in ended] == [True, False, False]
    deadline = time.monotonic() + 60
    while any(process_state.alive(r["process"]) for r in ended) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(process_state.alive(r["process"]) for r in ended)


@pytest.mark.mpi
@pytest.mark.slow
def test_children_that_a_rank_forks_may_fail_in_any_way(tmp_path):
    done = die("forked", tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{[256, 3 << 8, 0, 11, 4 << 8, 256]} [3.0, 3.0, 3.0]"
    assert headlines(done) == [] and done.stderr.count("ValueError: in a child") == 3
    assert not (tmp_path / "failures").exists()


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_that_all_leave_by_os_exit_with_status_0_have_not_failed(tmp_path):
    if not is_mpich():
        pytest.skip("Open MPI's launcher takes a rank that does not finalize MPI for one that failed")
    done = die("all_leave", tmp_path)

    assert done.returncode == 0 and headlines(done) == [], done.stderr
    assert not (tmp_path / "failures").exists()


def table(tmp_path, size=2):
    """A table in a file, which the process that the monitor watches need not know."""
    descriptor = os.open(tmp_path / "table", os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, table_bytes(size))
    return HeartbeatTable(mmap.mmap(descriptor, table_bytes(size)), size, [0] * size, descriptor)


class Watched:
    """Processes that a monitor watches as the ranks of a job, each running a program that prints a line.

    Beside them one that it watches as their launcher.
    """

    def __init__(self, folder, *programs):
        self.beats, self.folder = table(folder, len(programs)), folder
        ends = [os.pipe() for _ in programs]
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(end)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[end],
            )
            for program, (_, end) in zip(programs, ends, strict=True)
        ]  # fmt: skip
        self.handles, self.pipes = [os.pidfd_open(p.pid) for p in self.processes], [end for end, _ in ends]
        self.launcher = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.launchers = [(self.launcher.pid, "mpirun", os.pidfd_open(self.launcher.pid), -1)]
        self.poll = select.epoll()
        for descriptor in (*self.handles, *self.pipes, self.launchers[0][2]):
            self.poll.register(descriptor, select.EPOLLIN)
        for rank, process in enumerate(self.processes):
            os.close(ends[rank][1])
            beat = Heartbeat(time.monotonic_ns(), 3, 0, 7, process.pid, call="barrier", stack="  a.py:3 in f")
            self.beats.write(rank, beat)
            assert process.stdout.readline() == b"runs\n"
        self.beats.folder = str(folder)

    def watch(self):
        """Start the monitor."""
        size, descriptors = len(self.processes), [*self.handles, *self.pipes, self.launchers[0][2]]
        outputs = [output for *_, output in self.launchers if output >= 0]
        facts = {
            "handles": self.handles, "pipes": self.pipes, "poll": self.poll.fileno(), "oom_kills": 0, "size": size,
            "host": "here", "job": self.folder.name + str(os.getpid()), "attempt": 4, "nodes": 1,
            "ranks": list(range(size)), "processes": [p.pid for p in self.processes],
            "descriptor": self.beats.descriptor, "launchers": self.launchers, "limit": 0.0,
        }  # fmt: skip
        self.monitor = subprocess.Popen(
            [sys.executable, "-I", "-S", host_monitor.__file__, json.dumps(facts)], stdin=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, pass_fds=[self.beats.descriptor, self.poll.fileno(), *descriptors, *outputs],
        )  # fmt: skip
        self.poll.close()
        for descriptor in descriptors:
            os.close(descriptor)
        self.wait_until(lambda: self.beats.watched)

    def wait_until(self, there):
        while not there():
            assert self.monitor.poll() is None
            time.sleep(0.01)

    def end(self, *ranks):
        """Let the programs of ``ranks`` end, one after the other."""
        for rank in ranks:
            self.processes[rank].communicate()

    def report(self):
        """What the monitor has written, once all have ended."""
        err = self.monitor.communicate(timeout=60)[1]
        os.close(self.beats.descriptor)
        self.launcher.communicate(b"\n")
        return err


RETURNING = "import sys; print('runs', flush=True); sys.stdin.read()"
KILLED = RETURNING + "; import os; os.kill(os.getpid(), 9)"
CLOSING = "import os, sys; os.close(int(sys.argv[1])); " + KILLED


def test_a_monitor_reports_the_first_of_the_processes_that_end(tmp_path):
    job = Watched(tmp_path, RETURNING, RETURNING)
    job.watch()
    job.processes[1].kill()
    job.wait_until(lambda: job.beats.reporter)
    job.end(0, 1)
    err = job.report()

    assert err.startswith("\n=== tenon: rank 1 of 2 on host here, step 7 was killed by SIGKILL ===\n")
    assert "Its last collective then: call 3, barrier. It was at:\n  a.py:3 in f\n" in err
    assert job.beats.reporter == 1
    died = json.loads((tmp_path / "failures" / "rank-1.json").read_text())
    assert (died["attempt"], died["line"], died["signal"]) == (4, "a.py:3 in f", "SIGKILL")
    other = json.loads((tmp_path / "failures" / "rank-0.json").read_text())
    assert (other["reported"], other["status"]) == (False, 0)


@pytest.mark.parametrize("early", [True, False], ids=["before there is a monitor", "afterwards"])
def test_of_ranks_that_end_the_first_whose_pipe_closed_is_reported(tmp_path, early):
    """Rank 1 is like one that the kernel still ends while the launcher has ended the others."""
    job = Watched(tmp_path, KILLED, CLOSING, KILLED)
    if early:
        job.end(0, 1, 2)
        job.watch()
    else:
        job.watch()
        job.end(0, 1, 2)

    assert re.findall("=== tenon: rank (.*) ===", job.report()) == [
        "1 of 3 on host here, step 7 was killed by SIGKILL"
    ]


@pytest.mark.parametrize("order", ["launcher alone", "ranks noticed first"])
def test_a_launcher_that_is_killed_before_the_monitor_runs_is_reported(tmp_path, order):
    job = Watched(tmp_path, KILLED, KILLED)
    if (
        order == "ranks noticed first"
    ):  # it has killed them, or its process has, while the kernel still ended it
        job.end(0, 1)
    job.launcher.kill()
    job.launcher.wait()

    job.watch()

    job.end(0, 1)  # by SIGTERM of the monitor, if they still run
    assert re.findall("=== tenon: rank (.*) ===", job.report()) == [
        f"0 of 2 on host here, step 7 lost its launcher: mpirun (process {job.launcher.pid}) was killed by SIGKILL"
    ]
    assert job.beats.abandoned


MAPPING = "import mmap, sys; file = open('{path}', 'w+b'); file.truncate(4096); memory = mmap.mmap(file.fileno(), 4096); "


def test_the_shared_memory_of_open_mpi_is_removed_where_its_launcher_is_killed(tmp_path):
    path = Path(f"{process_state.SEGMENT}tenon-test.{os.getpid()}")
    job = Watched(tmp_path, MAPPING.format(path=path) + RETURNING, RETURNING)
    job.launcher.kill()
    try:
        job.watch()
        for process in job.processes:
            process.wait(60)  # by SIGTERM
        job.end(0, 1)
        job.report()

        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("launcher", ["prterun", "mpirun"])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_reports_go_to_open_mpis_own_output_unless_that_is_a_file(tmp_path, launcher, kind):
    """It ends without having forwarded all that ranks have written; MPICH's forwards it."""
    end, output = os.pipe()
    path = tmp_path / "output"
    if kind == "file":
        os.close(output)
        output = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    job = Watched(tmp_path, KILLED)
    job.launchers = [(job.launcher.pid, launcher, job.launchers[0][2], output)]
    job.watch()
    os.close(output)

    job.end(0)
    err = job.report()

    with open(end, "rb") as file:
        written = file.read() if kind == "pipe" else path.read_bytes()
    assert (b"=== tenon: rank 0" in written) == (launcher == "prterun" and kind == "pipe")
    assert ("=== tenon: rank 0" in err) != (b"=== tenon: rank 0" in written)


@pytest.mark.slow
def test_a_rank_that_closes_all_its_descriptors_is_not_reported_for_it(tmp_path):
    job = Watched(tmp_path, CLOSING, KILLED)
    job.watch()
    time.sleep(host_monitor.ENDING_TIME + 1)

    job.end(1, 0)

    assert re.findall("=== tenon: rank (.*) ===", job.report()) == [
        "1 of 2 on host here, step 7 was killed by SIGKILL"
    ]


def test_the_pipe_of_a_process_closes_before_its_connections(tmp_path):
    program = "import sys; from tenon.distributed.processes.exit_pipe import ExitPipe\npipe = ExitPipe(); print(pipe.reading, flush=True); input()"
    own, other = socket.socketpair()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[other.fileno()]
    ) as process, select.epoll() as poll:  # fmt: skip
        other.close()
        pipe = exit_pipe.open_reading(process.pid, int(process.stdout.readline()))
        handle = os.pidfd_open(process.pid)
        for descriptor in (handle, own.fileno(), pipe):
            poll.register(descriptor, select.EPOLLIN)
        process.kill()
        process.wait()

        assert [descriptor for descriptor, _ in poll.poll(60)] == [pipe, own.fileno(), handle]
    for descriptor in (handle, pipe):
        os.close(descriptor)
    own.close()


def test_the_schema_of_a_record_is_documented():
    fields = set(failure_record.make(0, 1, "h", 1, None, "j", 0, reported=True, reason="r"))

    assert fields == FIELDS
    words = set(re.findall(r"\w+", failure_record.__doc__))
    assert fields <= words
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "distributed.md").read_text()
    assert all(f"`{field}`" in guide for field in fields)


def test_lines_are_found_in_every_kind_of_report():
    python = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n  File "b.py", line 2, in g\nE: x'
    crash = 'Stack (most recent call first):\n  File "c.py", line 3 in h\n  File "a.py", line 1 in <module>\n'

    assert failure_record.line_of(python) == "b.py:2 in g"
    assert failure_record.line_of(crash) == "c.py:3 in h"
    assert failure_record.line_of("It was at:\n  d.py:4 in k\n  a.py:1 in <module>") == "d.py:4 in k"
    assert failure_record.line_of("nothing") is None
    text = "\n=== tenon: rank 1 of 2 on host h, step 4 called sys.exit(3) ===\nx"
    assert failure_record.reason_of(text) == "called sys.exit(3)"


@pytest.mark.parametrize(
    ("ended", "rank"),
    [
        ([(0, 143 << 8, ""), (2, 9, "")], 2),
        ([(0, 143 << 8, ""), (2, None, "")], 2),
        ([(0, 9, ""), (1, 11, "")], 1),
        ([(0, 9, ""), (1, 3 << 8, "")], 1),
        ([(0, 9, ""), (1, 143 << 8, "called os._exit(143)")], 1),
        ([(0, 15, ""), (1, 9, "")], 0),
        ([(1, None, ""), (0, 9, "")], 1),
    ],
    ids=[
        "aborted after a kill",
        "aborted after an unknown end",
        "crashed",
        "exited",
        "exited itself",
        "alike",
        "unknown, and others killed after it",
    ],
)
def test_the_end_that_others_follow_from_is_reported(ended, rank):
    assert process_state.first_cause(ended)[0] == rank
