"""Affine maps, ``linear`` and ``addmm``, and the outer product of two vectors."""

from __future__ import annotations

import math

from tenon.engine.aval import Aval, shape_of
from tenon.engine.op import Composite, Kind
from tenon.engine.sharding_rule import ShardingRule, numbered
from tenon.engine.types import Operand
from tenon.errors import DTypeError, ShapeError
from tenon.kernels.shapes import broadcast_shapes
from tenon.ops.dtype_queries import is_complex, title_of


def check_same_dtype(name: str, x: Operand, y: Operand) -> None:
    """Raise DTypeError, with PyTorch's message, if two matrices differ in dtype."""
    if x.dtype != y.dtype:
        raise DTypeError(
            f"mat1 and mat2 must have the same dtype, but got {title_of(x)} and {title_of(y)} ({name}:"
            f" {list(x.shape)} and {list(y.shape)}). Convert one of them with .to(dtype)."
        )


class Linear(Composite):
    """``x @ weight.T + bias`` over the last axis of ``x``; ``bias`` may be None."""

    kind = Kind.CONTRACT
    inputs = ("x", "weight", "bias")
    saves = ("x", "weight")
    reads = {"x": ("weight",), "weight": ("x",), "bias": ()}
    packable = True
    autocast = "lower"

    def sharding_rule(self, x, weight, bias):
        """Rows follow ``x``, columns ``weight``; its parts add up products of parts of a row."""
        rows = numbered(x.shape[:-1])
        columns = ("n",) * (len(weight.shape) - 1)
        return ShardingRule(((*rows, None), (*columns, None), columns), ((*rows, *columns),))

    def decompose(self, f, x, weight, bias):
        check_same_dtype(self.name, x, weight)
        if len(weight.shape) not in (1, 2):
            raise ShapeError(f"linear: weight must have 2 axes (out, in), got {list(weight.shape)}.")
        if len(weight.shape) == 1:
            out = f.matmul(x, weight)
        else:
            rows = f.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1])) if len(x.shape) > 2 else x
            out = f.matmul(rows, f.transpose(weight, axis0=0, axis1=1))
            if len(x.shape) > 2:
                out = f.reshape(out, shape=(*x.shape[:-1], weight.shape[0]))
        return out if bias is None else f.add(out, bias)

    def infer(self, x, weight, bias):
        """Infer from the decomposition; ShapeError if the bias would enlarge the result."""
        out = super().infer(x, weight, bias)
        result = tuple(x.shape[:-1]) + tuple(weight.shape[:-1])
        if tuple(out.shape) != result:
            raise ShapeError(
                f"The expanded size of the tensor {list(result)} must match the existing size"
                f" {list(shape_of(bias))}: linear's bias does not fit its output. Check out_features."
            )
        return Aval(result, out.dtype)

    # d(x @ W.T) = dx @ W.T + x @ dW.T
    def vjp_x(self, f, g, out, x, weight, bias):
        if len(weight.shape) == 1:
            return f.mul(f.reshape(g, shape=(*g.shape, 1)), f.conj(weight))
        weight = f.conj(weight) if is_complex(weight) else weight
        if len(g.shape) < 3:
            return f.matmul(g, weight)
        flat = f.matmul(f.reshape(g, shape=(math.prod(g.shape[:-1]), g.shape[-1])), weight)
        return f.reshape(flat, shape=tuple(x.shape))

    def vjp_weight(self, f, g, out, x, weight, bias):
        x = f.conj(x) if is_complex(x) else x
        if len(weight.shape) == 1:
            return f.sum_to(f.mul(f.reshape(g, shape=(*g.shape, 1)), x), shape=tuple(weight.shape))
        if len(x.shape) == 1:
            return f.mul(f.reshape(g, shape=(*g.shape, 1)), x)
        if len(x.shape) > 2:
            g = f.reshape(g, shape=(math.prod(g.shape[:-1]), g.shape[-1]))
            x = f.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))
        return f.matmul(f.transpose(g, axis0=0, axis1=1), x)

    def vjp_bias(self, f, g, out, x, weight, bias):
        return f.sum_to(g, shape=tuple(bias.shape))

    def cost(self, x, weight, bias):
        """2 m n k."""
        return 2.0 * math.prod(x.shape[:-1]) * math.prod(weight.shape)

    def torch_name(self, args, attrs):
        """The node of the product that PyTorch dispatches to."""
        if len(args) < 3:
            return "AddmmBackward0"
        rank, biased = len(args[0].shape), args[2] is not None
        if rank == 2:
            return "AddmmBackward0" if biased else "MmBackward0"
        return "ViewBackward0" if biased else "SqueezeBackward4" if rank == 1 else "UnsafeViewBackward0"


class Addmm(Composite):
    """``beta * x + alpha * (a @ b)`` for matrices ``a`` and ``b``."""

    kind = Kind.CONTRACT
    inputs = ("x", "a", "b")
    saves = ("a", "b")
    packable = True
    autocast = "lower"

    def sharding_rule(self, x, a, b, *, beta=1, alpha=1):
        """Rows follow ``a``, columns ``b``; its parts add up products of parts of a row."""
        sizes = {"m": a.shape[0], "n": b.shape[1]}
        own = tuple(
            f if size == sizes[f] else None
            for f, size in zip(("m", "n")[2 - len(x.shape) :], x.shape, strict=True)
        )
        return ShardingRule((own, ("m", None), (None, "n")), (("m", "n"),))

    def decompose(self, f, x, a, b, *, beta=1, alpha=1):
        check_same_dtype(self.name, a, b)
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise ShapeError(
                f"addmm: mat1 and mat2 must be matrices, got {list(a.shape)} and {list(b.shape)}."
            )
        product = f.matmul(a, b)
        if broadcast_shapes(tuple(x.shape), tuple(product.shape)) != tuple(product.shape):
            raise ShapeError(
                f"The expanded size of the tensor {list(product.shape)} must match the existing size"
                f" {list(x.shape)} at every non-singleton dimension (addmm)."
            )
        product = product if alpha == 1 else f.mul(product, alpha)
        if beta == 0:
            return product
        return f.add(x if beta == 1 else f.mul(x, beta), product)

    def vjp_x(self, f, g, out, x, a, b, *, beta=1, alpha=1):
        return f.sum_to(g if beta == 1 else f.mul(g, beta), shape=tuple(x.shape))

    def vjp_a(self, f, g, out, x, a, b, *, beta=1, alpha=1):
        result = f.matmul(g, f.conj(f.transpose(b, axis0=0, axis1=1)))
        return result if alpha == 1 else f.mul(result, alpha)

    def vjp_b(self, f, g, out, x, a, b, *, beta=1, alpha=1):
        result = f.matmul(f.conj(f.transpose(a, axis0=0, axis1=1)), g)
        return result if alpha == 1 else f.mul(result, alpha)


class Outer(Composite):
    """``x[i] * y[j]``: the outer product of two vectors."""

    kind = Kind.CONTRACT
    inputs = ("x", "y")
    saves = ("x", "y")
    reads = {"x": ("y",), "y": ("x",)}
    promotion = "same"
    grad_name = "MulBackward0"

    def sharding_rule(self, x, y):
        """Rows follow ``x``, columns ``y``."""
        return ShardingRule((("m",), ("n",)), (("m", "n"),), linear="separately")

    def decompose(self, f, x, y):
        return f.mul(f.reshape(x, shape=(*x.shape, 1)), y)

    def vjp_x(self, f, g, out, x, y):
        return f.matmul(g, f.conj(y))

    def vjp_y(self, f, g, out, x, y):
        return f.matmul(f.conj(x), g)


linear, addmm, outer = Linear(), Addmm(), Outer()
