"""``epilogue``: the op of a node for a product fused with the elementwise steps on its result."""

from __future__ import annotations

from typing import Any

from tenon.engine.op import Kind, Op, table


class Epilogue(Op):
    """``base`` on the first ``count`` arguments, then each of ``steps`` ("add", "mul") with an argument more.

    Not in the op table, since only a pass makes it. Backends that take it do the steps before the result is
    written (``prepare``); else they run apart.
    """

    kind = Kind.CONTRACT
    packable = True

    def __init__(self) -> None:
        # Not Op's own: that would put it into the table.
        self.name = self.__name__ = "epilogue"
        self.variadic, self.simple, self.is_ufunc, self.differentiable = True, False, False, False

    def infer(self, *xs: Any, base: Op, count: int, steps: tuple[str, ...], attrs: dict[str, Any]) -> Any:
        """The product's own aval."""
        return base.infer(*xs[:count], **attrs)

    def forward(
        self, backend: Any, *xs: Any, base: Op, count: int, steps: tuple[str, ...], attrs: dict[str, Any]
    ) -> Any:
        """One after the other, on ``backend``'s kernels."""
        made = backend.kernels[base](*xs[:count], **attrs)
        for step, operand in zip(steps, xs[count:], strict=True):
            made = backend.kernels[table[step]](made, operand)
        return made

    def __reduce__(self) -> Any:
        return "epilogue"


epilogue = Epilogue()
