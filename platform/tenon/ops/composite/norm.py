"""Normalisation: layer norm and batch norm as single nodes.

Both keep their input, its mean and the reciprocal of its standard deviation, and recompute the normalised
value in the gradient, as PyTorch does, so that no second array of the input's size is kept. The gradients are
ops too (``layer_norm_grad``, ``batch_norm_grad``), so that a backend can compute all three in one pass.

16-bit inputs are computed in float32 and rounded once; their parameters may be float32 (mixed precision), and
their statistics always are.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind
from tenon.engine.sharding_rule import ShardingRule, numbered
from tenon.engine.types import Operand, OpNamespace
from tenon.errors import DTypeError, ShapeError
from tenon.ops.dtype_queries import dtype_of, is_short, matching, widened

_WIDE = np.dtype(np.float32)


def _same_dtype(x: Operand, *others: Operand) -> None:
    dtypes = {dtype_of(o) for o in others if o is not None}
    if dtypes and dtypes != {dtype_of(x)} and not (is_short(x) and dtypes == {_WIDE}):
        raise DTypeError(
            "mixed dtype (CPU): all inputs must share same datatype, got "
            + ", ".join(str(v.dtype) for v in (x, *others) if v is not None)
            + ". Convert the input or the module with .to(dtype)."
        )


def _affine(
    f: OpNamespace, normal: Operand, weight: Operand, bias: Operand, shape: tuple[int, ...]
) -> Operand:
    """Return ``normal * weight + bias``, with both parameters reshaped to ``shape``; each may be None."""
    if weight is not None:
        normal = f.mul(normal, f.reshape(weight, shape=shape))
    return normal if bias is None else f.add(normal, f.reshape(bias, shape=shape))


def _standardised(
    f: OpNamespace, x: Operand, axes: tuple[int, ...], eps: float
) -> tuple[Operand, Operand, Operand]:
    """Return ``x`` with mean 0 and variance 1 over ``axes``, the mean of ``x``, and the reciprocal of its
    standard deviation; the latter two keep the reduced axes with size 1."""
    mean = f.mean(x, axes=axes, keepdims=True)
    centred = f.sub(x, mean)
    deviation = f.rsqrt(f.add(f.mean(f.mul(centred, centred), axes=axes, keepdims=True), eps))
    return f.mul(centred, deviation), mean, deviation


class LayerNorm(Composite):
    """``x`` standardised over its last ``rank`` axes, times ``weight`` plus ``bias`` (each may be None)."""

    kind = Kind.REDUCE
    widens = True
    inputs = ("x", "weight", "bias")
    saves = ("x", "weight", "bias")
    residuals = 2
    grad_name = "NativeLayerNormBackward0"
    autocast_cuda = "float32"

    def sharding_rule(self, x, weight, bias, *, rank, eps=1e-5):
        """The leading axes are independent."""
        own = numbered(x.shape, last_axes(x, rank))
        return ShardingRule((own, (None,) * rank, (None,) * rank), (own,) * 3)

    def decompose(self, f, x, weight, bias, *, rank, eps=1e-5):
        return self.raw_forward(f, x, weight, bias, rank=rank, eps=eps)[0]

    def raw_forward(self, f, x, weight, bias, *, rank, eps=1e-5):
        """Return the result, then mean and reciprocal standard deviation."""
        _same_dtype(x, weight, bias)
        wide, weight, bias = widened(f, x, weight, bias)
        normal, mean, deviation = _standardised(f, wide, last_axes(x, rank), eps)
        out = _affine(f, normal, weight, bias, tuple(x.shape[len(x.shape) - rank :]))
        return matching(f, out, x), mean, deviation

    def vjp_joint(self, f, g, out, x, weight, bias, *, needs, residuals, rank, eps=1e-5):
        """Compute all three gradients with one op."""
        result = f.layer_norm_grad(g, x, weight, *residuals, rank=rank, needs=needs)
        return [m if n else None for m, n in zip(result, needs, strict=True)]


def last_axes(x: Operand, rank: int) -> tuple[int, ...]:
    """Return the last ``rank`` axes of ``x``."""
    return tuple(range(len(x.shape) - rank, len(x.shape)))


class LayerNormGrad(Composite):
    """Gradients of ``layer_norm`` for input, weight and bias; ``needs`` selects those to compute."""

    widens = True
    inputs = ("g", "x", "weight", "mean", "deviation")
    outputs = 3

    def sharding_rule(self, g, x, weight, mean, deviation, *, rank, needs):
        """The leading axes are independent; gradients of weight and bias are sums over them."""
        own = numbered(x.shape, last_axes(x, rank))
        sums = tuple((None,) * rank if needed else own for needed in needs[1:])
        return ShardingRule((own, own, (None,) * rank, own, own), (own, *sums), "sum")

    def decompose(self, f, g, x, weight, mean, deviation, *, rank, needs):
        original, affine = x, g if weight is None else weight
        g, x, weight = widened(f, g, x, weight)
        normal = f.mul(f.sub(x, mean), deviation)
        axes, lead = last_axes(x, rank), tuple(range(len(x.shape) - rank))
        dx = dweight = dbias = g
        if needs[0]:
            inner = g if weight is None else f.mul(g, weight)
            pull = f.add(
                f.mean(inner, axes=axes, keepdims=True),
                f.mul(normal, f.mean(f.mul(inner, normal), axes=axes, keepdims=True)),
            )
            dx = f.mul(f.sub(inner, pull), deviation)
        if needs[1]:
            dweight = f.sum(f.mul(g, normal), axes=lead) if lead else f.mul(g, normal)
        if needs[2]:
            dbias = f.sum(g, axes=lead) if lead else g
        return matching(f, dx, original), matching(f, dweight, affine), matching(f, dbias, affine)


class BatchNorm(Composite):
    """``x[N, C, ...]`` standardised per channel over the batch; returns the result, mean and biased variance.

    The statistics are for running averages: no gradient flows through them.
    """

    kind = Kind.REDUCE
    follows = 1
    widens = True
    inputs = ("x", "weight", "bias")
    saves = ("x", "weight", "bias")
    outputs = 3
    residuals = 2
    grad_name = "NativeBatchNormBackward0"

    def decompose(self, f, x, weight, bias, *, eps=1e-5):
        return self.raw_forward(f, x, weight, bias, eps=eps)[:3]

    def raw_forward(self, f, x, weight, bias, *, eps=1e-5):
        """Return result, mean and variance; then mean and reciprocal standard deviation for the gradient."""
        axes, shape = channel_axes(x)
        original = x
        x, weight, bias = widened(f, x, weight, bias)
        mean = f.mean(x, axes=axes, keepdims=True)
        centred = f.sub(x, mean)
        variance = f.mean(f.mul(centred, centred), axes=axes, keepdims=True)
        deviation = f.rsqrt(f.add(variance, eps))
        out = matching(f, _affine(f, f.mul(centred, deviation), weight, bias, shape), original)
        flat = (x.shape[1],)
        return out, f.reshape(mean, shape=flat), f.reshape(variance, shape=flat), mean, deviation

    def vjp_joint(self, f, g, out, x, weight, bias, *, needs, residuals, eps=1e-5):
        """Compute all three gradients with one op."""
        result = f.batch_norm_grad(g[0], x, weight, *residuals, needs=needs)
        return [m if n else None for m, n in zip(result, needs, strict=True)]


def channel_axes(x: Operand) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return all axes of ``x`` but 1, and the shape that broadcasts a vector of channels along axis 1.

    ShapeError if ``x`` has fewer than two axes.
    """
    if len(x.shape) < 2:
        raise ShapeError(f"batch_norm: expected at least 2 axes (N, C, ...), got {list(x.shape)}.")
    rank = len(x.shape)
    return (0, *range(2, rank)), (1, x.shape[1], *(1,) * (rank - 2))


class BatchNormGrad(Composite):
    """Gradients of ``batch_norm`` for input, weight and bias; ``needs`` selects those to compute."""

    widens = True
    follows = 2
    inputs = ("g", "x", "weight", "mean", "deviation")
    outputs = 3

    def decompose(self, f, g, x, weight, mean, deviation, *, needs):
        axes, shape = channel_axes(x)
        original, affine = x, g if weight is None else weight
        g, x, weight = widened(f, g, x, weight)
        normal = f.mul(f.sub(x, mean), deviation)
        dbias = f.sum(g, axes=axes, keepdims=True)
        dweight = f.sum(f.mul(g, normal), axes=axes, keepdims=True)
        dx = g
        if needs[0]:
            share = 1.0 / max(math.prod(x.shape[a] for a in axes), 1)
            pull = f.mul(f.add(dbias, f.mul(normal, dweight)), share)
            scale = deviation if weight is None else f.mul(deviation, f.reshape(weight, shape=shape))
            dx = f.mul(f.sub(g, pull), scale)
        flat = (x.shape[1],)
        dweight, dbias = f.reshape(dweight, shape=flat), f.reshape(dbias, shape=flat)
        return matching(f, dx, original), matching(f, dweight, affine), matching(f, dbias, affine)


class BatchNormInference(Composite):
    """``x[N, C, ...]`` normalised per channel by given statistics, times ``weight`` plus ``bias``."""

    kind = Kind.ELEMENTWISE
    follows = 1
    inputs = ("x", "weight", "bias", "mean", "variance")
    saves = ("x", "weight", "mean", "variance")
    grad_name = "NativeBatchNormBackward0"
    computes_in_float32 = True

    def sharding_rule(self, x, weight, bias, mean, variance, *, eps=1e-5):
        """The vectors are split as the channels are."""
        own = numbered(x.shape)
        return ShardingRule((own, *((1,),) * 4), (own,))

    def infer(self, x, weight, bias, mean, variance, *, eps=1e-5):
        """The input's own aval."""
        channel_axes(x)
        return Aval(tuple(x.shape), x.dtype)

    def decompose(self, f, x, weight, bias, mean, variance, *, eps=1e-5):
        shape = channel_axes(x)[1]
        scale = _scale(f, weight, variance, eps)
        shift = f.mul(mean, scale)
        shift = f.neg(shift) if bias is None else f.sub(bias, shift)
        return matching(f, f.add(f.mul(x, f.reshape(scale, shape=shape)), f.reshape(shift, shape=shape)), x)

    def vjp_x(self, f, g, out, x, weight, bias, mean, variance, *, eps=1e-5):
        return matching(f, f.mul(g, f.reshape(_scale(f, weight, variance, eps), shape=channel_axes(x)[1])), x)

    def vjp_weight(self, f, g, out, x, weight, bias, mean, variance, *, eps=1e-5):
        axes, shape = channel_axes(x)
        centred = f.sub(x, f.reshape(mean, shape=shape))
        return f.mul(f.sum(f.mul(g, centred), axes=axes), f.rsqrt(f.add(variance, eps)))

    def vjp_bias(self, f, g, out, x, weight, bias, mean, variance, *, eps=1e-5):
        return f.sum(g, axes=channel_axes(x)[0])


class ChannelAffine(Composite):
    """``x[:, c] * weight[c] + bias[c]``; each of the two may be None."""

    kind = Kind.ELEMENTWISE
    widens = True
    inputs = ("x", "weight", "bias")
    saves = ("x", "weight")

    def sharding_rule(self, x, weight, bias):
        """The vectors are split as the channels are."""
        own = numbered(x.shape)
        return ShardingRule((own, (1,), (1,)), (own,))

    def decompose(self, f, x, weight, bias):
        wide, weight, bias = widened(f, x, weight, bias)
        return matching(f, _affine(f, wide, weight, bias, channel_axes(x)[1]), x)

    def vjp_joint(self, f, g, out, x, weight, bias, *, needs):
        """Compute all three gradients with one op."""
        result = f.channel_affine_grad(g, x, weight, needs=needs)
        return [m if n else None for m, n in zip(result, needs, strict=True)]


class ChannelAffineGrad(Composite):
    """Gradients of ``channel_affine`` for input, weight and bias; ``needs`` selects those to compute."""

    widens = True
    inputs = ("g", "x", "weight")
    outputs = 3

    def decompose(self, f, g, x, weight, *, needs):
        axes, shape = channel_axes(x)
        original, affine = x, g if weight is None else weight
        g, x, weight = widened(f, g, x, weight)
        dx = _affine(f, g, weight, None, shape) if needs[0] else g
        dweight = f.sum(f.mul(g, x), axes=axes) if needs[1] else g
        dbias = f.sum(g, axes=axes) if needs[2] else g
        return matching(f, dx, original), matching(f, dweight, affine), matching(f, dbias, affine)


def _scale(f: OpNamespace, weight: Operand, variance: Operand, eps: float) -> Operand:
    scale = f.rsqrt(f.add(variance, eps))
    return scale if weight is None else f.mul(scale, weight)


layer_norm, layer_norm_grad = LayerNorm(), LayerNormGrad()
channel_affine, channel_affine_grad = ChannelAffine(), ChannelAffineGrad()
batch_norm, batch_norm_grad, batch_norm_inference = BatchNorm(), BatchNormGrad(), BatchNormInference()
