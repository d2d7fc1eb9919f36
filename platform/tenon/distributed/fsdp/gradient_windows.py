"""Memory for the gradients of a module in which the other ranks of a host read them when they are reduced.

There are two pieces, used in turn: what is reduced by one collective call is read until the next begins, so
that the gradients of the next module need another place.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.fsdp.buffers import Holder

if TYPE_CHECKING:
    from tenon.distributed.communication.communicator import Communicator

MOST_BYTES = 512 << 20
"""Of address space for the gradients of a module, of all ranks and twice."""


class GradientWindows:
    """The pieces of a group of ranks; none at first, and where ranks cannot read each other's memory."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._memory: list[np.ndarray] = []
        self._users: list[weakref.ref[Holder] | None] = [None, None]
        self._turn = 0
        self._size = 0
        self._is_refused = False

    def take(self, size: int) -> np.ndarray | None:
        """``size`` bytes of undefined content; None if the piece is too small, or an array in it is left."""
        user = self._users[self._turn]
        if not self._memory or size > self._size or (user is not None and user() is not None):
            return None
        holder = Holder(self._memory[self._turn])
        self._users[self._turn] = weakref.ref(holder)
        return np.asarray(holder)[:size]

    def next(self, size: int) -> None:
        """After a reduction of ``size`` bytes, which all ranks have made, let the other piece be the next.

        Collective: if the pieces are smaller, larger ones take their place.
        """
        self._turn ^= 1
        if size <= self._size or self._is_refused or 2 * size * self._communicator.size > MOST_BYTES:
            return
        found = [self._communicator.readable_memory(size, name="gradients") for _ in range(2)]
        pieces = [each for each in found if each is not None]
        if len(pieces) < 2:
            self._is_refused = True  # smaller ones stay in use
        else:
            self._memory, self._size, self._users = pieces, size, [None, None]
