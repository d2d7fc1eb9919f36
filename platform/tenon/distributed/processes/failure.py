"""End the whole job, with one report, when one of its ranks fails.

MPI programs hang when one rank raises: Python prints a traceback, then waits in ``MPI_Finalize`` for ranks
that wait for it in an all-reduce. So as soon as there is more than one rank, ``install`` hooks the three
ways out of a Python program: an uncaught exception, one in a thread, and ``sys.exit`` with a non-zero code.
Each prints one report and ends the job with the exit code that was asked for.

``sys.exit`` needs care, as its exception may still be caught. The hook raises a subclass that notices when
it dies with no Python frame left: nobody caught it. A bare ``raise SystemExit(3)`` is seen from Python 3.12
on (``unwinding.py``); on 3.11 the name ``SystemExit`` means that subclass, in programs of several ranks only.

Next: ``report.py`` words the report and picks the one rank that prints it.
"""

from __future__ import annotations

import atexit
import builtins
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, NoReturn, Protocol

from tenon.distributed.processes import siblings, unwinding
from tenon.distributed.processes.launcher import RankFacts
from tenon.distributed.processes.report import Claim, describe_exit, describe_failure
from tenon.errors import CommunicatorError

INTERRUPTED = 130
FORWARDING_TIME = 0.1
"""Seconds for the launcher to forward the report; told to kill at once, it may drop it."""
READING_TIME = 2.0
"""Seconds for a launcher on busy cores to have read it from its pipe."""
FINISH_TIME = 0.3
"""Seconds that a rank which left leaves to ranks still inside a call, whose report can show where."""


class Abortable(Protocol):
    """What the hooks need of a communicator."""

    host: str
    node: int
    job: str
    step: int | None

    @property
    def rank(self) -> int:
        """This process's place among the ranks."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def claim_report(self) -> bool:
        """Whether no rank of this node has reported yet; asked by one at a time, which then does."""

    def kill(self, code: int) -> NoReturn:
        """End every rank's process with the exit status ``code``."""

    def finish(self) -> None:
        """Tell the other ranks that this one's program has ended; wait until theirs have."""


class Watching(Protocol):
    """What the hooks need of a watchdog."""

    def rest(self) -> None:
        """Let this rank wait for the others without limit."""

    def stop(self) -> None:
        """End its threads."""


class Guard:
    """The failure hooks of this process; one exists at most, made by ``install``."""

    def __init__(self, facts: RankFacts, environment: Mapping[str, str]) -> None:
        self.facts = facts
        self.pid = os.getpid()
        self.communicator: Abortable | None = None
        self.watchdog: Watching | None = None
        self.finished = False
        self.leaving = False
        self._pmi = environment.get("PMI_FD", "")
        self._exit: Callable[..., NoReturn] = sys.exit
        self._previous = sys.excepthook
        self._previous_thread = threading.excepthook
        self._lock = threading.Lock()

    def hook(self) -> None:
        """Put the hooks in place."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        sys.exit = self.exit
        builtins.exit = builtins.quit = self.exit  # type: ignore[assignment]
        atexit.register(self._on_exit)
        if sys.version_info >= (3, 12):
            unwinding.watch()
        else:
            builtins.SystemExit = TrackedExit  # type: ignore[misc]

    def exit(self, status: Any = None, /) -> NoReturn:
        """``sys.exit``, remembering the status in case nobody catches it."""
        raise TrackedExit(status)

    def fail(self, text: str, code: int) -> NoReturn:
        """Print the report, unless another rank of this job already does, and end the job."""
        self._lock.acquire()  # Never released: a second failing thread waits here for the end.
        _flush(sys.stdout)
        _flush(sys.stderr)
        communicator = self.communicator
        job = communicator.job if communicator is not None else f"parent-{os.getppid()}"
        # A claim is free again once its holder is gone, which may be before the launcher has ended this rank.
        if Claim(job).take(communicator.node if communicator is not None else 0) and (
            communicator is None or communicator.claim_report()
        ):
            _write(text)
            _wait_until_read()
            time.sleep(FORWARDING_TIME)
        self._kill(code or 1)

    def identity(self) -> tuple[int, int, str, int | None]:
        """Rank, size, host and step for the report."""
        communicator = self.communicator
        if communicator is not None:
            return communicator.rank, communicator.size, communicator.host, communicator.step
        return self.facts.rank, self.facts.size, os.uname().nodename, None

    def foreign(self) -> bool:
        """Whether this process is a forked child, such as a data worker: no rank of its own."""
        return os.getpid() != self.pid

    def _kill(self, code: int) -> NoReturn:
        try:
            if self.communicator is not None:
                self.communicator.kill(code)
            if self._pmi.isdigit():
                siblings.remove_segments(os.getppid())
                # MPI is not up yet, so ask Hydra over the socket that each rank inherits (PMI-1 protocol).
                os.write(int(self._pmi), f"cmd=abort exitcode={code}\n".encode())
                time.sleep(2)
        finally:
            os._exit(code)

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if self.foreign():
            self._previous(kind, error, traceback)
        elif issubclass(kind, KeyboardInterrupt):
            self.fail(describe_exit(*self.identity(), "was interrupted", INTERRUPTED, ""), INTERRUPTED)
        else:
            self.fail(describe_failure(*self.identity(), error, traceback), 1)

    def _on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        if self.foreign() or args.exc_value is None or issubclass(args.exc_type, SystemExit):
            self._previous_thread(args)
            return
        name = args.thread.name if args.thread is not None else "unknown"
        self.fail(describe_failure(*self.identity(), args.exc_value, args.exc_traceback, thread=name), 1)

    def _on_exit(self) -> None:
        self.leaving = True
        if self.foreign():
            return
        error = getattr(sys, "last_value", None)
        if isinstance(error, Exception) and sys.excepthook != self._on_exception:
            # Somebody replaced our hook later, and their hook has printed the traceback: only end the job.
            rank, size, host, step = self.identity()
            self.fail(describe_exit(rank, size, host, step, f"raised {type(error).__name__}", 1, ""), 1)
        raised = unwinding.uncaught()
        if raised is not None and (code := _exit_code(raised.code)):
            # Python has printed a text already.
            what, where = f"raised SystemExit({raised.code!r})", _place(raised.__traceback__)
            self.fail(describe_exit(*self.identity(), what, code, where), code)
        if self.communicator is not None and not self.finished:
            self.finished = True
            if self.watchdog is not None:
                self.watchdog.rest()
            try:
                self.communicator.finish()
            except CommunicatorError as error:
                time.sleep(FINISH_TIME)
                self.fail(describe_failure(*self.identity(), error, error.__traceback__), 1)
            if self.watchdog is not None:
                self.watchdog.stop()


class AgreedExit(SystemExit):
    """``SystemExit`` of all ranks together: nobody is left who would have to be ended."""


class TrackedExit(SystemExit):
    """``SystemExit`` that ends the job if it leaves the program uncaught with a non-zero code."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        guard = _guard
        main = threading.current_thread() is threading.main_thread()
        self._where, self._how = "", ""
        self._watched = bool(_exit_code(self.code)) and main and guard is not None and not guard.foreign()
        if self._watched:
            called = sys._getframe(1).f_code is Guard.exit.__code__
            frame = sys._getframe(2 if called else 1)
            self._how = "called sys.exit" if called else "raised SystemExit"
            self._where = _line(frame, frame.f_lineno)

    def __del__(self) -> None:
        guard = _guard
        if not self.__dict__.get("_watched") or guard is None or guard.foreign() or _is_called():
            return
        if guard.leaving:
            return  # It was caught and kept: what nobody catches dies before the exit functions run.
        code = _exit_code(self.code)
        message = f"{self.code}\n" if not isinstance(self.code, int) else ""
        guard.fail(
            describe_exit(*guard.identity(), f"{self._how}({self.code!r})", code, self._where + message), code
        )


def _line(frame: FrameType, number: int) -> str:
    """A line of a program as tracebacks name it."""
    return f'  File "{frame.f_code.co_filename}", line {number}, in {frame.f_code.co_name}\n'


def _place(traceback: TracebackType | None) -> str:
    """The line that raised."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return _line(traceback.tb_frame, traceback.tb_lineno)


def _is_called() -> bool:
    """Whether any Python frame called the caller's ``__del__``; none is left when the program itself ends."""
    try:
        sys._getframe(2)
    except ValueError:
        return False
    return True


def _exit_code(status: Any) -> int:
    """The status a shell would see for ``sys.exit(status)``; a non-zero one never wraps to 0."""
    if status is None:
        return 0
    if not isinstance(status, int):
        return 1
    return status & 0xFF or int(bool(status))


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return  # A closed or absent stream has nothing to flush, and the report must still come out.


def _write(text: str) -> None:
    """Write the report in one piece, so that the output of other ranks cannot cut into it."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return  # Standard error is closed: there is nowhere to report to, but the job must still end.


def _wait_until_read() -> None:
    """Return once the pipe behind standard error is empty; it may be a file or a terminal as well."""
    if sys.platform == "win32":
        return
    import array
    import fcntl
    import termios

    deadline = time.monotonic() + READING_TIME
    unread = array.array("i", [0])
    try:
        while stat.S_ISFIFO(os.fstat(2).st_mode) and time.monotonic() < deadline:
            fcntl.ioctl(2, termios.FIONREAD, unread)
            if not unread[0]:
                return
            time.sleep(0.005)
    except OSError:
        return  # Nobody can be asked how much is read: the forwarding time has to do.


_guard: Guard | None = None


def install(facts: RankFacts, environment: Mapping[str, str]) -> Guard:
    """Install the hooks of this process, once."""
    global _guard
    if _guard is None:
        _guard = Guard(facts, environment)
        _guard.hook()
    return _guard


def attach(communicator: Abortable, environment: Mapping[str, str]) -> Guard:
    """Let the hooks end the job through ``communicator``, and name its rank and step in reports."""
    facts = RankFacts("unknown", communicator.rank, communicator.size, communicator.rank, communicator.size)
    guard = install(facts, environment)
    guard.communicator = communicator
    guard.finished = False
    return guard


def fail(error: BaseException, code: int = 1) -> NoReturn:
    """Report ``error`` as this rank's failure and end the job; without other ranks, raise it."""
    if _guard is None:
        raise error
    _guard.fail(describe_failure(*_guard.identity(), error, error.__traceback__), code)
