"""Terminate all ranks of a job, with one report, when one of them fails.

An MPI program hangs when one rank raises: Python prints a traceback, then waits in ``MPI_Finalize`` for ranks
that wait for it in an all-reduce. So in a job of several ranks, ``install`` hooks the three ways in which a
Python program ends early: an uncaught exception, an uncaught exception in a thread, and ``sys.exit`` with a
non-zero status. Each hook prints one report and terminates the job with that exit status.

``sys.exit`` needs care, as its exception may still be caught. The hook raises a subclass of ``SystemExit``
whose finalizer looks for Python frames: if none is left, nothing caught it. A plain ``raise SystemExit(3)``
is detected from Python 3.12 on (``unwinding.py``); on 3.11 the name ``SystemExit`` is bound to that subclass,
in jobs of several ranks only.

Next: ``report.py`` formats the report and elects the one rank that prints it.
"""

from __future__ import annotations

import atexit
import builtins
import mmap
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import NoReturn, TextIO

from tenon.distributed.processes import early_monitor, siblings, unwinding
from tenon.distributed.processes.early_monitor import EarlyMonitor
from tenon.distributed.processes.guarded import Abortable, Disarmable, MonitorClient
from tenon.distributed.processes.launcher import RankFacts
from tenon.distributed.processes.report import Claim, describe_exit, describe_failure, note_early_report
from tenon.errors import CommunicatorError

INTERRUPTED = 130
LAUNCHER_LOST = 143
"""Exit status of a rank that has ended its program after its launcher: that of SIGTERM, which it got."""
RESERVE = 4 << 20
"""Bytes of address space set aside for reporting that memory ran out; they take no memory until then."""
FORWARDING_TIME = 0.1
"""Seconds that the launcher gets to forward the report; one that must kill the job at once may drop it."""
READING_TIME = 2.0
"""Longest wait in seconds for a launcher on busy cores to read the report from its pipe."""
FINISH_TIME = 0.3
"""Seconds that a rank at its end lets ranks inside a collective report first: their report names the line."""


class Guard:
    """The failure hooks of this process, of which ``install`` creates at most one."""

    def __init__(self, facts: RankFacts, environment: Mapping[str, str]) -> None:
        self.facts = facts
        self.pid = os.getpid()
        self.communicator: Abortable | None = None
        self.watchdog: Disarmable | None = None
        self.monitor: MonitorClient | None = None
        self.early: EarlyMonitor | None = None
        """The monitor of this host until ``monitor`` is there, if this rank started it."""
        self.finished = False
        self.leaving = False
        self._pmi = environment.get("PMI_FD", "")
        self._exit: Callable[..., NoReturn] = sys.exit
        self._previous = sys.excepthook
        self._previous_thread = threading.excepthook
        self._lock = threading.Lock()
        self._reserve = mmap.mmap(-1, RESERVE)
        self._leave: Callable[[int], NoReturn] = os._exit
        self.child_status = 0
        """The exit status of this process if it is a forked child, which has no hooks."""

    def hook(self) -> None:
        """Install the hooks in ``sys``, ``threading``, ``builtins`` and ``atexit``."""
        sys.excepthook = self._on_exception
        threading.excepthook = self._on_thread_exception
        sys.exit = self.exit
        builtins.exit = builtins.quit = self.exit  # type: ignore[assignment]
        os._exit = self._on_immediate_exit
        atexit.register(self._on_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._on_fork)
        if sys.version_info >= (3, 12):
            unwinding.watch()
        else:
            builtins.SystemExit = TrackedExit  # type: ignore[misc]

    def start_early_monitor(self, environment: Mapping[str, str]) -> None:
        """Start the monitor of this host for the time before MPI starts, if this rank is its first."""
        if self.early is None and self.communicator is None:
            self.early = early_monitor.start(self.facts, environment)

    def exit(self, status: object = None, /) -> NoReturn:
        """``sys.exit``: raise a ``SystemExit`` that ends the job if nothing catches it."""
        raise TrackedExit(status)

    def fail(self, text: str, code: int) -> NoReturn:
        """Print ``text``, unless another rank of this job prints its report, and end the job."""
        self._lock.acquire()  # Never released: a second failing thread waits here until the process ends.
        self._free_reserve()
        _flush(sys.stdout)
        _flush(sys.stderr)
        if self.monitor is not None and self.monitor.is_abandoned():
            # Reported already; this may be the pipe to the launcher, which is closed. Nobody ends the others.
            self._leave(code or 1)
        communicator = self.communicator
        job = communicator.job if communicator is not None else f"parent-{os.getppid()}"
        # A claim becomes free when its holder's process ends, maybe before the launcher terminates this rank.
        if Claim(job).take(communicator.node if communicator is not None else 0) and (
            communicator is None or communicator.claim_report()
        ):
            self._report(text, code or 1)
            _wait_until_read()
            time.sleep(FORWARDING_TIME)
        self._kill(code or 1)

    def _report(self, text: str, code: int) -> None:
        """Print the report and write the record, unless the monitor has reported this job's end."""
        if self.monitor is None:
            note_early_report(os.getppid())
            _write(text)
        elif self.monitor.may_report():
            _write(text)
            try:
                self.monitor.record(text, code)
            except OSError as error:
                _write(f"tenon: no record of this failure could be written: {error}\n")

    def _free_reserve(self) -> None:
        """Release the memory that was set aside, so that a report can be made where memory ran out."""
        self._reserve.close()

    def identity(self) -> tuple[int, int, str, int | None]:
        """``(rank, size, host, step)`` for the report; step is None outside of training."""
        communicator = self.communicator
        if communicator is not None:
            return communicator.rank, communicator.size, communicator.host, communicator.step
        return self.facts.rank, self.facts.size, os.uname().nodename, None

    def foreign(self) -> bool:
        """Whether this process is a forked child of a rank, such as a data worker."""
        return os.getpid() != self.pid

    def _kill(self, code: int) -> NoReturn:
        try:
            if self.communicator is not None:
                self.communicator.kill(code)
            if self._pmi.isdigit():
                siblings.remove_segments(os.getppid())
                # MPI is not initialized yet: ask Hydra over the socket that ranks inherit (PMI-1 protocol).
                os.write(int(self._pmi), f"cmd=abort exitcode={code}\n".encode())
                time.sleep(2)
        finally:
            self._leave(code)

    def _on_immediate_exit(self, status: int) -> NoReturn:
        """``os._exit``: it runs no hooks, so the calling line is written where the monitor reads it."""
        frame = sys._getframe(1)
        if not self.foreign() and self.monitor is not None and not self.finished:
            self.monitor.note_exit(status, frame)
        elif not self.foreign() and self.communicator is None and status:
            # No monitor reports it yet, and the other ranks would wait for this one.
            line = _format_line(frame, frame.f_lineno)
            reason = f"called os._exit({status!r})"
            self.fail(describe_exit(*self.identity(), reason, status, line), status)
        self._leave(status)

    def _on_fork(self) -> None:
        """In a forked child: leave crashes and signals to it, as it is not a rank."""
        if self.monitor is not None:
            self.monitor.forget()

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        self._free_reserve()
        if self.foreign():
            self.child_status = 1
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
            self._end_child()
            return
        error = getattr(sys, "last_value", None)
        if isinstance(error, Exception) and sys.excepthook != self._on_exception:
            # Another excepthook replaced this one and has printed the traceback: only end the job.
            rank, size, host, step = self.identity()
            self.fail(describe_exit(rank, size, host, step, f"raised {type(error).__name__}", 1, ""), 1)
        raised = unwinding.uncaught()
        if raised is not None and (code := _exit_code(raised.code)):
            # If the status is a text, Python has printed it already.
            reason = f"raised SystemExit({raised.code!r})"
            self.fail(
                describe_exit(*self.identity(), reason, code, _raising_line(raised.__traceback__)), code
            )
        if self.communicator is not None and not self.finished:
            self.finished = True
            if self.watchdog is not None:
                self.watchdog.disarm()
            try:
                self.communicator.finish()
            except CommunicatorError as error:
                time.sleep(FINISH_TIME)
                self.fail(describe_failure(*self.identity(), error, error.__traceback__), 1)
            if self.watchdog is not None:
                self.watchdog.stop()
            if self.monitor is not None:
                self.monitor.end()
                if self.monitor.is_abandoned():
                    # MPI_Finalize of Open MPI would wait for the launcher, 12 s a rank.
                    _flush(sys.stdout)
                    _flush(sys.stderr)
                    self._leave(LAUNCHER_LOST)

    def _end_child(self) -> None:
        """End a forked child here: mpi4py would finalize MPI in it, in its parent's name, and end the job."""
        if self.communicator is None:
            return
        raised = unwinding.uncaught()
        status = self.child_status if raised is None else _exit_code(raised.code)
        _flush(sys.stdout)
        _flush(sys.stderr)
        self._leave(status)


class AgreedExit(SystemExit):
    """``SystemExit`` that every rank raises, so that none is left to be terminated."""


class TrackedExit(SystemExit):
    """``SystemExit`` that ends the job if it leaves the program uncaught with a non-zero status."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        guard = _guard
        main = threading.current_thread() is threading.main_thread()
        self._line, self._action = "", ""
        self._tracked = bool(_exit_code(self.code)) and main and guard is not None and not guard.foreign()
        if self._tracked:
            called = sys._getframe(1).f_code is Guard.exit.__code__
            frame = sys._getframe(2 if called else 1)
            self._action = "called sys.exit" if called else "raised SystemExit"
            self._line = _format_line(frame, frame.f_lineno)

    def __del__(self) -> None:
        guard = _guard
        if guard is None or _has_calling_frame():
            return
        if guard.foreign():
            guard.child_status = _exit_code(self.code)
            return
        if not self.__dict__.get("_tracked"):
            return
        if guard.leaving:
            return  # It was caught and kept: an uncaught one is finalized before the exit functions run.
        code = _exit_code(self.code)
        message = f"{self.code}\n" if not isinstance(self.code, int) else ""
        reason = f"{self._action}({self.code!r})"
        guard.fail(describe_exit(*guard.identity(), reason, code, self._line + message), code)


def _format_line(frame: FrameType, number: int) -> str:
    """Line ``number`` of the code of ``frame`` in the format of a traceback."""
    return f'  File "{frame.f_code.co_filename}", line {number}, in {frame.f_code.co_name}\n'


def _raising_line(traceback: TracebackType | None) -> str:
    """The innermost line of ``traceback``, where the exception was raised; empty without a traceback."""
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return _format_line(traceback.tb_frame, traceback.tb_lineno)


def _has_calling_frame() -> bool:
    """Whether a Python frame is below the ``__del__`` that calls this; none is when the program ends."""
    try:
        sys._getframe(2)
    except ValueError:
        return False
    return True


def _exit_code(status: object) -> int:
    """The status that a shell sees for ``sys.exit(status)``, but 1 for one that would wrap to 0."""
    if status is None:
        return 0
    if not isinstance(status, int):
        return 1
    return status & 0xFF or int(bool(status))


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        return  # A closed stream, or None, has nothing to flush, and the report must still be printed.


def _write(text: str) -> None:
    """Write the report to standard error in one call, so that output of other ranks cannot interleave."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return  # Standard error is closed: the report is lost, but the job must still end.


def _wait_until_read() -> None:
    """Wait until the pipe behind standard error is empty; return at once if it is a file or a terminal."""
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
        return  # The system does not report how much is unread: wait for the forwarding time only.


_guard: Guard | None = None


def install(facts: RankFacts, environment: Mapping[str, str]) -> Guard:
    """Install the hooks of this process at the first call; return them at each."""
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


def monitor() -> MonitorClient | None:
    """Return this rank's connection to the monitor of its host; None outside of a job of several ranks."""
    return None if _guard is None else _guard.monitor


testimony = monitor
"""The former name of ``monitor``, for scripts."""


def fail(error: BaseException, code: int = 1) -> NoReturn:
    """Report ``error`` as this rank's failure and end the job; in a job of one rank, raise it."""
    if _guard is None:
        raise error
    _guard.fail(describe_failure(*_guard.identity(), error, error.__traceback__), code)
