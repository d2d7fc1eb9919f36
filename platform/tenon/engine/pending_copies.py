"""Copies of state that are being made in the background, such as those of a checkpoint.

The step of an optimizer waits for all of them. Whatever else writes to a tensor calls ``Value._settle``
first, and a compiled step ``wait``.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Sequence

#: The id of a tensor's version counter -> the copy of the tensor, while it is being made.
PENDING: dict[int, concurrent.futures.Future[None]] = {}


if hasattr(os, "register_at_fork"):
    # The thread that makes the copies is not in the child, whose memory no longer is what they are made of.
    os.register_at_fork(after_in_child=PENDING.clear)


def announce(counters: Sequence[list[int]], done: concurrent.futures.Future[None]) -> None:
    """Let writers to the tensors with these version counters wait until ``done``."""
    names = [id(counter) for counter in counters]
    PENDING.update(dict.fromkeys(names, done))

    def forget(_: concurrent.futures.Future[None], kept: Sequence[list[int]] = counters) -> None:
        for name in names:
            if PENDING.get(name) is done:
                del PENDING[name]

    done.add_done_callback(forget)


def wait(counters: Sequence[list[int]]) -> None:
    """Wait for the copies of the tensors that have these version counters."""
    found = [PENDING.get(id(counter)) for counter in counters]
    concurrent.futures.wait([copy for copy in found if copy is not None])


def wait_for_all() -> None:
    """Wait for all copies that are being made."""
    concurrent.futures.wait(list(PENDING.values()))
