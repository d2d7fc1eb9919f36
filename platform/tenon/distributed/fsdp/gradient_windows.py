"""Memory for the gradients of a module in which the other ranks of a host read them when they are reduced.

There are two pieces. What is reduced by one collective call is read until the next begins, so that the
gradients of the next module need another place: the other piece, if no gradients are waiting there, as those
of a module around the next one may.
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
        self._read: int | None = None
        """The piece that other ranks may be reading."""
        self._size = 0
        self._is_refused = False

    def take(self, size: int) -> tuple[np.ndarray, int] | None:
        """``size`` bytes of undefined content and the number of their piece; None if pieces are too small, or
        none is free."""
        if not self._memory or size > self._size:
            return None
        for piece, user in enumerate(self._users):
            if piece != self._read and (user is None or user() is None):
                holder = Holder(self._memory[piece])
                self._users[piece] = weakref.ref(holder)
                return np.asarray(holder)[:size], piece
        return None

    def next(self, size: int, piece: int | None) -> None:
        """After a reduction of ``size`` bytes, which all ranks have made, of those in ``piece``, if they are
        in one: keep it from being written to until the next reduction.

        Collective: if the pieces are smaller, larger ones take their place.
        """
        self._read = piece
        if size <= self._size or self._is_refused or 2 * size * self._communicator.size > MOST_BYTES:
            return
        found = [self._communicator.readable_memory(size, name="gradients") for _ in range(2)]
        pieces = [each for each in found if each is not None]
        if len(pieces) < 2:
            self._is_refused = True  # smaller ones stay in use
        else:
            self._memory, self._size, self._users, self._read = pieces, size, [None, None], None
