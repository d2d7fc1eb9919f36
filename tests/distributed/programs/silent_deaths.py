"""Die in the way that the first argument names, on the last rank, with no hook of Python's running.

Before it dies, the rank writes the time to the file ``CLOCK``; records go to the folder ``RECORDS``, if given.
"""

import ctypes
import mmap
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np

from tenon.distributed.processes import failure, startup

startup.prepare()

from tenon.distributed.processes.launch import launch  # noqa: E402

KIND = sys.argv[1]
communicator = launch()
communicator.step = 17
communicator.barrier()
while not failure.monitor().table.watched:
    time.sleep(0.01)
if "RECORDS" in os.environ:
    failure.monitor().keep_records_in(os.environ["RECORDS"])


def use_up_memory_to_the_last_byte():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    size, batches = 1 << 20, []
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), resource.RLIM_INFINITY))
    while True:
        try:
            batches.append(bytearray(size))
        except MemoryError:
            if size == 1:
                raise
            size //= 2


def read_beyond_a_file():
    descriptor = os.memfd_create("short")
    os.ftruncate(descriptor, 4096)
    memory = mmap.mmap(descriptor, 4096)
    os.ftruncate(descriptor, 0)
    return memory[0]


def kill_launcher(*names):
    process = os.getppid()
    while Path(f"/proc/{process}/comm").read_text().strip() not in names:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    time.sleep(30)


DEATHS = {
    "memory_to_the_last_byte": use_up_memory_to_the_last_byte,
    "immediate_exit": lambda: os._exit(3),
    "exit_in_c": lambda: ctypes.CDLL(None)._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "bus_error": read_beyond_a_file,
    "abort_in_c": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "launcher": lambda: kill_launcher("mpirun", "mpiexec", "mpiexec.hydra", "prterun"),
    "proxy": lambda: kill_launcher("hydra_pmi_proxy", "prted"),
}


def fork(end):
    """Fork a child that uses what its parent used, and ends by ``end``; its wait status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        np.ones(3) @ np.ones(3)
        end()
        raise SystemExit
    return os.waitpid(child, 0)[1]


def raise_error():
    raise ValueError("in a child")


if KIND == "forked":
    statuses = [
        fork(raise_error), fork(lambda: sys.exit(3)), fork(lambda: None), fork(lambda: ctypes.string_at(0)),
        fork(lambda: os._exit(4)), fork(lambda: sys.exit("a text")),
    ]  # fmt: skip
    total = communicator.all_reduce(np.ones(3), name="after").wait()
    if communicator.rank == 0:
        print(statuses, total.tolist())
elif KIND == "all_leave":
    communicator.barrier()
    sys.stdout.flush()
    os._exit(0)
else:
    if communicator.rank == communicator.size - 1:
        time.sleep(0.1)
        Path(os.environ["CLOCK"]).write_text(repr(time.time()))
        DEATHS[KIND]()
    communicator.all_reduce(np.ones(3), name="fc.weight")
