"""Time all-reduce of float32 arrays: one plain MPI call, the communicator, and its share of checking.

``mpirun -n 2 python tests/distributed/programs/all_reduce_speed.py``; best of 15 interleaved repeats.
"""

import sys
import time

import numpy as np
from mpi4py import MPI

from tenon.distributed import get_communicator
from tenon.distributed.calls import Call

SIZES = [int(float(text) * 2**10) for text in sys.argv[1:]] or [
    4 << 10,
    64 << 10,
    1 << 20,
    16 << 20,
    64 << 20,
]
communicator = get_communicator()
plain = MPI.COMM_WORLD.Dup()
call = Call("all_reduce", "sum", (1,), "float32", "bench")


def seconds(action, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - start) / repeats


for size in SIZES:
    array = np.zeros(size // 4, np.float32)
    repeats = max(1, min(200, (8 << 20) // size))
    contenders = {
        "plain": lambda array=array: plain.Allreduce(MPI.IN_PLACE, array),
        "tenon": lambda array=array: communicator.all_reduce(array, out=array, name="bench"),
        "check": lambda: communicator.agree(call),
    }
    times = {name: [] for name in contenders}
    for _ in range(15):
        for name, action in contenders.items():
            communicator.barrier()
            times[name].append(seconds(action, repeats))
    if communicator.rank == 0:
        best = {name: min(values) for name, values in times.items()}
        rates = {
            name: f"{value * 1e6:9.1f} us {size / value / 1e9:5.2f} GB/s" for name, value in best.items()
        }
        share = best["check"] / best["tenon"]
        print(
            f"{size / 2**10:8.0f} KB  plain {rates['plain']}  tenon {rates['tenon']}"
            f"  check {best['check'] * 1e6:5.1f} us, {share:.1%} of it",
            flush=True,
        )
