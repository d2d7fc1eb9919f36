"""Libraries that take turns, each in a process of its own: what ``eager.py`` and ``cpu.py`` share.

A parent asks its workers, one at a time, to build something and to time it; the others sleep meanwhile. So
neither the waiting threads nor the allocator of one disturbs another, and a slow minute of the machine is slow
for all of them.
"""

import multiprocessing
import os
import sys
import time

#: Set before the libraries are imported: their thread pools read it then.
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def received(pipe):
    """The next order; None when the parent has gone, too."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def timed(step, count, clock):
    """Seconds a step; the first of a block fills the caches and wakes the threads, and is not counted."""
    step()
    begin = clock()
    for _ in range(count):
        step()
    return (clock() - begin) / count


def clock_of(cpu_time):
    """The clock to time with: processor time, for a busy machine, or wall time."""
    return time.process_time if cpu_time else time.perf_counter


def import_library(library, threads):
    """tenon, torch or jax, with its number of threads set."""
    if library == "torch":
        import torch

        torch.set_num_threads(threads)
        return torch
    if library == "jax":
        import jax

        return jax
    import tenon

    return tenon


class Worker:
    """A library in a process of its own; ``serve(library, threads, cpu_time, pipe)`` runs there.

    ``serve`` sends the library's version first, then an answer for every order, until the order is None.
    """

    def __init__(self, serve, library, threads, cpu_time=False, environment=()):
        self.library = library
        before = {name: os.environ.get(name) for name in (*POOLS, *dict(environment))}
        os.environ.update(dict.fromkeys(POOLS, str(threads)) | dict(environment))
        context = multiprocessing.get_context("spawn")
        self.pipe, end = context.Pipe()
        self.process = context.Process(target=serve, args=(library, threads, cpu_time, end), daemon=True)
        self.process.start()
        end.close()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        try:
            self.version = self.pipe.recv()
        except EOFError:
            sys.exit(f"{library} did not start; its own error is above.")

    def ask(self, *order):
        """The worker's answer."""
        self.pipe.send(order)
        try:
            return self.pipe.recv()
        except EOFError:
            sys.exit(f"{self.library} failed at {order}; its own error is above.")

    def close(self):
        """End the process."""
        self.pipe.send(None)
        self.process.join()
