"""Ops that occur in recorded graphs only: writes through views, and calls of Python functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive, table
from tenon.engine.types import Array, ArrayNamespace, Operand

#: The view ops that derive a view from an array: ``(op's name, items of its attrs)``.
ViewSteps: TypeAlias = tuple[tuple[str, tuple[tuple[str, object], ...]], ...]
#: Returns the arrays that are best for the inputs and results of a collective.
Places: TypeAlias = Callable[[], Sequence[np.ndarray] | None] | None


class PutView(Primitive):
    """Return ``x`` with ``value`` in place of a view of it, which the view ops ``steps`` derive from
    ``x``."""

    kind = Kind.MEMORY
    inputs = ("x", "value")
    reuses = (0,)

    def infer(self, x: Operand, value: Operand, *, steps: ViewSteps) -> Aval:
        """Return the aval of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp: ArrayNamespace, x: Array, value: Array, *, steps: ViewSteps) -> Array:
        """Return a copy of ``x``, changed in the region of the view."""
        result = xp.array(x, order="C")
        region = result
        for name, attrs in steps:
            region = table[name].forward(xp, region, **dict(attrs))  # type: ignore[attr-defined]
        region[...] = value
        return result


class HostDraw(Primitive):
    """Return the array ``make(*x)``, which every run computes again: random numbers."""

    kind = Kind.RANDOM
    inputs = ("*x",)

    def forward(self, xp: ArrayNamespace, *x: Array, make: Callable[..., np.ndarray]) -> Array:
        """Call ``make`` on the host."""
        return xp.asarray(make(*x))


class HostCall(Primitive):
    """Call ``call(*x)``, in order with other effects; it must not change values that the graph reads."""

    kind = Kind.RANDOM
    inputs = ("*x",)
    outputs = 0

    def infer(self, *x: Operand, call: Callable[..., object]) -> tuple[Aval, ...]:
        """Return no avals: there are no outputs."""
        return ()

    def forward(self, xp: ArrayNamespace, *x: Array, call: Callable[..., object]) -> tuple[()]:
        """Call it for its side effect."""
        call(*x)
        return ()


class HostMap(Primitive):
    """Return the arrays ``make(*x)``, which all ranks compute together.

    ``places()`` returns the arrays in which each of ``x`` should be and each result is stored, or None if
    there are no such arrays at present.
    """

    kind = Kind.COLLECTIVE
    inputs = ("*x",)
    outputs = 0

    def forward(
        self, xp: ArrayNamespace, *x: Array, make: Callable[..., Sequence[np.ndarray]], places: Places = None
    ) -> tuple[Array, ...]:
        """Call ``make`` on the host."""
        return tuple(xp.asarray(array) for array in make(*x))


put_view, host_draw, host_call, host_map = PutView(), HostDraw(), HostCall(), HostMap()
