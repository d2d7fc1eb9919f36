"""Losses between two tensors of equal shape, each a single node. ``reduction`` is "none", "mean" or "sum"."""

from __future__ import annotations

import math

from tenon.compat.saved_readers import REDUCED
from tenon.engine.aval import shape_of
from tenon.engine.op import Composite, Kind
from tenon.engine.types import Attr, Attrs, Operand, OpNamespace
from tenon.errors import DTypeError
from tenon.kernels.shapes import broadcast_shapes
from tenon.ops.dtype_queries import is_floating


def reduced(f: OpNamespace, losses: Operand, reduction: str) -> Operand:
    """Return ``losses``, their mean or their sum, by ``reduction``."""
    if reduction == "none":
        return losses
    axes = tuple(range(len(losses.shape)))
    return f.sum(losses, axes=axes) if reduction == "sum" else f.mean(losses, axes=axes)


def share(x: Operand, reduction: str) -> float:
    """Return the factor of each element's loss in the reduced loss."""
    return 1.0 / max(math.prod(x.shape), 1) if reduction == "mean" else 1.0


class PairLoss(Composite):
    """Base of the losses that are a function of ``x - y``, ``value``, with the derivative ``slope``."""

    kind = Kind.REDUCE
    inputs = ("x", "y")
    saves = ("x", "y")
    promotion = "same"

    def value(self, f: OpNamespace, d: Operand, **attrs: Attr) -> Operand:
        """Return the loss of each difference ``d``."""
        raise TypeError(f"loss {self.name} defines no value.")

    def slope(self, f: OpNamespace, d: Operand, **attrs: Attr) -> Operand:
        """Return the derivative of ``value`` at ``d``."""
        raise TypeError(f"loss {self.name} defines no slope.")

    def decompose(self, f, x, y, *, reduction="mean", **attrs):
        return reduced(f, self.value(f, f.sub(x, y), **attrs), reduction)

    def _gradient(
        self, f: OpNamespace, g: Operand, x: Operand, y: Operand, reduction: str, attrs: Attrs
    ) -> Operand:
        d = f.sub(x, y)
        weight = share(d, reduction)
        return f.mul(self.slope(f, d, **attrs), g if weight == 1.0 else f.mul(g, weight))

    def vjp_x(self, f, g, out, x, y, *, reduction="mean", **attrs):
        return f.sum_to(self._gradient(f, g, x, y, reduction, attrs), shape=shape_of(x))

    def vjp_y(self, f, g, out, x, y, *, reduction="mean", **attrs):
        return f.sum_to(f.neg(self._gradient(f, g, x, y, reduction, attrs)), shape=shape_of(y))


class MseLoss(PairLoss):
    """``(x - y)^2``."""

    computes_in_float32 = True
    autocast = "float32"
    saved_names = REDUCED

    def value(self, f, d):
        return f.mul(d, d)

    def slope(self, f, d):
        return f.mul(d, 2.0)


class L1Loss(PairLoss):
    """``|x - y|``."""

    computes_in_float32 = True
    autocast = "float32"

    def value(self, f, d):
        return f.abs(d)

    def slope(self, f, d):
        return f.sign(d)

    def torch_name(self, args, attrs):
        """PyTorch composes this loss of other ops, and names the node of the last one."""
        return {"none": "AbsBackward0", "sum": "SumBackward0"}.get(attrs["reduction"], "MeanBackward0")


class SmoothL1Loss(PairLoss):
    """``(x - y)^2 / (2 beta)`` within ``beta``, else ``|x - y| - beta / 2``; ``beta`` is above 0."""

    computes_in_float32 = True
    autocast = "float32"

    def value(self, f, d, *, beta):
        size = f.abs(d)
        return f.where(f.lt(size, beta), f.mul(f.mul(d, d), 0.5 / beta), f.sub(size, 0.5 * beta))

    def slope(self, f, d, *, beta):
        return f.where(f.lt(f.abs(d), beta), f.div(d, beta), f.sign(d))


class HuberLoss(PairLoss):
    """``(x - y)^2 / 2`` within ``delta``, else ``delta * (|x - y| - delta / 2)``."""

    computes_in_float32 = True
    autocast = "float32"

    def value(self, f, d, *, delta):
        size = f.abs(d)
        return f.where(f.le(size, delta), f.mul(f.mul(d, d), 0.5), f.mul(f.sub(size, 0.5 * delta), delta))

    def slope(self, f, d, *, delta):
        return f.where(f.le(f.abs(d), delta), d, f.mul(f.sign(d), delta))


class BinaryCrossEntropyWithLogits(Composite):
    """``-weight * (pos_weight * y * log(s(x)) + (1 - y) * log(1 - s(x)))`` with s the sigmoid; weights may be
    None."""

    kind = Kind.REDUCE
    inputs = ("x", "y", "weight", "pos_weight")
    saves = ("x", "y", "weight", "pos_weight")
    computes_in_float32 = True
    autocast = "float32"

    # With u = 1 + (pos_weight - 1) y: (1 - y) x + u softplus(-x)
    def decompose(self, f, x, y, weight, pos_weight, *, reduction="mean"):
        need_float_target(x, y)
        losses = f.sub(f.mul(f.sub(1.0, y), x), _boosted(f, f.logsigmoid(x), y, pos_weight))
        return reduced(f, losses if weight is None else f.mul(losses, weight), reduction)

    def vjp_x(self, f, g, out, x, y, weight, pos_weight, *, reduction="mean"):
        slope = f.sub(f.sub(1.0, y), _boosted(f, f.sigmoid(f.neg(x)), y, pos_weight))
        return self._gradient(f, g, slope, x, y, weight, reduction, x)

    def vjp_y(self, f, g, out, x, y, weight, pos_weight, *, reduction="mean"):
        slope = f.neg(x)
        if pos_weight is not None:
            slope = f.sub(slope, f.mul(f.sub(pos_weight, 1.0), f.logsigmoid(x)))
        return self._gradient(f, g, slope, x, y, weight, reduction, y)

    def _gradient(
        self,
        f: OpNamespace,
        g: Operand,
        slope: Operand,
        x: Operand,
        y: Operand,
        weight: Operand,
        reduction: str,
        like: Operand,
    ) -> Operand:
        shape = broadcast_shapes(
            tuple(x.shape), tuple(y.shape), shape_of(weight) if weight is not None else ()
        )
        if weight is not None:
            slope = f.mul(slope, weight)
        g = f.mul(g, 1.0 / max(math.prod(shape), 1)) if reduction == "mean" else g
        return f.sum_to(f.mul(slope, g), shape=tuple(like.shape))


def _boosted(f: OpNamespace, value: Operand, y: Operand, pos_weight: Operand) -> Operand:
    """``value`` times ``1 + (pos_weight - 1) y``."""
    if pos_weight is None:
        return value
    return f.mul(value, f.add(f.mul(f.sub(pos_weight, 1.0), y), 1.0))


def need_float_target(x: Operand, y: Operand) -> None:
    """Raise DTypeError unless input and target both have floating dtypes."""
    if not is_floating(x) or not is_floating(y):
        raise DTypeError(
            f"result type Float can't be cast to the desired output type Long: input is {x.dtype}, target is"
            f" {y.dtype}. Give both as floats, e.g. target.float()."
        )


class BinaryCrossEntropy(Composite):
    """``-weight * (y log x + (1 - y) log(1 - x))`` for probabilities ``x``; logarithms are kept above
    -100."""

    kind = Kind.REDUCE
    inputs = ("x", "y", "weight")
    saves = ("x", "y", "weight")
    computes_in_float32 = True
    autocast = "float32"
    autocast_cuda = (
        "refused: binary_cross_entropy and BCELoss are unsafe to autocast on a GPU: their input must be a"
        " float16 sigmoid's result. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss, or compute the"
        " loss in a region with enabled=False, in float32."
    )

    def decompose(self, f, x, y, weight, *, reduction="mean"):
        need_float_target(x, y)
        # y log x + (1 - y) log(1 - x), in the order of PyTorch's operations
        losses = f.sub(f.mul(f.sub(y, 1.0), _log(f, f.sub(1.0, x))), f.mul(y, _log(f, x)))
        return reduced(f, losses if weight is None else f.mul(losses, weight), reduction)

    def vjp_x(self, f, g, out, x, y, weight, *, reduction="mean"):
        slope = f.div(f.sub(x, y), f.maximum(f.mul(f.sub(1.0, x), x), 1e-12))
        slope = slope if weight is None else f.mul(slope, weight)
        return f.mul(slope, f.mul(g, share(x, reduction)))

    def vjp_y(self, f, g, out, x, y, weight, *, reduction="mean"):
        slope = f.sub(f.log(f.sub(1.0, x)), f.log(x))
        slope = slope if weight is None else f.mul(slope, weight)
        return f.mul(slope, f.mul(g, share(x, reduction)))


def _log(f: OpNamespace, x: Operand) -> Operand:
    """Return the logarithm of ``x``, at least -100."""
    safe = f.where(f.eq(x, 0), 1.0, x)
    return f.where(f.eq(x, 0), -100.0, f.maximum(f.log(safe), -100.0))


mse_loss, l1_loss, smooth_l1_loss, huber_loss = MseLoss(), L1Loss(), SmoothL1Loss(), HuberLoss()
binary_cross_entropy_with_logits, binary_cross_entropy = BinaryCrossEntropyWithLogits(), BinaryCrossEntropy()
