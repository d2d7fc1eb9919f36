"""The process's place among the ranks, and a clock shared by all ranks.

``perf_counter`` is one clock for all processes of a host. On several hosts ``align`` compares clocks at
barriers; who calls it does so on all ranks.
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
    """How far ``offset`` can be off."""
    aligned: bool = False
    at: int = 0
    """When it was compared, by itself."""


def place() -> Place:
    """The place by the communicator, if one exists; none is created."""
    found = world.current()
    if found is None:
        return Place(0, 0, 1, 0, socket.gethostname(), "local")
    return Place(found.rank, found.local_rank, found.size, found.node, found.host, found.name)


def own_clock() -> Clock:
    """This host's clock, not aligned with other hosts."""
    readings = [(time.time_ns() - time.perf_counter_ns()) for _ in range(5)]
    wall = sorted(readings)[len(readings) // 2]
    now = time.time_ns()
    boot = _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
    return Clock(boot, wall, now - now % _DAY)


def align(communicator: Communicator) -> Clock:
    """Rank 0's clock on every rank; all ranks of ``communicator`` call this together.

    Nobody leaves a barrier before all have come. So what is to be added to a rank's clock is at least when
    rank 0 came less when the rank left, and at most when rank 0 left less when the rank came, whoever was
    held up where. Barriers go on until all ranks know it well enough; ``error`` is how far it can be off,
    with what clocks may drift by meanwhile.
    """
    own, begun = own_clock(), time.perf_counter_ns()
    passed: list[list[list[int]]] = [[] for _ in range(communicator.size)]
    for _ in range(_TURNS):
        times = []
        for _ in range(_ROUNDS):
            came = time.perf_counter_ns() + own.wall
            communicator.barrier()
            times.append((came, time.perf_counter_ns() + own.wall))
        said = json.dumps([own.id, own.wall, own.base, times]).encode()
        announced: list[Any] = [
            json.loads(text) for text in communicator.all_gather_bytes(said, name="clocks of profiles")
        ]
        for known, (*_, theirs) in zip(passed, announced, strict=True):
            known += theirs
        first_id, first_wall, base, _ = announced[0]
        ranges = [
            (0, 0) if each[0] == first_id else _between(passed[0], known)
            for each, known in zip(announced, passed, strict=True)
        ]
        if all(most - least <= _GOAL for least, most in ranges):
            break
    now = time.perf_counter_ns()
    if own.id == first_id:
        return Clock(own.id, first_wall, base, first_wall - own.wall, 0, True, now + first_wall)
    least, most = ranges[communicator.rank]
    offset = (least + most) // 2
    wall = own.wall + offset
    error = abs(most - least) // 2 + 1 + round(DRIFT * (now - begun))
    return Clock(own.id, wall, base, offset, error, True, now + wall)


def _between(first: list[list[int]], theirs: list[list[int]]) -> tuple[int, int]:
    """What is to be added to a clock, at least and at most, by when both came to barriers and left them."""
    pairs = list(zip(first, theirs, strict=True))
    least = max(one[0] - other[1] for one, other in pairs)
    return least, min(one[1] - other[0] for one, other in pairs)
