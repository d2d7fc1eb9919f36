"""The layout of the heartbeat table: what each rank of a job is doing, and what the job knows of its failure.

A header for the ranks of a host, then one row per rank; behind them, in the memory's file alone, an area per
rank into which ``faulthandler`` writes when the rank crashes. This file imports nothing of tenon: the monitor
(``host_monitor.py``) imports it alone. ``heartbeats.py`` creates the memory.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from typing import TypeAlias

#: Memory of a table: shared by the ranks of a host, or a process's own.
Memory: TypeAlias = mmap.mmap | bytearray

HEAD = 8192
"""Bytes of the header."""
ROW = 2048
"""Bytes of a rank's row."""
CRASH = 1 << 16
"""Bytes of a rank's area for its crash."""
NO_STEP = -1
_HEADER = struct.Struct("<12qHHH")
_CALL, _PLACE = 256, 256
"""Bytes of the longest texts."""
_STEP = 24
_ENDED = 40
_REPORTED, _FOLDER = 0, 8
_FOLDER_BYTES = 4096
_WATCHED = _FOLDER + 8 + _FOLDER_BYTES
_ABANDONED = _WATCHED + 1


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
    waits: int = 0
    """The number of waits for other ranks that the rank has begun, in collectives of all groups."""
    waited: int = 0
    """Nanoseconds in these waits."""
    data: int = 0
    """Nanoseconds in which the rank has read data."""
    processor: int = 0
    """Nanoseconds of processor time of the process, summed over its threads."""
    queued: int = 0
    """Nanoseconds in which the main thread waited for a core; 0 where the system does not count them."""
    stage: int = 0
    """``Clock.stage``: what the rank computes."""
    call: str = ""
    """The rank's last collective call."""
    stack: str = ""
    """The innermost frames of the rank's Python program, outside of the call."""
    place: str = ""
    """The innermost frame of the user's own code, if it is in no collective call."""


class HeartbeatTable:
    """The heartbeats of all ``size`` ranks; ``leaders[r]`` is the first rank of rank r's host.

    ``descriptor`` is this process's own for the file of shared memory, -1 if it is not shared.
    """

    def __init__(self, memory: Memory, size: int, leaders: list[int], descriptor: int = -1) -> None:
        self._memory = memory
        self.size = size
        self.leaders = leaders
        self.descriptor = descriptor

    def write(self, rank: int, beat: Heartbeat) -> None:
        """Write ``beat`` into the row of ``rank``; long texts are truncated."""
        call, place = beat.call.encode()[:_CALL], beat.place.encode()[:_PLACE]
        stack = beat.stack.encode()[: ROW - _HEADER.size - _CALL - _PLACE]
        head = _HEADER.pack(
            beat.time, beat.calls, beat.waiting, beat.step, beat.process, beat.ended, beat.waits, beat.waited,
            beat.data, beat.processor, beat.queued, beat.stage, len(call), len(stack), len(place),
        )  # fmt: skip
        start = HEAD + rank * ROW
        data = head + call + stack + place
        self._memory[start : start + len(data)] = data

    def write_step(self, rank: int, step: int) -> None:
        """Write the step alone into the row of ``rank``."""
        start = HEAD + rank * ROW + _STEP
        self._memory[start : start + 8] = step.to_bytes(8, "little", signed=True)

    def write_ended(self, rank: int) -> None:
        """Note that the program of ``rank`` has ended."""
        start = HEAD + rank * ROW + _ENDED
        self._memory[start : start + 8] = (1).to_bytes(8, "little")

    def read(self, rank: int) -> Heartbeat:
        """The last heartbeat of ``rank``, zeros before the first; not synchronized with ``write``."""
        start = HEAD + rank * ROW
        return unpack(bytes(self._memory[start : start + ROW]))

    def pack_rows(self, ranks: list[int]) -> bytes:
        """A message for another host: the time, then the rows of ``ranks``."""
        now = struct.pack("<q", time.monotonic_ns())
        return now + b"".join(self._memory[HEAD + r * ROW : HEAD + (r + 1) * ROW] for r in ranks)

    def store_rows(self, ranks: list[int], message: bytes) -> None:
        """Write the rows of a message of ``pack_rows``, with times converted to this host's clock."""
        shift = time.monotonic_ns() - struct.unpack_from("<q", message)[0]
        for index, rank in enumerate(ranks):
            beat = unpack(message[8 + index * ROW : 8 + (index + 1) * ROW])
            beat.time += shift
            beat.waiting += shift if beat.waiting else 0
            self.write(rank, beat)

    @property
    def reporter(self) -> int | None:
        """The rank whose failure this host has reported; None before."""
        found = int.from_bytes(self._memory[_REPORTED : _REPORTED + 8], "little")
        return found - 1 if found else None

    @reporter.setter
    def reporter(self, rank: int) -> None:
        self._memory[_REPORTED : _REPORTED + 8] = (rank + 1).to_bytes(8, "little")

    @property
    def watched(self) -> bool:
        """Whether the monitor of this host is running."""
        return bool(self._memory[_WATCHED])

    @watched.setter
    def watched(self, running: bool) -> None:
        self._memory[_WATCHED : _WATCHED + 1] = bytes([running])

    @property
    def abandoned(self) -> bool:
        """Whether the launcher of this host's ranks has ended: nothing answers to MPI's last calls."""
        return bool(self._memory[_ABANDONED])

    @abandoned.setter
    def abandoned(self, gone: bool) -> None:
        self._memory[_ABANDONED : _ABANDONED + 1] = bytes([gone])

    @property
    def folder(self) -> str:
        """The folder for records of failures; empty if there is none."""
        length = int.from_bytes(self._memory[_FOLDER : _FOLDER + 8], "little")
        return os.fsdecode(bytes(self._memory[_FOLDER + 8 : _FOLDER + 8 + length]))

    @folder.setter
    def folder(self, path: str) -> None:
        data = os.fsencode(path)
        if len(data) <= _FOLDER_BYTES:
            self._memory[_FOLDER : _FOLDER + 8 + len(data)] = len(data).to_bytes(8, "little") + data

    def crash(self, rank: int) -> str:
        """What ``faulthandler``, or ``os._exit``, wrote into the area of ``rank``; empty if nothing."""
        data = os.pread(self.descriptor, CRASH, crash_offset(self.size, rank))
        return data.partition(b"\0")[0].decode(errors="replace")


def table_bytes(size: int) -> int:
    """Bytes of a table of ``size`` ranks that are mapped."""
    return HEAD + size * ROW


def crash_offset(size: int, rank: int) -> int:
    """Where in the memory's file the area of ``rank`` begins."""
    return table_bytes(size) + rank * CRASH


def have_ended(message: bytes) -> bool:
    """Whether the programs of all ranks in a message of ``pack_rows`` have ended."""
    return all(unpack(message[start : start + ROW]).ended for start in range(8, len(message), ROW))


def unpack(row: bytes) -> Heartbeat:
    """The heartbeat in a row."""
    *numbers, call, stack, place = _HEADER.unpack_from(row)
    text = row[_HEADER.size :]
    beat = Heartbeat(*numbers)
    beat.call = text[:call].decode(errors="replace")
    beat.stack = text[call : call + stack].decode(errors="replace")
    beat.place = text[call + stack : call + stack + place].decode(errors="replace")
    return beat
