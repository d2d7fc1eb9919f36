"""Detect deadlocks of ranks that use two groups in opposite order: each waits in one group for a rank in
another.

The comparison of calls cannot detect these, as it compares the calls of a group within the group only. Once
``new_group`` has been called, a thread of each rank writes the call and the group that the rank is in into
memory that the ranks of a host share (without a name in any file system). If it finds a cycle of ranks that
wait for each other, it ends the job with a report of their calls and groups. Ranks of other hosts are not
seen: the watchdog ends their wait.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenon.distributed.communication import world
from tenon.distributed.communication.calls import Call, format_ranks
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.errors import CollectiveMismatchError

PERIOD = 0.5
"""Seconds between two searches for cycles."""
PATIENCE = 2.0
"""Seconds for which all ranks of a cycle must have waited."""
ROW = 1024
"""Bytes of a rank's row in the shared memory."""


@dataclass
class Wait:
    """The call that a rank is in: the ``number``-th of the group ``label`` of ``ranks``, for ``seconds``."""

    label: str
    ranks: Sequence[int]
    number: int
    seconds: float
    call: str

    def lacks(self, waits: Mapping[int, Wait]) -> list[int]:
        """Return the ranks of the group that have not made this call."""
        here = self.label, self.number
        return [r for r in self.ranks if r not in waits or (waits[r].label, waits[r].number) != here]


def find_cycle(waits: Mapping[int, Wait]) -> list[int]:
    """Return the ranks of a deadlock: each waits for another one of them."""
    cycle = {rank for rank, wait in waits.items() if wait.seconds >= PATIENCE}
    while True:
        stuck = {rank for rank in cycle if cycle.intersection(waits[rank].lacks(waits))}
        if stuck == cycle:
            return sorted(cycle)
        cycle = stuck


class GroupOrder:
    """Watches the calls of ``communicator``, the process's, and of the groups made of it."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._memory = _share(communicator)
        self._entered: dict[int, tuple[str, Sequence[int], int, float, Call]] = {}
        """The call that each thread is in."""
        self._callers: set[int] = set()
        """The threads that have made calls."""
        self._groups = 0
        self.watch(communicator, "all ranks")
        threading.Thread(target=self._search, name="order of groups", daemon=True).start()

    def label(self) -> str:
        """Return the name of the next group; all ranks of the job must call this equally often."""
        self._groups += 1
        return f"group {self._groups}"

    def watch(self, group: Communicator, label: str) -> None:
        """Record the calls of ``group`` as long as they wait for its ranks; 0.3 us a call."""
        agree, ranks = group.agree, group.ranks
        entered, callers = self._entered, self._callers
        number = 0

        def agree_recorded(call: Call) -> None:
            nonlocal number
            number += 1
            thread = threading.get_ident()
            callers.add(thread)
            outer = entered.get(thread)
            entered[thread] = label, ranks, number, time.monotonic(), call
            try:
                agree(call)
            finally:
                if outer is None:
                    del entered[thread]
                else:
                    entered[thread] = outer

        # Set on the instance, so that engines need no code for it.
        group.agree = agree_recorded  # type: ignore[method-assign]

    def _search(self) -> None:
        rank = self._communicator.rank
        while True:
            time.sleep(PERIOD)
            self._write(rank)
            waits = {other: wait for other in range(self._communicator.size) if (wait := self._read(other))}
            cycle = find_cycle(waits)
            if rank in cycle:
                self._communicator.abort(CollectiveMismatchError(describe(cycle, waits)))

    def _write(self, rank: int) -> None:
        """Write what this rank is in; an empty row if it computes.

        It may compute if another thread than the one that waits makes calls, too.
        """
        text = b""
        calls = list(self._entered.values())
        if len(calls) == 1 and len(self._callers.intersection(sys._current_frames())) == 1:
            label, ranks, number, since, call = calls[0]
            shown = call.describe(self._communicator.step)[: ROW // 2]
            fields = [time.monotonic(), label, list(ranks), number, time.monotonic() - since, shown]
            text = json.dumps(fields).encode()
            text = text if len(text) < ROW else b""
        self._memory[rank * ROW : (rank + 1) * ROW] = text.ljust(ROW, b"\0")

    def _read(self, rank: int) -> Wait | None:
        """What ``rank`` was in a moment ago; None if it computes, or is on another host."""
        text = bytes(self._memory[rank * ROW : (rank + 1) * ROW]).rstrip(b"\0")
        try:
            at, *fields = json.loads(text)
        except ValueError:
            return None  # empty, or being written
        return Wait(*fields) if time.monotonic() - at < 3 * PERIOD else None


def describe(cycle: Sequence[int], waits: Mapping[int, Wait]) -> str:
    """Return the report: the call and the group of each rank of the cycle."""
    lines = []
    for rank in cycle:
        wait = waits[rank]
        lacking = [other for other in wait.lacks(waits) if other in cycle]
        where = wait.label if wait.label == "all ranks" else f"{wait.label} of {format_ranks(wait.ranks)}"
        where += f" (call {wait.number} there)"
        lines.append(f"rank {rank} at {wait.call} in {where} waits for {format_ranks(lacking)}")
    return (
        f"ranks wait for each other in different groups: {'; '.join(lines)}. All ranks must use groups that "
        "have ranks in common in the same order; look for a branch or a loop over groups."
    )


_watching: weakref.WeakKeyDictionary[Communicator, GroupOrder] = weakref.WeakKeyDictionary()


def watch_group(communicator: Communicator, group: Communicator | None) -> None:
    """Watch ``group``, which was made of ``communicator``, if that is the process's; collective."""
    if communicator.size == 1 or communicator is not world.process_communicator():
        return
    if communicator not in _watching:
        _watching[communicator] = GroupOrder(communicator)
    order = _watching[communicator]
    label = order.label()
    if group is not None:
        order.watch(group, label)


def _share(communicator: Communicator) -> mmap.mmap | bytearray:
    """Memory of a row for each rank, shared by the ranks of this host; collective."""
    length = communicator.size * ROW
    first = communicator.local_rank == 0 and hasattr(os, "memfd_create")
    descriptor = os.memfd_create("tenon-groups") if first else -1
    if first:
        os.ftruncate(descriptor, length)
    own = encode([communicator.node, os.getpid(), descriptor])
    created = [decode(each) for each in communicator.all_gather_bytes(own, name="order of groups")]
    memory: mmap.mmap | bytearray = bytearray(length)
    for node, process, number in created:
        if node == communicator.node and number >= 0:
            memory = _open(process, number, length) or memory
    communicator.barrier(name="order of groups")
    if first:
        os.close(descriptor)  # All ranks of this host have mapped the memory.
    return memory


def _open(process: int, descriptor: int, length: int) -> mmap.mmap | None:
    """Map the memory of another process's descriptor; None if it cannot be opened, as in a container."""
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(opened, length)
    finally:
        os.close(opened)
