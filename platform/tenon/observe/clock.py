"""Which process this is, and one clock for all ranks.

``perf_counter`` is one clock for all processes of a host. On several hosts ``align`` compares clocks at
the ends of barriers, which all ranks leave together; who calls it does so on all ranks.
"""

from __future__ import annotations

import json
import socket
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenon.distributed import world
from tenon.distributed.communicator import Communicator

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_DAY = 86_400_000_000_000
_ROUNDS = 15


@dataclass(frozen=True, slots=True)
class Place:
    """This process among the ranks."""

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
    """Processes of one id share ``perf_counter``."""
    wall: int
    base: int
    offset: int = 0
    """What ``wall`` has of another host's."""
    error: int = 0
    """How far the barriers disagreed about ``offset``."""
    aligned: bool = False


def place() -> Place:
    """As the communicator says, if there is one; none is made."""
    found = world.current()
    if found is None:
        return Place(0, 0, 1, 0, socket.gethostname(), "local")
    return Place(found.rank, found.local_rank, found.size, found.node, found.host, found.name)


def own_clock() -> Clock:
    """This host's."""
    readings = [(time.time_ns() - time.perf_counter_ns()) for _ in range(5)]
    wall = sorted(readings)[len(readings) // 2]
    now = time.time_ns()
    boot = _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
    return Clock(boot, wall, now - now % _DAY)


def align(communicator: Communicator) -> Clock:
    """Rank 0's clock on every rank; all ranks of ``communicator`` call this together."""
    own = own_clock()
    times = []
    for _ in range(_ROUNDS):
        communicator.barrier()
        times.append(time.perf_counter_ns() + own.wall)
    said = [own.id, own.wall, own.base, times]
    told: list[Any] = [
        json.loads(text)
        for text in communicator.all_gather_bytes(json.dumps(said).encode(), name="clocks of profiles")
    ]
    first_id, first_wall, base, first_times = told[0]
    if own.id == first_id:
        return Clock(own.id, first_wall, base, first_wall - own.wall, 0, True)
    gaps = [theirs - mine for theirs, mine in zip(first_times, times, strict=True)]
    offset = round(statistics.median(gaps))
    error = round(statistics.median(abs(gap - offset) for gap in gaps))
    return Clock(own.id, own.wall + offset, base, offset, error, True)
