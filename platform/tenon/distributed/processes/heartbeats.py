"""Heartbeats: what each rank of a job is doing, in memory that all ranks of a host read.

The table is memory that the ranks of a host map, with one row per rank, written by the threads of
``watchdog.py``. The memory has no name in any file system (``memfd``), so that a killed job leaves nothing
behind. A process that cannot open another one's memory (in another container, or on another system) counts as
a host of its own. Rows of other hosts are received as messages.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from typing import TypeAlias

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode

#: Memory of a table: shared by the ranks of a host, or a process's own.
Memory: TypeAlias = mmap.mmap | bytearray

ROW = 2048
"""Bytes of a rank's row."""
_HEADER = struct.Struct("<6qHH")
_CALL = 256
NO_STEP = -1


@dataclass(slots=True)
class Heartbeat:
    """The state of a rank at ``time``. Times are nanoseconds of the reader's monotonic clock."""

    time: int = 0
    calls: int = 0
    """The number of collective calls that the rank has begun."""
    waiting: int = 0
    """When the rank was first seen inside its current collective call; 0 if it is in none."""
    step: int = NO_STEP
    process: int = 0
    ended: int = 0
    """1 once the rank's program has ended."""
    call: str = ""
    """The rank's last collective call."""
    stack: str = ""
    """The innermost frames of the rank's Python program, outside of the call."""


class HeartbeatTable:
    """The heartbeats of all ``size`` ranks; ``leaders[r]`` is the first rank of rank r's host."""

    def __init__(self, memory: Memory, size: int, leaders: list[int]) -> None:
        self._memory = memory
        self.size = size
        self.leaders = leaders

    def write(self, rank: int, beat: Heartbeat) -> None:
        """Write ``beat`` into the row of ``rank``; long texts are truncated."""
        call = beat.call.encode()[:_CALL]
        stack = beat.stack.encode()[: ROW - _HEADER.size - _CALL]
        head = _HEADER.pack(
            beat.time, beat.calls, beat.waiting, beat.step, beat.process, beat.ended, len(call), len(stack)
        )
        start = rank * ROW
        data = head + call + stack
        self._memory[start : start + len(data)] = data

    def read(self, rank: int) -> Heartbeat:
        """The last heartbeat of ``rank``, zeros before the first; not synchronized with ``write``."""
        return _unpack(bytes(self._memory[rank * ROW : (rank + 1) * ROW]))

    def pack_rows(self, ranks: list[int]) -> bytes:
        """A message for another host: the time, then the rows of ``ranks``."""
        now = struct.pack("<q", time.monotonic_ns())
        return now + b"".join(self._memory[rank * ROW : (rank + 1) * ROW] for rank in ranks)

    def store_rows(self, ranks: list[int], message: bytes) -> None:
        """Write the rows of a message of ``pack_rows``, with times converted to this host's clock."""
        shift = time.monotonic_ns() - struct.unpack_from("<q", message)[0]
        for index, rank in enumerate(ranks):
            beat = _unpack(message[8 + index * ROW : 8 + (index + 1) * ROW])
            beat.time += shift
            beat.waiting += shift if beat.waiting else 0
            self.write(rank, beat)


def have_ended(message: bytes) -> bool:
    """Whether the programs of all ranks in a message of ``pack_rows`` have ended."""
    return all(_unpack(message[start : start + ROW]).ended for start in range(8, len(message), ROW))


def _unpack(row: bytes) -> Heartbeat:
    *numbers, call, stack = _HEADER.unpack_from(row)
    text = row[_HEADER.size :]
    beat = Heartbeat(*numbers)
    beat.call = text[:call].decode(errors="replace")
    beat.stack = text[call : call + stack].decode(errors="replace")
    return beat


def create_table(communicator: Communicator, node: int) -> HeartbeatTable:
    """The table of all ranks, in memory shared by the ranks that pass the same ``node``; collective."""
    nodes = [decode(each) for each in _gather(communicator, node)]
    first = nodes.index(node)
    length = communicator.size * ROW
    memory: Memory | None = None
    descriptor = -1
    if first == communicator.rank:
        memory, descriptor = _create_memory(length)
    creators = _gather(communicator, [os.getpid(), descriptor])
    if memory is None:
        process, opened = decode(creators[first])
        memory = _open_memory(process, opened, length)
    leaders = [decode(each) for each in _gather(communicator, communicator.rank if memory is None else first)]
    if descriptor >= 0:
        os.close(descriptor)  # All ranks of this host have mapped the memory.
    return HeartbeatTable(bytearray(length) if memory is None else memory, communicator.size, leaders)


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


def _open_memory(process: int, descriptor: int, length: int) -> mmap.mmap | None:
    """Map the memory of another process's descriptor; None if it cannot be opened."""
    if descriptor < 0:
        return None
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(opened, length)
    finally:
        os.close(opened)
