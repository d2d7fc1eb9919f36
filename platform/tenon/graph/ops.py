"""Ops that only graphs need: writes through views, and numbers that Python draws."""

from __future__ import annotations

from typing import Any

from tenon.core.aval import Aval
from tenon.core.op import Kind, Primitive, table


class PutView(Primitive):
    """``x`` with ``value`` in place of one of its views, which ``steps`` (view ops with their attrs) lead
    to."""

    kind = Kind.MEMORY
    inputs = ("x", "value")

    def infer(self, x: Any, value: Any, *, steps: Any) -> Aval:
        """The aval of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp: Any, x: Any, value: Any, *, steps: Any) -> Any:
        """A copy, changed in the region."""
        made = xp.array(x, order="C")
        region = made
        for name, attrs in steps:
            region = table[name].forward(xp, region, **dict(attrs))  # type: ignore[attr-defined]
        region[...] = value
        return made


class HostDraw(Primitive):
    """The array that ``make()`` returns, anew at every run: random numbers that no tensor decides."""

    kind = Kind.RANDOM
    inputs = ()

    def forward(self, xp: Any, *, make: Any) -> Any:
        """Made on the host."""
        return xp.asarray(make())


put_view, host_draw = PutView(), HostDraw()
