"""Heartbeats: what each rank of a job is doing, in memory that all ranks of a host read.

The table (``heartbeat_table.py``) is memory that the ranks of a host map, with one row per rank, written by
the threads of ``watchdog.py``. The memory has no name in any file system (``memfd``), so that a killed job
leaves nothing behind. A process that cannot open another one's memory (in another container, or on another
system) counts as a host of its own. Rows of other hosts are received as messages.
"""

from __future__ import annotations

import mmap
import os

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes.heartbeat_table import HeartbeatTable, Memory, table_bytes


def create_table(communicator: Communicator, node: int) -> HeartbeatTable:
    """The table of all ranks, in memory shared by the ranks that pass the same ``node``; collective."""
    nodes = [decode(each) for each in _gather(communicator, node)]
    first = nodes.index(node)
    length = table_bytes(communicator.size)
    memory: Memory | None = None
    descriptor = -1
    if first == communicator.rank:
        memory, descriptor = _create_memory(length)
    creators = _gather(communicator, [os.getpid(), descriptor])
    process, opened = decode(creators[first])
    own = -1
    if memory is None or opened >= 0:
        own = _open(process, opened)
        if memory is None and own >= 0:
            memory = mmap.mmap(own, length)
    leaders = [decode(each) for each in _gather(communicator, communicator.rank if memory is None else first)]
    if descriptor >= 0:
        os.close(descriptor)  # All ranks of this host have mapped the memory.
    return HeartbeatTable(bytearray(length) if memory is None else memory, communicator.size, leaders, own)


def _gather(communicator: Communicator, value: int | list[int]) -> list[bytes]:
    """``value`` of all ranks, encoded."""
    return communicator.all_gather_bytes(encode(value), name="heartbeats")


def _create_memory(length: int) -> tuple[Memory, int]:
    """Memory and the descriptor that others open; -1 if it is a process's own, without ``memfd``."""
    create = getattr(os, "memfd_create", None)
    if create is None:
        return bytearray(length), -1
    descriptor = create("tenon-heartbeats")
    os.ftruncate(descriptor, length)
    return mmap.mmap(descriptor, length), descriptor


def _open(process: int, descriptor: int) -> int:
    """A descriptor of this process's own for the memory of another; -1 if it cannot be opened."""
    if descriptor < 0:
        return -1
    try:
        return os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
    except OSError:
        return -1
