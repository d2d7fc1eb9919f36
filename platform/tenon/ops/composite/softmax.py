"""Softmax and its logarithm along one axis. Their gradients are ops too, so that a backend can fuse them."""

from __future__ import annotations

import math

from tenon.engine.op import Composite
from tenon.engine.sharding_rule import along
from tenon.engine.types import Operand
from tenon.errors import UnsupportedDTypeError
from tenon.ops.dtype_queries import is_floating


def _axes(x: Operand, axis: int) -> tuple[int, ...]:
    return (axis,) if len(x.shape) else ()


def _need_float(name: str, x: Operand) -> None:
    if not is_floating(x):
        raise UnsupportedDTypeError(
            f'"{name}" not implemented for {x.dtype}. Cast to a float dtype first: x.float() or dtype=.'
        )


class Softmax(Composite):
    """``exp(x) / sum(exp(x))`` along ``axis``."""

    saves = ("out",)
    autocast_cuda = "float32"

    def sharding_rule(self, x, *, axis):
        """The other axes are independent."""
        return along(x.shape, [axis])

    def decompose(self, f, x, *, axis):
        _need_float("softmax", x)
        axes = _axes(x, axis)
        if 0 in x.shape:
            return f.exp(x)
        powers = f.exp(f.sub(x, f.amax(x, axes=axes, keepdims=True)))
        return f.div(powers, f.sum(powers, axes=axes, keepdims=True))

    def vjp_x(self, f, g, out, x, *, axis):
        return f.softmax_grad(g, out, axis=axis)


class SafeSoftmax(Composite):
    """``softmax``, but 0 where all elements along ``axis`` are minus infinity, as in a row of scores that is
    masked as a whole."""

    saves = ("out",)
    grad_name = "SafeSoftmaxBackward0"

    def sharding_rule(self, x, *, axis):
        """The other axes are independent."""
        return along(x.shape, [axis])

    def decompose(self, f, x, *, axis):
        out = f.softmax(x, axis=axis)
        if 0 in x.shape:
            return out
        masked = f.eq(f.amax(x, axes=_axes(x, axis), keepdims=True), -math.inf)
        return f.where(masked, 0.0, out)

    def vjp_x(self, f, g, out, x, *, axis):
        return f.softmax_grad(g, out, axis=axis)


class SoftmaxGrad(Composite):
    """``out * (g - sum(g * out))``: the gradient of ``softmax`` from its output."""

    inputs = ("g", "out")
    saves = ("g", "out")
    grad_name = "SoftmaxBackwardBackward0"

    def sharding_rule(self, g, out, *, axis):
        """The other axes are independent."""
        return along(out.shape, [axis], inputs=2)

    def decompose(self, f, g, out, *, axis):
        weighted = f.mul(g, out)
        return f.sub(weighted, f.mul(out, f.sum(weighted, axes=_axes(out, axis), keepdims=True)))

    def vjp_g(self, f, g, out, gradient, result, *, axis):
        return f.softmax_grad(g, result, axis=axis)

    # d/d out of out * g - out * sum(g * out)
    def vjp_out(self, f, g, out, gradient, result, *, axis):
        axes = _axes(result, axis)
        total = f.sum(f.mul(gradient, result), axes=axes, keepdims=True)
        cross = f.sum(f.mul(g, result), axes=axes, keepdims=True)
        return f.sub(f.mul(g, f.sub(gradient, total)), f.mul(gradient, cross))


class LogSoftmax(Composite):
    """``x - log(sum(exp(x)))`` along ``axis``, computed without overflow."""

    saves = ("out",)
    computes_in_float32 = True
    autocast_cuda = "float32"

    def sharding_rule(self, x, *, axis):
        """The other axes are independent."""
        return along(x.shape, [axis])

    def decompose(self, f, x, *, axis):
        _need_float("log_softmax", x)
        axes = _axes(x, axis)
        if 0 in x.shape:
            return f.exp(x)
        shifted = f.sub(x, f.amax(x, axes=axes, keepdims=True))
        return f.sub(shifted, f.log(f.sum(f.exp(shifted), axes=axes, keepdims=True)))

    def vjp_x(self, f, g, out, x, *, axis):
        return f.log_softmax_grad(g, out, axis=axis)


class LogSoftmaxGrad(Composite):
    """``g - exp(out) * sum(g)``: the gradient of ``log_softmax`` from its output."""

    inputs = ("g", "out")
    saves = ("g", "out")
    grad_name = "LogSoftmaxBackwardBackward0"
    computes_in_float32 = True

    def sharding_rule(self, g, out, *, axis):
        """The other axes are independent."""
        return along(out.shape, [axis], inputs=2)

    def decompose(self, f, g, out, *, axis):
        return f.sub(g, f.mul(f.exp(out), f.sum(g, axes=_axes(out, axis), keepdims=True)))

    def vjp_g(self, f, g, out, gradient, result, *, axis):
        return f.sub(g, f.sum(f.mul(g, f.exp(result)), axes=_axes(result, axis), keepdims=True))

    def vjp_out(self, f, g, out, gradient, result, *, axis):
        total = f.sum(gradient, axes=_axes(result, axis), keepdims=True)
        return f.neg(f.mul(f.mul(g, f.exp(result)), total))


softmax, safe_softmax, softmax_grad = Softmax(), SafeSoftmax(), SoftmaxGrad()
log_softmax, log_softmax_grad = LogSoftmax(), LogSoftmaxGrad()
