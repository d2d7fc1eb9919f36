"""``epilogue``: the op of a call that computes a product, and elementwise steps on its result, by one
kernel."""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Op, table
from tenon.engine.types import Array, Attrs, Operand
from tenon.kernels.backend import Backend


class Epilogue(Op):
    """Apply ``base`` to the first ``count`` arguments, then each of ``steps`` ("add", "mul") with one more.

    Not in the op table, as only a pass inserts it. Backends that support it (``prepare``) do the steps before
    the result is stored; on others the ops run one by one.
    """

    kind = Kind.CONTRACT
    packable = True

    def __init__(self) -> None:
        # Op.__init__ would register it in the table.
        self.name = self.__name__ = "epilogue"
        self.variadic, self.simple, self.is_ufunc, self.differentiable = True, False, False, False

    def infer(self, *xs: Operand, base: Op, count: int, steps: tuple[str, ...], attrs: Attrs) -> Aval:
        """Return the aval of the product."""
        return base.infer(*xs[:count], **attrs)

    def forward(
        self, backend: Backend, *xs: Array, base: Op, count: int, steps: tuple[str, ...], attrs: Attrs
    ) -> Array:
        """Run the ops one by one with the kernels of ``backend``."""
        result = backend.kernels[base](*xs[:count], **attrs)
        for step, operand in zip(steps, xs[count:], strict=True):
            result = backend.kernel_for(table[step], (result,))(result, operand)
        return result

    def __reduce__(self) -> str:
        return "epilogue"


epilogue = Epilogue()
