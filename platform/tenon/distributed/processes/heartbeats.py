"""What each rank of a job does at the moment, where all ranks of a host can read it.

A table in memory that the ranks of a host map, one row a rank, written by the thread of ``watchdog.py``. The
memory has no name in any file system (``memfd``), so that a killed job leaves nothing; where a process cannot
open another one's memory (another container, another system) it is a host by itself. Rows of other hosts
come as messages.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from typing import Any

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode

ROW = 2048
_HEADER = struct.Struct("<6qHH")
_CALL = 256
NO_STEP = -1


@dataclass(slots=True)
class Beat:
    """A rank at one moment. Times are nanoseconds of ``time.monotonic_ns`` on the reader's host."""

    time: int = 0
    calls: int = 0
    """Collective calls that it has begun."""
    waiting: int = 0
    """When it was first seen inside the call that it is in; 0 if it is in none."""
    step: int = NO_STEP
    process: int = 0
    ended: int = 0
    """1 when its program has come to its end."""
    call: str = ""
    """Its last collective call."""
    place: str = ""
    """Where its Python program is."""


class Table:
    """The beats of all ``size`` ranks; ``leaders[r]`` is the first rank of rank r's host."""

    def __init__(self, memory: Any, size: int, leaders: list[int]) -> None:
        self._memory = memory
        self.size = size
        self.leaders = leaders

    def write(self, rank: int, beat: Beat) -> None:
        """Put ``beat`` into the row of ``rank``."""
        call = beat.call.encode()[:_CALL]
        place = beat.place.encode()[: ROW - _HEADER.size - _CALL]
        head = _HEADER.pack(
            beat.time, beat.calls, beat.waiting, beat.step, beat.process, beat.ended, len(call), len(place)
        )
        start = rank * ROW
        text = head + call + place
        self._memory[start : start + len(text)] = text

    def read(self, rank: int) -> Beat:
        """The last beat of ``rank``; all zero if there was none. It may be written at this very moment."""
        return _unpack(bytes(self._memory[rank * ROW : (rank + 1) * ROW]))

    def rows(self, ranks: list[int]) -> bytes:
        """The rows of ``ranks`` and this moment, for another host."""
        now = struct.pack("<q", time.monotonic_ns())
        return now + b"".join(self._memory[rank * ROW : (rank + 1) * ROW] for rank in ranks)

    def take(self, ranks: list[int], rows: bytes) -> None:
        """Rows that a host sent, with its times as this host's."""
        shift = time.monotonic_ns() - struct.unpack_from("<q", rows)[0]
        for index, rank in enumerate(ranks):
            beat = _unpack(rows[8 + index * ROW : 8 + (index + 1) * ROW])
            beat.time += shift
            beat.waiting += shift if beat.waiting else 0
            self.write(rank, beat)


def have_ended(rows: bytes) -> bool:
    """Whether the programs of all ranks in ``rows`` have come to their end."""
    return all(_unpack(rows[start : start + ROW]).ended for start in range(8, len(rows), ROW))


def _unpack(row: bytes) -> Beat:
    *numbers, call, place = _HEADER.unpack_from(row)
    text = row[_HEADER.size :]
    beat = Beat(*numbers)
    beat.call = text[:call].decode(errors="replace")
    beat.place = text[call : call + place].decode(errors="replace")
    return beat


def share(communicator: Communicator, node: int) -> Table:
    """A table for all ranks, shared by those with the same ``node``; all ranks call it."""
    nodes = _gather(communicator, node)
    first = nodes.index(node)
    length = communicator.size * ROW
    memory: Any = None
    descriptor = -1
    if first == communicator.rank:
        memory, descriptor = _make(length)
    makers = _gather(communicator, [os.getpid(), descriptor])
    if memory is None:
        process, opened = makers[first]
        memory = _open(process, opened, length)
    leaders = _gather(communicator, communicator.rank if memory is None else first)
    if descriptor >= 0:
        os.close(descriptor)  # All have mapped it.
    return Table(bytearray(length) if memory is None else memory, communicator.size, leaders)


def _gather(communicator: Communicator, value: Any) -> list[Any]:
    return [decode(one) for one in communicator.all_gather_bytes(encode(value), name="heartbeats")]


def _make(length: int) -> tuple[Any, int]:
    create = getattr(os, "memfd_create", None)
    if create is None:
        return bytearray(length), -1
    descriptor = create("tenon-heartbeats")
    os.ftruncate(descriptor, length)
    return mmap.mmap(descriptor, length), descriptor


def _open(process: int, descriptor: int, length: int) -> Any:
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
