"""The meta device: tensors with shape and dtype but no data.

Its arrays are ``Aval``s and its kernels the shape rules of ops (``infer``), so that ops compute nothing and
allocate nothing. ``nn.Linear(..., device="meta")`` followed by ``to_empty`` uses it.
"""

from __future__ import annotations

import numpy as np

from tenon.device import Device
from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Op
from tenon.engine.types import Operand
from tenon.errors import NoDataError
from tenon.kernels.backend import Backend, Kernel, MemoryStats

_META = Device("meta")


class MetaBackend(Backend):
    """Backend of ``device="meta"``."""

    name = "meta"
    array_type = Aval

    def bind(self, op: Op) -> Kernel:
        """Return the op's shape rule ``infer`` as its kernel."""
        if op.residuals:
            return lambda *args, **attrs: (*_several(op.infer(*args, **attrs)), *([None] * op.residuals))
        return _of_numbers(op) if op.promotion is not None else op.infer

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Aval:
        """The Aval of this shape and dtype."""
        return Aval(tuple(shape), dtype)

    def from_host(self, array: np.ndarray, device: Device) -> Aval:
        """The Aval of ``array``; its data is dropped."""
        return Aval(array.shape, array.dtype)

    def to_host(self, array: Aval) -> np.ndarray:
        """Raise NoDataError: there is no data."""
        raise NoDataError(
            "Cannot copy out of meta tensor; no data! Use module.to_empty(device=...) to allocate it, then"
            " initialise or load."
        )

    def as_array(self, value: Operand) -> Operand:
        """Return ``value`` itself."""
        return value

    def shares_memory(self, a: Aval, b: Aval) -> bool:
        """Return False: there is no memory."""
        return False

    def device_of(self, array: Aval) -> Device:
        """The device ``meta``."""
        return _META

    def memory(self, device: Device | None = None) -> MemoryStats:
        """Return zeros: nothing is allocated."""
        return MemoryStats(0, 0, None)


def _several(avals: Aval | tuple[Aval, ...]) -> tuple[Aval, ...]:
    return avals if isinstance(avals, tuple) else (avals,)


def _of_numbers(op: Op) -> Kernel:
    """Return ``op.infer`` as a kernel; of Python numbers alone, as in gradient rules, it returns a number."""

    def call(*args: Operand, **attrs: object) -> Operand:
        for a in args:
            if a.__class__ is Aval:
                return op.infer(*args, **attrs)
        return op.forward(np, *args, **attrs).item()  # type: ignore[attr-defined]

    return call


META = MetaBackend()
Composite.shapes = META.raw
