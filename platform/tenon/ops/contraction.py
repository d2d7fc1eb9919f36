"""Matrix products."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import ShardingRule
from tenon.engine.types import Operand, OpNamespace
from tenon.errors import DTypeError
from tenon.kernels.shapes import matmul_shape


class Matmul(Primitive):
    """Matrix product over the last two axes; leading axes broadcast; 1-d operands as in PyTorch."""

    kind = Kind.CONTRACT
    inputs = ("x", "y")
    saves = ("x", "y")
    reads = {"x": ("y",), "y": ("x",)}
    promotion = "equal"
    packable = True
    autocast = "lower"

    def sharding_rule(self, x, y):
        """``(*batch, m, k) @ (*batch, k, n)``: the results of parts of ``k`` add up."""
        batch = max(len(x.shape), len(y.shape)) - 2
        sizes = self.infer(x, y).shape[: max(batch, 0)]
        inputs = []
        for shape, last in ((x.shape, ("m", "k")), (y.shape, ("k", "n"))):
            lead = batch - len(shape) + 2
            own = tuple(a + lead if s == sizes[a + lead] else None for a, s in enumerate(shape[:-2]))
            inputs.append((*own, *last) if len(shape) > 1 else ("k",))
        rows = ("m",) if len(x.shape) > 1 else ()
        columns = ("n",) if len(y.shape) > 1 else ()
        result = (*range(max(batch, 0)), *rows, *columns)
        return ShardingRule(tuple(inputs), (result,), "sum", linear="separately")

    def infer(self, x, y):
        """PyTorch's matmul shape."""
        return Aval(matmul_shape(tuple(x.shape), tuple(y.shape)), x.dtype)

    def forward(self, xp, x, y, *, out=None):
        """BLAS; half-width floats are multiplied in float32, integers in their own dtype."""
        if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
            return xp.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
        return xp.matmul(x, y, out=out)

    # d(x @ y) = dx @ y + x @ dy. Operands of few axes come first: at small sizes this dispatch dominates the
    # backward pass of a linear layer.
    def vjp_x(self, f, g, out, x, y):
        rank, other = len(x.shape), len(y.shape)
        if other == 2:
            return (
                f.matmul(f.conj(y), g) if rank == 1 else f.matmul(g, f.conj(f.transpose(y, axis0=0, axis1=1)))
            )
        if other == 1:
            if rank == 1:
                return f.mul(g, f.conj(y))
            return f.mul(f.reshape(g, shape=(*g.shape, 1)), f.conj(y))
        if rank == 1:
            product = f.matmul(f.conj(y), f.reshape(g, shape=(*g.shape, 1)))
            return f.sum_to(f.reshape(product, shape=tuple(product.shape[:-1])), shape=x.shape)
        return f.sum_to(f.matmul(g, f.conj(_swap(f, y))), shape=x.shape)

    def vjp_y(self, f, g, out, x, y):
        rank, other = len(x.shape), len(y.shape)
        if rank == 1:
            if other == 1:
                return f.mul(g, f.conj(x))
            column = f.reshape(f.conj(x), shape=(*x.shape, 1))
            if other == 2:
                return f.mul(column, g)
            product = f.mul(column, f.reshape(g, shape=(*g.shape[:-1], 1, g.shape[-1])))
            return f.sum_to(product, shape=y.shape)
        if rank == 2 and other == 2:
            return f.matmul(f.conj(f.transpose(x, axis0=0, axis1=1)), g)
        if other == 1:
            if 0 in x.shape:
                return f.new_full(g, shape=y.shape, value=0)
            return f.matmul(f.reshape(g, shape=(-1,)), f.conj(f.reshape(x, shape=(-1, x.shape[-1]))))
        if other == 2 and 0 not in x.shape and 0 not in y.shape:
            # One matrix product over all leading axes instead of a batch that would then be summed.
            rows = f.reshape(x, shape=(-1, x.shape[-1]))
            return f.matmul(f.conj(_swap(f, rows)), f.reshape(g, shape=(-1, g.shape[-1])))
        return f.sum_to(f.matmul(f.conj(_swap(f, x)), g), shape=y.shape)

    def cost(self, x, y):
        """2 m n k, times the batch."""
        out = self.infer(x, y)
        return 2.0 * out.size * x.shape[-1]

    def torch_name(self, args, attrs):
        """The name of the product that PyTorch dispatches to."""
        ranks = tuple(getattr(a, "ndim", 0) for a in args)
        return {
            (): "MmBackward0",  # freed
            (1, 1): "DotBackward0",
            (2, 2): "MmBackward0",
            (2, 1): "MvBackward0",
            (1, 2): "SqueezeBackward4",
        }.get(ranks, "UnsafeViewBackward0")


def out_shape(x: Operand, y: Operand) -> tuple[int, ...]:
    """Shape of ``x @ y``."""
    return matmul_shape(tuple(x.shape), tuple(y.shape))


class Cross(Primitive):
    """The vector product along an axis of three."""

    kind = Kind.CONTRACT
    inputs = ("x", "y")
    saves = ("x", "y")
    reads = {"x": ("y",), "y": ("x",)}
    promotion = "equal"
    grad_name = "LinalgCrossBackward0"

    def infer(self, x, y, *, axis):
        """The aval of ``x``."""
        if x.dtype.kind == "b":
            raise DTypeError("\"cross\" not implemented for 'Bool': cast to a number first.")
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, y, *, axis):
        """Component by component."""
        self.infer(x, y, axis=axis)
        (a0, a1, a2), (b0, b1, b2) = xp.moveaxis(x, axis, 0), xp.moveaxis(y, axis, 0)
        out = xp.empty(x.shape, x.dtype)
        parts = xp.moveaxis(out, axis, 0)
        parts[0] = a1 * b2 - a2 * b1
        parts[1] = a2 * b0 - a0 * b2
        parts[2] = a0 * b1 - a1 * b0
        return out

    # g (x * y) = x (y * g) = y (g * x)
    def vjp_x(self, f, g, out, x, y, *, axis):
        return f.cross(f.conj(y), g, axis=axis)

    def vjp_y(self, f, g, out, x, y, *, axis):
        return f.cross(g, f.conj(x), axis=axis)


def _swap(f: OpNamespace, x: Operand) -> Operand:
    return f.transpose(x, axis0=len(x.shape) - 2, axis1=len(x.shape) - 1)


matmul, cross = Matmul(), Cross()
