"""Reductions that are defined by other ops: variance, standard deviation, log-sum-exp, norms."""

from __future__ import annotations

import math

from tenon.compat.saved_readers import attr
from tenon.engine.op import Composite, Kind
from tenon.engine.types import Operand, OpNamespace
from tenon.kernels.shapes import reduced_shape
from tenon.ops.dtype_queries import is_complex


def _with_reduced_axes(
    f: OpNamespace, value: Operand, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool
) -> Operand:
    """Return ``value`` with its reduced axes restored with size 1, so that it broadcasts to ``shape``."""
    return value if keepdims else f.reshape(value, shape=reduced_shape(tuple(shape), axes, True))


class Var(Composite):
    """Variance over ``axes``: squared distances from the mean, divided by ``n - correction``."""

    kind = Kind.REDUCE
    saves = ("x",)
    plain = True
    computes_in_float32 = True

    def decompose(self, f, x, *, axes, correction=1, keepdims=False):
        centred = f.sub(x, f.mean(x, axes=axes, keepdims=True))
        squares = f.real(f.mul(centred, f.conj(centred))) if is_complex(x) else f.square(centred)
        return f.mul(
            f.sum(squares, axes=axes, keepdims=keepdims),
            _reciprocal(_degrees_of_freedom(x, axes, correction)),
        )

    def vjp_x(self, f, g, out, x, *, axes, correction=1, keepdims=False):
        return _variance_gradient(f, g, x, axes, correction, keepdims)


class Std(Composite):
    """Standard deviation over ``axes``: the root of ``var``."""

    kind = Kind.REDUCE
    saves = ("x", "out")
    plain = True
    computes_in_float32 = True

    def decompose(self, f, x, *, axes, correction=1, keepdims=False):
        return f.sqrt(f.var(x, axes=axes, correction=correction, keepdims=keepdims))

    def vjp_x(self, f, g, out, x, *, axes, correction=1, keepdims=False):
        return _variance_gradient(f, _root_gradient(f, g, out), x, axes, correction, keepdims)


class VarMean(Composite):
    """Variance and mean over ``axes``."""

    kind = Kind.REDUCE
    saves = ("x",)
    outputs = 2
    plain = True
    computes_in_float32 = True

    def decompose(self, f, x, *, axes, correction=1, keepdims=False):
        variance = f.var(x, axes=axes, correction=correction, keepdims=keepdims)
        return variance, f.mean(x, axes=axes, keepdims=keepdims)

    def vjp_x(self, f, g, out, x, *, axes, correction=1, keepdims=False):
        slope = _variance_gradient(f, g[0], x, axes, correction, keepdims)
        return f.add(slope, _mean_gradient(f, g[1], x, axes, keepdims))


class StdMean(Composite):
    """Standard deviation and mean over ``axes``."""

    kind = Kind.REDUCE
    saves = ("x", "out")
    outputs = 2
    plain = True
    computes_in_float32 = True

    def decompose(self, f, x, *, axes, correction=1, keepdims=False):
        deviation = f.std(x, axes=axes, correction=correction, keepdims=keepdims)
        return deviation, f.mean(x, axes=axes, keepdims=keepdims)

    def vjp_x(self, f, g, out, x, *, axes, correction=1, keepdims=False):
        slope = _variance_gradient(f, _root_gradient(f, g[0], out), x, axes, correction, keepdims)
        return f.add(slope, _mean_gradient(f, g[1], x, axes, keepdims))


def _variance_gradient(
    f: OpNamespace, g: Operand, x: Operand, axes: tuple[int, ...], correction: float, keepdims: bool
) -> Operand:
    slope = f.mul(
        f.sub(x, f.mean(x, axes=axes, keepdims=True)),
        2.0 * _reciprocal(_degrees_of_freedom(x, axes, correction)),
    )
    return f.mul(_with_reduced_axes(f, g, x.shape, axes, keepdims), slope)


def _root_gradient(f: OpNamespace, g: Operand, root: Operand) -> Operand:
    """Return the gradient of the variance; 0 where that is 0, at which the root has no derivative."""
    flat = f.eq(root, 0)
    return f.where(flat, 0.0, f.div(g, f.mul(f.where(flat, 1.0, root), 2.0)))


def _mean_gradient(f: OpNamespace, g: Operand, x: Operand, axes: tuple[int, ...], keepdims: bool) -> Operand:
    return f.expand(
        f.mul(
            _with_reduced_axes(f, g, x.shape, axes, keepdims), _reciprocal(_degrees_of_freedom(x, axes, 0))
        ),
        shape=tuple(x.shape),
    )


def _degrees_of_freedom(x: Operand, axes: tuple[int, ...], correction: float) -> float:
    return float(max(math.prod([x.shape[a] for a in axes]) - correction, 0))


def _reciprocal(freedom: float) -> float:
    """Return ``1 / freedom``; infinity for zero degrees of freedom, so that one element has variance NaN."""
    return 1.0 / freedom if freedom else float("inf")


class Logsumexp(Composite):
    """``log(sum(exp(x)))`` over ``axes``, computed without overflow."""

    kind = Kind.REDUCE
    promotion = "float"
    saves = ("x", "out")
    plain = True
    computes_in_float32 = True
    autocast_cuda = "float32"

    def decompose(self, f, x, *, axes, keepdims=False):
        if any(x.shape[a] == 0 for a in axes):
            return f.log(f.sum(f.exp(x), axes=axes, keepdims=keepdims))
        peak = f.amax(f.real(x) if is_complex(x) else x, axes=axes, keepdims=True)
        return self._beyond(f, x, f.where(f.isfinite(peak), peak, 0.0), axes, keepdims)

    def in_parts(self, f, x, *, axes, keepdims=False):
        """As ``decompose``, with one use of the maximum, whose parts have to be brought together."""
        if any(x.shape[a] == 0 for a in axes):
            return f.log(f.sum(f.exp(x), axes=axes, keepdims=keepdims))
        peak = f.amax(f.real(x) if is_complex(x) else x, axes=axes, keepdims=True)
        return self._beyond(f, x, f.nan_to_num(peak, nan=0.0, high=0.0, low=0.0), axes, keepdims)

    def _beyond(self, f, x, peak, axes, keepdims):
        """The result from the maximum, or 0 where that is not finite."""
        total = f.log(f.sum(f.exp(f.sub(x, peak)), axes=axes, keepdims=keepdims))
        return f.add(total, f.reshape(peak, shape=tuple(total.shape)))

    def vjp_x(self, f, g, out, x, *, axes, keepdims=False):
        shape = x.shape
        share = f.exp(f.sub(x, _with_reduced_axes(f, out, shape, axes, keepdims)))
        return f.mul(_with_reduced_axes(f, g, shape, axes, keepdims), f.conj(share))


class VectorNorm(Composite):
    """``sum(|x| ** order) ** (1 / order)`` over ``axes``: the number of nonzero elements for order 0, the
    largest and the smallest magnitude for orders inf and -inf."""

    kind = Kind.REDUCE
    saves = ("x", "out")
    grad_name = "LinalgVectorNormBackward0"
    plain = True
    computes_in_float32 = True
    autocast_cuda = "float32"
    saved_names = {"ord": attr("order"), "p": attr("order")}

    def decompose(self, f, x, *, order=2.0, axes=(), keepdims=False):
        size = f.abs(x)
        if order == 2:
            return f.sqrt(f.sum(f.square(size), axes=axes, keepdims=keepdims))
        if order == 1:
            return f.sum(size, axes=axes, keepdims=keepdims)
        if order == 0:
            return f.sum(f.cast(f.ne(size, 0), dtype=size.dtype), axes=axes, keepdims=keepdims)
        if math.isinf(order):
            return (f.amax if order > 0 else f.amin)(size, axes=axes, keepdims=keepdims)
        return f.pow(f.sum(f.pow(size, order), axes=axes, keepdims=keepdims), 1.0 / order)

    # Where the norm has a corner (at 0), 0 is the subgradient, as in PyTorch.
    def vjp_x(self, f, g, out, x, *, order=2.0, axes=(), keepdims=False):
        g, norm = (_with_reduced_axes(f, v, x.shape, axes, keepdims) for v in (g, out))
        if order == 0:
            return f.mul(f.mul(x, 0), g)
        if order == 1:
            return f.mul(g, f.sign(x))
        if order == 2:
            return f.mul(x, f.where(f.eq(norm, 0), 0.0, f.div(g, f.where(f.eq(norm, 0), 1.0, norm))))
        size = f.abs(x)
        if math.isinf(order):
            hits = f.cast(f.eq(size, norm), dtype=size.dtype)
            return f.mul(f.sign(x), f.mul(g, f.div(hits, f.sum(hits, axes=axes, keepdims=True))))
        inner = f.where(f.eq(size, 0), 0.0, f.pow(f.where(f.eq(size, 0), 1.0, size), order - 1.0))
        outer = f.where(f.eq(norm, 0), 0.0, f.pow(f.where(f.eq(norm, 0), 1.0, norm), 1.0 - order))
        return f.mul(f.mul(f.sign(x), inner), f.mul(g, outer))


var, std, var_mean, std_mean = Var(), Std(), VarMean(), StdMean()
logsumexp, vector_norm = Logsumexp(), VectorNorm()
