"""``reorder``: the op that copies a value from one memory layout to another.

Layouts are defined by the backend (``Compiler.layouts``). The value does not change, so an interpreter, which
computes on plain arrays, returns its input.
"""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Op
from tenon.engine.types import Array, ArrayNamespace, Operand


class Reorder(Op):
    """Copy ``x`` from layout ``source`` to ``target``. Not in the op table, as only a pass inserts it."""

    kind = Kind.MEMORY

    def __init__(self) -> None:
        # Op.__init__ would register it in the table.
        self.name = self.__name__ = "reorder"
        self.variadic, self.simple, self.is_ufunc, self.differentiable = False, False, False, False

    def infer(self, x: Operand, *, source: object, target: object) -> Aval:
        """Return the aval of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp: ArrayNamespace, x: Array, *, source: object, target: object) -> Array:
        """Return ``x``: the value does not change."""
        return x

    def __reduce__(self) -> str:
        return "reorder"


reorder = Reorder()
