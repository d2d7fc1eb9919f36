"""Gradients in a program's buffers, and how those to which a caller still refers remain valid.

A run overwrites the gradients of the previous run, whereas eager code allocates new ones in each step. So a
run first reads their reference counts, which takes 30 ns apiece: a tensor that is still referenced gets a
copy of its data. An array, or a view of one, cannot be moved to other memory: while it is referenced the call
runs eagerly, and from then on the program returns that gradient as a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from sys import getrefcount

import numpy as np

from tenon.errors import DivergedError
from tenon.graph.recording import FinalGradient, Leaves
from tenon.kernels.backend import Backend
from tenon.tensors.tensor import Tensor

#: The reference count of a tensor, and of its array, if no caller keeps one.
OWN = 3


class ProgramGradients:
    """The gradients of one program, each with the leaf that receives it.

    ``copied()`` is called when some are returned as copies from now on.
    """

    def __init__(self, backend: Backend, arena: np.ndarray, copied: Callable[[], None]) -> None:
        self.backend, self.arena, self.copied = backend, arena, copied
        self.memory = (ctypes.c_char * arena.nbytes).from_buffer(arena)  # type: ignore[arg-type]  # NumPy's stubs
        self.finals: list[FinalGradient] = []
        #: Tensors over the program's memory, which leaves receive, or copies of them.
        self.tensors: list[Tensor] = []
        #: Whether the leaf receives a copy.
        self.returned_as_copy: list[bool] = []
        #: The tensors, then their arrays.
        self.watched: list[Tensor | np.ndarray] = []
        #: The expected sum of the reference counts of ``watched``, in a list that generated code reads.
        self.total = [0]

    def owns(self, array: np.ndarray) -> bool:
        """Whether an output is in the arena, which every run overwrites."""
        return array.base is self.arena

    def add(self, array: np.ndarray, final: FinalGradient) -> int:
        """Add the gradient that a run computes in ``array``; return its index in ``tensors``."""
        # A view refers to the array that owns its memory. An array over a ctypes buffer counts as an owner,
        # so that views of this one refer to it, not to the arena.
        offset = array.ctypes.data - self.arena.ctypes.data
        own = np.ndarray(array.shape, array.dtype, self.memory, offset, array.strides)  # type: ignore[arg-type]
        self.tensors.append(Tensor._of(own, self.backend))
        self.finals.append(final)
        self.returned_as_copy.append(False)
        return len(self.tensors) - 1

    def store_counts(self) -> None:
        """Store the reference counts, before a caller can hold references."""
        self.watched[:] = [*self.tensors, *[tensor.raw for tensor in self.tensors]]
        self.total[0] = OWN * len(self.watched) + sum(map(self.stays, range(len(self.tensors))))

    def stays(self, index: int) -> bool:
        """Whether the leaf usually still refers to the tensor when the next run begins."""
        return not (self.finals[index].without or self.returned_as_copy[index])

    def separate(self, leaves: Leaves) -> None:
        """Separate the gradients that callers keep; DivergedError if this call must run eagerly for that."""
        counts = [*map(getrefcount, self.watched)]
        for index, final in enumerate(self.finals):
            if counts[index] > OWN + (final.leaf(leaves)._grad is self.tensors[index]):
                self._replace(index)
        count = len(self.tensors)
        counts = [*map(getrefcount, self.watched)]
        in_use = {index for index in range(count) if counts[count + index] > OWN}
        if in_use:
            self._copy(in_use)
            raise DivergedError(
                "an array or a view of a gradient of an earlier call is still in use. From now on such"
                " gradients are copies; keep the gradient itself, which is copied only when that is needed."
            )

    def _replace(self, index: int) -> None:
        """Move the data of a tensor that a caller keeps to a copy, and create a new tensor for the leaf."""
        tensor = self.tensors[index]
        array = tensor.raw
        self.tensors[index] = self.watched[index] = Tensor._of(array, self.backend)
        tensor.raw = array.copy()

    def _copy(self, indices: set[int]) -> None:
        """Return these gradients as copies from now on."""
        if all(self.returned_as_copy[index] for index in indices):
            return
        for index in indices:
            self.total[0] -= self.stays(index)
            self.returned_as_copy[index] = True
        self.copied()
