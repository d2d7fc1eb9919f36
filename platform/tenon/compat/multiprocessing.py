"""PyTorch's ``torch.multiprocessing``: the standard library's module, and ``spawn``.

Tensors sent to another process are copied. ``tenon launch`` starts and supervises ranks that communicate;
``spawn`` is for scripts that start their own processes.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import *  # noqa: F403
from multiprocessing import connection
from typing import Any, Literal, overload

from tenon.data.sharing import get_all_sharing_strategies, get_sharing_strategy, set_sharing_strategy
from tenon.distributed.processes.orphans import end_with_parent
from tenon.errors import TenonError

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

#: The length to which tracebacks are cut: longer ones may not fit the buffer of the pipe, whose reader waits
#: for the process.
_MAX_TRACEBACK = 16_000


class ProcessRaisedException(TenonError):
    """A process of ``spawn`` raised; the message has its traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, error_pid


class ProcessExitedException(TenonError):
    """A process of ``spawn`` was killed, or exited with a status other than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, error_pid
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable[..., object], index: int, args: Sequence[object], pipe: connection.Connection) -> None:
    end_with_parent()
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent receives it too
    except Exception:
        pipe.send(traceback.format_exc()[-_MAX_TRACEBACK:])
        sys.exit(1)


class ProcessContext:
    """The processes of ``spawn(join=False)``."""

    # Any: a process that has started has a pid and a sentinel, which its class declares optional.
    def __init__(self, processes: list[Any], pipes: list[connection.Connection]) -> None:
        self.processes = processes
        self._pipes = pipes
        self._open = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Return the process ids."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends, at most ``timeout`` seconds; return whether all have succeeded.

        If one failed, the others are terminated, and killed ``grace_period`` seconds later (30 if None);
        then ProcessRaisedException or ProcessExitedException is raised with the reason.
        """
        if not self._open:
            return True
        failed = None
        for sentinel in connection.wait(list(self._open), timeout):
            index = self._open.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode:
                failed = index
                break
        if failed is None:
            return not self._open
        self._end(30.0 if grace_period is None else grace_period)
        process, text = self.processes[failed], _received_traceback(self._pipes[failed])
        if text:
            raise ProcessRaisedException(
                f"\n\n-- Process {failed} terminated with the following error:\n{text}", failed, process.pid
            )
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(
                f"process {failed} terminated with signal {name}", failed, process.pid, code, name
            )
        raise ProcessExitedException(
            f"process {failed} terminated with exit code {code}", failed, process.pid, code
        )

    def _end(self, patience: float) -> None:
        """Terminate all processes; kill those that are alive after ``patience`` seconds."""
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + patience
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._open.clear()


def _received_traceback(pipe: connection.Connection) -> str:
    """Return the traceback that a process has sent; "" if it has sent none."""
    try:
        return str(pipe.recv()) if pipe.poll() else ""
    except EOFError:
        return ""


@overload
def start_processes(
    fn: Callable[..., object],
    args: Sequence[object] = ...,
    nprocs: int = ...,
    join: Literal[True] = ...,
    daemon: bool = ...,
    start_method: str = ...,
) -> None: ...
@overload
def start_processes(
    fn: Callable[..., object],
    args: Sequence[object] = ...,
    nprocs: int = ...,
    join: bool = ...,
    daemon: bool = ...,
    start_method: str = ...,
) -> ProcessContext | None: ...
def start_processes(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(index, *args)`` in ``nprocs`` processes; wait for them, or return their ProcessContext.

    On Linux they receive SIGTERM when the thread that started them ends.
    """
    context: Any = multiprocessing.get_context(start_method)  # its base class declares no Process
    processes, pipes = [], []
    for index in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, index, tuple(args), sender), daemon=daemon)
        process.start()
        sender.close()
        processes.append(process)
        pipes.append(receiver)
    started = ProcessContext(processes, pipes)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., object],
    args: Sequence[object] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call ``start_processes`` with new interpreters: ``fn`` and ``args`` must be picklable."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
