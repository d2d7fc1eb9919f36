"""``reorder``: the op that copies a value from one layout in memory to another.

What a layout is, only the backend knows (``Compiler.layouts``). The value as such is the same: for an
interpreter, which computes on plain arrays, it is the identity.
"""

from __future__ import annotations

from typing import Any

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Op


class Reorder(Op):
    """``x`` in layout ``target`` instead of ``source``; not in the op table, since only a pass makes it."""

    kind = Kind.MEMORY

    def __init__(self) -> None:
        # Not Op's own: that would put it into the table.
        self.name = self.__name__ = "reorder"
        self.variadic, self.simple, self.is_ufunc, self.differentiable = False, False, False, False

    def infer(self, x: Any, *, source: Any, target: Any) -> Aval:
        """The input's own aval."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp: Any, x: Any, *, source: Any, target: Any) -> Any:
        """The value does not change."""
        return x

    def __reduce__(self) -> Any:
        return "reorder"


reorder = Reorder()
