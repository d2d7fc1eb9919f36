"""Write gradients directly into their bucket, large matrix products without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.engine.accumulate import DESTINATION
from tenon.tensors.tensor import Tensor

LARGE = 1 << 14
"""Elements of a matrix from which avoiding the copy pays off."""


class BucketDestination:
    """The ``GradientDestination`` of ``parameter`` in its bucket; ``arrived`` is called for each gradient."""

    __slots__ = ("_arrived", "_large", "_parameter", "_place_of")

    def __init__(
        self, synchronizer: GradientSynchronizer, parameter: Tensor, arrived: Callable[[Tensor], None]
    ) -> None:
        self._place_of, self._parameter, self._arrived = synchronizer.place_of, parameter, arrived
        self._large = len(parameter.shape) == 2 and parameter.numel() >= LARGE

    def take(self, grad: Any) -> Any:
        """``grad`` in its slot of the bucket; None while that is in use or before buckets exist."""
        place = self._place_of(self._parameter)
        return None if place is None or grad.dtype != place[0].flat.dtype else place[0].take(place[1], grad)

    def ops(self, f: Any) -> Any:
        """``f`` with a ``matmul`` that writes into the bucket once."""
        place = self._place_of(self._parameter) if self._large else None
        offered = None if place is None else place[0].offer(place[1])
        return f if offered is None else _MatmulInto(f, self._parameter._backend, offered)

    def arrived(self) -> None:
        """Callback of backward after it accumulated the gradient."""
        self._arrived(self._parameter)


class _MatmulInto:
    """The ops of ``f``; the first product of two matrices that fits is computed into ``place``."""

    __slots__ = ("_backend", "_f", "_place")

    def __init__(self, f: Any, backend: Any, place: Any) -> None:
        self._f, self._backend, self._place = f, backend, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._f, name)

    def matmul(self, x: Any, y: Any) -> Any:
        place, self._place = self._place, None
        if place is not None and self._backend.matmul_into(x, y, place):
            return place
        return self._f.matmul(x, y)


__all__ = ["DESTINATION", "BucketDestination"]
