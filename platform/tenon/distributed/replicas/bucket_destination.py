"""Write gradients directly into their bucket, large matrix products without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.engine.accumulate import DESTINATION
from tenon.engine.types import Array, OpNamespace
from tenon.kernels.backend import Backend
from tenon.tensors.tensor import Tensor

LARGE = 1 << 14
"""Elements of a matrix from which avoiding the copy pays off."""


class BucketDestination:
    """The ``GradientDestination`` of ``parameter`` in its bucket; ``arrived`` is called for each gradient."""

    __slots__ = ("_arrived", "_large", "_parameter", "_slot_of")

    def __init__(
        self, synchronizer: GradientSynchronizer, parameter: Tensor, arrived: Callable[[Tensor], None]
    ) -> None:
        self._slot_of, self._parameter, self._arrived = synchronizer.slot_of, parameter, arrived
        self._large = len(parameter.shape) == 2 and parameter.numel() >= LARGE

    def take(self, grad: Array) -> Array | None:
        """``grad`` in its slot of the bucket; None while the slot is in use or before buckets are built."""
        slot = self._slot_of(self._parameter)
        return None if slot is None or grad.dtype != slot[0].flat.dtype else slot[0].take(slot[1], grad)

    def ops(self, f: OpNamespace) -> OpNamespace:
        """``f`` with a ``matmul`` that writes into the bucket once."""
        slot = self._slot_of(self._parameter) if self._large else None
        out = None if slot is None else slot[0].offer(slot[1])
        return f if out is None else MatmulInto(f, self._parameter._backend, out)

    def arrived(self) -> None:
        """Callback of backward after it accumulated the gradient."""
        self._arrived(self._parameter)


class MatmulInto:
    """The ops of ``f``, with a ``matmul`` that computes its first result into ``out`` if the shapes fit."""

    __slots__ = ("_backend", "_f", "_out")

    def __init__(self, f: OpNamespace, backend: Backend, out: np.ndarray) -> None:
        self._f, self._backend = f, backend
        self._out: np.ndarray | None = out

    def __getattr__(self, name: str) -> Any:  # any op
        return getattr(self._f, name)

    def matmul(self, x: Array, y: Array) -> Array:
        out, self._out = self._out, None
        if out is not None and self._backend.matmul_into(x, y, out):
            return out
        return self._f.matmul(x, y)


__all__ = ["DESTINATION", "BucketDestination"]
