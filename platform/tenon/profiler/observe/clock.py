"""The rank and host of this process, and a clock shared by all ranks.

``perf_counter`` is one clock for all processes of a host. On several hosts ``align`` compares clocks at
barriers; all ranks must call it together.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_DAY = 86_400_000_000_000
#: Barriers per round, the maximum number of rounds, and the error in nanoseconds at which to stop.
_ROUNDS, _TURNS, _GOAL = 15, 12, 200_000
#: The assumed relative drift of clocks; that of quartz is a tenth of it.
DRIFT = 500e-6


@dataclass(frozen=True, slots=True)
class Place:
    """Rank, node and host of this process, and the name of its communicator (``engine``)."""

    rank: int
    local_rank: int
    world_size: int
    node: int
    host: str
    engine: str


@dataclass(frozen=True, slots=True)
class Clock:
    """``perf_counter_ns() + wall`` is nanoseconds since 1970 on rank 0's clock; files count from ``base``."""

    id: str
    """Processes with the same id share ``perf_counter``."""
    wall: int
    base: int
    offset: int = 0
    """The part of ``wall`` that corrects for the difference from rank 0's host."""
    error: int = 0
    """The maximum error of ``offset`` in nanoseconds."""
    aligned: bool = False
    at: int = 0
    """When the clocks were compared, in nanoseconds on this clock."""


def place() -> Place:
    """Return the place that the communicator states; a single process if there is no communicator."""
    communicator = world.current()
    if communicator is None:
        return Place(0, 0, 1, 0, socket.gethostname(), "local")
    return Place(
        communicator.rank,
        communicator.local_rank,
        communicator.size,
        communicator.node,
        communicator.host,
        communicator.name,
    )


def own_clock() -> Clock:
    """Return this host's clock, not aligned with other hosts."""
    readings = [(time.time_ns() - time.perf_counter_ns()) for _ in range(5)]
    wall = sorted(readings)[len(readings) // 2]
    now = time.time_ns()
    boot = _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
    return Clock(boot, wall, now - now % _DAY)


def align(communicator: Communicator) -> Clock:
    """Return rank 0's clock on every rank; all ranks of ``communicator`` call this together.

    No rank leaves a barrier before all have entered. So the offset to add to a rank's clock is at least
    rank 0's time of entry minus the rank's time of exit, and at most rank 0's time of exit minus the rank's
    time of entry, whichever rank was late. Barriers are repeated until the offset of every rank is known to
    within ``_GOAL``; ``error`` bounds the remaining error, including the drift of the clocks since.
    """
    own, started = own_clock(), time.perf_counter_ns()
    history: list[list[list[int]]] = [[] for _ in range(communicator.size)]
    for _ in range(_TURNS):
        times = []
        for _ in range(_ROUNDS):
            entered = time.perf_counter_ns() + own.wall
            communicator.barrier()
            times.append((entered, time.perf_counter_ns() + own.wall))
        payload = json.dumps([own.id, own.wall, own.base, times]).encode()
        # For each rank the values in its payload; JSON has no types.
        readings: list[Any] = [
            json.loads(text) for text in communicator.all_gather_bytes(payload, name="clocks of profiles")
        ]
        for previous, (*_, latest) in zip(history, readings, strict=True):
            previous += latest
        first_id, first_wall, base, _ = readings[0]
        ranges = [
            (0, 0) if reading[0] == first_id else _offset_range(history[0], own_history)
            for reading, own_history in zip(readings, history, strict=True)
        ]
        if all(most - least <= _GOAL for least, most in ranges):
            break
    now = time.perf_counter_ns()
    if own.id == first_id:
        return Clock(own.id, first_wall, base, first_wall - own.wall, 0, True, now + first_wall)
    least, most = ranges[communicator.rank]
    offset = (least + most) // 2
    wall = own.wall + offset
    error = abs(most - least) // 2 + 1 + round(DRIFT * (now - started))
    return Clock(own.id, wall, base, offset, error, True, now + wall)


def _offset_range(first: list[list[int]], other: list[list[int]]) -> tuple[int, int]:
    """Return the least and the largest offset of the ``other`` clock, by ``(entry, exit)`` times of barriers.

    ``first`` are the times of rank 0 at the same barriers.
    """
    pairs = list(zip(first, other, strict=True))
    least = max(a[0] - b[1] for a, b in pairs)
    return least, min(a[1] - b[0] for a, b in pairs)
