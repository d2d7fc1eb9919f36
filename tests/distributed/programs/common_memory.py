"""Ranks gather into memory that they have in common; a rank that keeps an array has the next one elsewhere."""

import gc

import numpy as np

import tenon.distributed as dist
from tenon_mpi import window

communicator = dist.get_communicator()
rank, size = communicator.rank, communicator.size
own = np.arange(1000, dtype=np.float32) + 1000 * rank
expected = np.arange(1000 * size, dtype=np.float32).reshape(size, 1000)


def gather(memory):
    """The own rows of two arrays in ``memory``."""
    floats = memory[: 4000 * size].view(np.float32).reshape(size, 1000)
    whole = memory[4000 * size :].view(np.int64).reshape(size, 10)
    communicator.all_gather_several([own, np.full(10, rank)], [floats, whole], name="two arrays")
    return floats, whole


def take():
    return communicator.common_memory(4080 * size, name="two arrays")


def place(array):
    return array.__array_interface__["data"][0]


memory = take()
floats, whole = gather(memory)
assert (floats == expected).all() and (whole == np.arange(size)[:, None]).all()
communicator.barrier(name="read")
if rank == 0:
    floats[0, 0] = -1.0  # one place of memory
communicator.barrier(name="written")
assert floats[0, 0] == -1.0

first = place(memory)
del memory, whole
if rank != size - 1:
    del floats  # the last rank still reads
second = take()
assert place(second) != first
del second
if rank == size - 1:
    assert floats[size - 1, 0] == 1000 * rank
    del floats
gc.collect()
assert place(take()) == first  # of the smallest fitting size, and free again

# Ranks that pass results in other places copy as if none were common.
memory = take()
mine = memory if rank else np.empty(4080 * size, np.uint8)
floats, whole = gather(mine)
assert (floats == expected).all()

# What is reduced is read where it is; ranks that have it in other places copy.
for dtype in (np.float32, np.float16, np.int32):
    for op in ("sum", "mean") if dtype is not np.int32 else ("sum",):
        for elsewhere in (None, size - 1):
            item = np.dtype(dtype).itemsize
            memory = communicator.readable_memory(size * 20 * item, name="rows")
            if rank == elsewhere:
                memory = np.empty(size * 20 * item, np.uint8)
            some = memory[: size * 12 * item].view(dtype).reshape(size, 12)
            more = memory[size * 12 * item :].view(dtype).reshape(size, 8)
            some[...], more[...] = np.arange(size)[:, None] + rank, 10 * rank
            outs = [np.empty(12, dtype), np.empty(8, dtype)]
            communicator.reduce_scatter_several([some, more], outs, op, name="rows")
            ranks = np.arange(size)
            total = size if op == "mean" else 1
            assert (outs[0] == (ranks + rank).sum() / total).all(), (dtype, op, elsewhere)
            assert (outs[1] == (10 * ranks).sum() / total).all(), (dtype, op, elsewhere)
            communicator.barrier(name="read")
            del memory, some, more

# No room: nobody gets any.
window.has_room = lambda size: rank != 1
assert communicator.common_memory(1 << 30, name="too much") is None
assert communicator.readable_memory(1 << 30, name="too much") is None
print("common", flush=True)
