"""The product of all other elements, for the gradient of ``prod``."""

from __future__ import annotations

from tenon.engine.aval import Aval
from tenon.engine.op import Composite
from tenon.engine.types import Operand, OpNamespace


class ProdOfOthers(Composite):
    """For each element, the product over ``axes`` of all others: exclusive running products from both sides,
    which are exact at zeros too."""

    def infer(self, x, *, axes):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def decompose(self, f: OpNamespace, x: Operand, *, axes: tuple[int, ...]) -> Operand:
        """Flatten ``axes`` to the end, multiply the running products of both directions, undo."""
        if not axes or 0 in x.shape:
            return f.new_full(x, shape=tuple(x.shape), value=1, dtype=x.dtype)
        rest = tuple(a for a in range(len(x.shape)) if a not in axes)
        order = rest + axes
        moved = f.permute(x, axes=order)
        shape = tuple(moved.shape)
        flat = f.reshape(moved, shape=(*shape[: len(rest)], -1))
        last = len(rest)
        before = _shifted(f, flat, last)
        after = f.flip(_shifted(f, f.flip(flat, axes=(last,)), last), axes=(last,))
        product = f.reshape(f.mul(before, after), shape=shape)
        back = [0] * len(order)
        for i, a in enumerate(order):
            back[a] = i
        return f.permute(product, axes=tuple(back))


def _shifted(f: OpNamespace, x: Operand, axis: int) -> Operand:
    """Return the running product of all elements before each element."""
    size = x.shape[axis]
    ones = f.new_full(x, shape=(*x.shape[:axis], 1), value=1, dtype=x.dtype)
    result = [ones]
    for i in range(size - 1):
        result.append(f.mul(result[-1], f.slice_axis(x, axis=axis, start=i, stop=i + 1)))
    return f.cat(*result, axis=axis)


prod_of_others = ProdOfOthers()
