"""Ops that only graphs need: writes through views, and numbers that Python draws."""

from __future__ import annotations

from typing import Any

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive, table


class PutView(Primitive):
    """``x`` with ``value`` in place of one of its views, which ``steps`` (view ops with their attrs) lead
    to."""

    kind = Kind.MEMORY
    inputs = ("x", "value")
    reuses = (0,)

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
    """The array that ``make(*x)`` returns, anew at every run: random numbers."""

    kind = Kind.RANDOM
    inputs = ("*x",)

    def forward(self, xp: Any, *x: Any, make: Any) -> Any:
        """Made on the host."""
        return xp.asarray(make(*x))


class HostCall(Primitive):
    """Calls ``call(*arrays)`` in its place among other effects; it changes nothing that the graph reads."""

    kind = Kind.RANDOM
    inputs = ("*x",)
    outputs = 0

    def infer(self, *x: Any, call: Any) -> tuple[Aval, ...]:
        """Nothing comes out."""
        return ()

    def forward(self, xp: Any, *x: Any, call: Any) -> Any:
        """For its effect."""
        call(*x)
        return ()


class HostMap(Primitive):
    """The arrays that ``make(*x)`` returns, computed beside the ops by all ranks together.

    ``places()`` lists the memory in which it best finds each of ``x``, and where it leaves as many results;
    None says that there is none now.
    """

    kind = Kind.COLLECTIVE
    inputs = ("*x",)
    outputs = 0

    def forward(self, xp: Any, *x: Any, make: Any, places: Any = None) -> Any:
        """Made on the host."""
        return tuple(xp.asarray(array) for array in make(*x))


put_view, host_draw, host_call, host_map = PutView(), HostDraw(), HostCall(), HostMap()
