"""Worker pools of a ``DataLoader``: processes or threads, with one interface.

``submit(worker, task)`` sends a task, ``receive(timeout)`` waits for the next result of any worker,
``close()`` stops them all. Worker processes ignore SIGINT, which the main process handles, and exit when that
has exited.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import queue
import signal
import threading
import warnings
import weakref
from collections.abc import Iterator
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from tenon.data import channel
from tenon.data.serving import Answer, Job, Task, serve
from tenon.data.sharing import get_sharing_strategy
from tenon.engine.op import table
from tenon.errors import WorkerError
from tenon.kernels.backend import backend_named

#: Seconds between an idle worker's checks that its parent is alive, and until a closing worker is killed.
PATIENCE = 2.0

_TOO_MANY = (
    "Too many open files: each large batch from a worker process has one open until it is freed. Store copies"
    " (batch.clone()), raise the limit by `ulimit -n` in the shell, or let batches come through a pipe:"
    " tenon.multiprocessing.set_sharing_strategy('file_system') before the loader is iterated."
)


class ProcessPool:
    """Worker processes, each connected by a pipe."""

    kind = "process"

    def __init__(self, job: Job, context: BaseContext) -> None:
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []
        started = False
        share = get_sharing_strategy() == "file_descriptor"
        if context.get_start_method() == "fork":  # loaded before the fork, not in every worker
            backend_named("cpu").has_kernel(table.stack)
        try:
            for worker_id in range(job.workers):
                own_end, worker_end = connections.Pipe()
                others = [*self.pipes, own_end] if context.get_start_method() == "fork" else []
                work = (job, worker_id, worker_end, others, share)
                process: BaseProcess = context.Process(target=_work, args=work, daemon=True)  # type: ignore[attr-defined]  # of each start method
                with _quiet_fork():
                    process.start()
                worker_end.close()
                self.processes.append(process)
                self.pipes.append(own_end)
            started = True
        finally:
            if not started:
                _end(self.processes, self.pipes, os.getpid())
        self.close = weakref.finalize(self, _end, self.processes, self.pipes, os.getpid())

    def submit(self, worker: int, task: Task) -> None:
        """Send ``worker`` a task."""
        try:
            self.pipes[worker].send(task)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death(worker) from None

    def receive(self, timeout: float | None) -> Answer | None:
        """Return the next result; None after ``timeout`` seconds. WorkerError if a worker died."""
        ready = connections.wait(self.pipes, timeout)
        for pipe in ready:
            assert isinstance(pipe, Connection)
            try:
                return channel.receive(pipe)
            except (EOFError, ConnectionResetError):
                raise self._death(self.pipes.index(pipe)) from None
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                raise WorkerError(_TOO_MANY) from None
        return None

    def _death(self, worker: int) -> WorkerError:
        """The error of a worker that has exited."""
        process = self.processes[worker]
        process.join(PATIENCE)
        code = process.exitcode
        end = f"exited unexpectedly with exit code {code}."
        if code is not None and code < 0:
            end = f"is killed by signal: {signal.Signals(-code).name}."
        if code == -signal.SIGKILL:
            end += " It may have run out of memory: use fewer workers, or smaller batches."
        return WorkerError(f"DataLoader worker (pid {process.pid}) {end} It was worker {worker}.")


def _end(processes: list[BaseProcess], pipes: list[Connection], owner: int) -> None:
    """Close all pipes, which stops the workers; kill those that do not exit.

    Their exit codes remain readable.
    """
    if os.getpid() != owner:  # finalized in a forked child, which does not own the workers
        return
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.send(None)
        pipe.close()
    for process in processes:
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()


@contextlib.contextmanager
def _quiet_fork() -> Iterator[None]:
    """Suppress Python 3.12's warning about fork with threads: backends reset their threads in the child."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*use of fork", category=DeprecationWarning)
        yield


def _work(job: Job, worker_id: int, pipe: Connection, others: list[Connection], share: bool) -> None:
    """Run a worker process: set up signals and threads, then serve tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    backend_named("cpu").set_threads(1)
    tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    # A thread always drains the pipe: otherwise both sides could block in send (deadlock).
    threading.Thread(target=_listen, args=(pipe, tasks, os.getppid()), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(job, worker_id, tasks.get, lambda message: channel.send(pipe, message, share))


def _listen(pipe: Connection, tasks: queue.SimpleQueue[Task | None], parent: int) -> None:
    """Move tasks from the pipe to the queue, until None arrives or the main process has exited."""
    try:
        while os.getppid() == parent:
            if pipe.poll(PATIENCE):
                task: Task | None = pipe.recv()
                tasks.put(task)
                if task is None:
                    return
    except (EOFError, ConnectionResetError):
        return
    finally:
        tasks.put(None)


class ThreadPool:
    """Worker threads: nothing is copied or sent, but Python code is serialised by the GIL."""

    kind = "thread"

    def __init__(self, job: Job) -> None:
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.tasks: list[queue.SimpleQueue[Task | None]] = [queue.SimpleQueue() for _ in range(job.workers)]
        for worker_id, tasks in enumerate(self.tasks):
            thread = threading.Thread(
                target=serve, args=(job, worker_id, tasks.get, self.answers.put),
                name=f"tenon-loader-{worker_id}", daemon=True,
            )  # fmt: skip
            thread.start()
        self.close = weakref.finalize(self, _dismiss, self.tasks)

    def submit(self, worker: int, task: Task) -> None:
        """Send ``worker`` a task."""
        self.tasks[worker].put(task)

    def receive(self, timeout: float | None) -> Answer | None:
        """Return the next result; None after ``timeout`` seconds."""
        try:
            return self.answers.get(timeout=timeout)
        except queue.Empty:
            return None


def _dismiss(tasks: list[queue.SimpleQueue[Task | None]]) -> None:
    for worker in tasks:
        worker.put(None)


def check_context(context: object, workers: int) -> None:
    """Raise ValueError or TypeError for an invalid ``multiprocessing_context``."""
    if workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got"
            f" num_workers={workers}"
        )
    known = [*multiprocessing.get_all_start_methods(), "thread"]
    if isinstance(context, str) and context not in known:
        raise ValueError(
            f"multiprocessing_context option should specify a valid start method in {known}, but got"
            f" multiprocessing_context={context!r}"
        )
    if not isinstance(context, str | multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start"
            f" method, but got multiprocessing_context={context}"
        )


def pool_of(job: Job, context: str | BaseContext | None) -> ProcessPool | ThreadPool:
    """Create the pool for a ``multiprocessing_context``: a start method, a context or "thread"."""
    if context == "thread":
        return ThreadPool(job)
    if context is None:
        methods = multiprocessing.get_all_start_methods()
        context = "fork" if "fork" in methods else "spawn"
    return ProcessPool(job, multiprocessing.get_context(context) if isinstance(context, str) else context)
