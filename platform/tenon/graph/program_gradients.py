"""Gradients stored in a program's buffers, and how references that a caller holds stay valid.

A run overwrites the gradients of the previous run, whereas eager code allocates new ones for each step. So a
run first reads their reference counts, which takes 30 ns apiece: a tensor that is still referenced gets a
copy of its data. An array, or a view of one, cannot be moved to other memory: while it is referenced the call
runs eagerly, and from then on the program returns that gradient as a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from tenon.errors import DivergedError
from tenon.graph.recording import LeftGradient
from tenon.tensors.tensor import Tensor

#: References to a tensor, and to its array, that are counted while nobody outside has one.
OWN = 3


class ProgramGradients:
    """The gradients of one program, each with the leaf that it is left in. ``copied()`` is called when some
    are to be copied from now on."""

    def __init__(self, backend: Any, arena: Any, copied: Callable[[], None]) -> None:
        self.backend, self.arena, self.copied = backend, arena, copied
        self.memory = (ctypes.c_char * arena.nbytes).from_buffer(arena)
        self.lefts: list[LeftGradient] = []
        #: Over the program's memory: what leaves get, or what is copied for them.
        self.tensors: list[Tensor] = []
        #: Whether leaves get copies.
        self.apart: list[bool] = []
        #: The tensors and their arrays, and a list of how many references to all of them there should be.
        self.watched: list[Any] = []
        self.total = [0]

    def owns(self, array: Any) -> bool:
        """Whether an output lies in the memory that a run overwrites."""
        return array.base is self.arena

    def add(self, array: Any, left: LeftGradient) -> int:
        """A gradient that is made in ``array``; its place in ``tensors``."""
        # NumPy lets views refer to the array whose memory is no array's: here to this one.
        place = array.ctypes.data - self.arena.ctypes.data
        seen = np.ndarray(array.shape, array.dtype, self.memory, place, array.strides)
        self.tensors.append(Tensor._of(seen, self.backend))
        self.lefts.append(left)
        self.apart.append(False)
        return len(self.tensors) - 1

    def settle(self) -> None:
        """Note what there is, before anybody else can have any."""
        self.watched[:] = [*self.tensors, *[tensor.raw for tensor in self.tensors]]
        self.total[0] = OWN * len(self.watched) + sum(map(self.stays, range(len(self.tensors))))

    def stays(self, place: int) -> bool:
        """Whether the leaf usually still has the tensor when the next run begins."""
        return not (self.lefts[place].without or self.apart[place])

    def part(self, leaves: list[Any]) -> None:
        """Leave callers what they keep; DivergedError where that takes a call without the program."""
        found = [*map(getrefcount, self.watched)]
        for place, left in enumerate(self.lefts):
            if found[place] > OWN + (left.leaf(leaves)._grad is self.tensors[place]):
                self._replace(place)
        count = len(self.tensors)
        found = [*map(getrefcount, self.watched)]
        kept = {place for place in range(count) if found[count + place] > OWN}
        if kept:
            self._copy(kept)
            raise DivergedError(
                "an array or a view of a gradient of an earlier call is still in use. From now on such"
                " gradients are copies; keep the gradient itself, which is copied only when that is needed."
            )

    def _replace(self, place: int) -> None:
        kept = self.tensors[place]
        array = kept.raw
        self.tensors[place] = self.watched[place] = Tensor._of(array, self.backend)
        kept.raw = array.copy()

    def _copy(self, places: set[int]) -> None:
        if all(self.apart[place] for place in places):
            return
        for place in places:
            self.total[0] -= self.stays(place)
            self.apart[place] = True
        self.copied()
