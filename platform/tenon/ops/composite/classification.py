"""Losses over classes: ``nll_loss`` of log-probabilities and ``cross_entropy`` of scores.

The classes are on axis 1, or on axis 0 of an input with one axis. Targets are class indices, of the input's
shape without that axis. A target equal to ``ignore_index`` is ignored.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tenon.compat.saved_readers import REDUCED
from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind, Primitive
from tenon.engine.sharding_rule import Factors, ShardingRule, numbered
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.errors import DTypeError, IndexRangeError, ShapeError
from tenon.ops.composite.activation import need_float
from tenon.ops.dtype_queries import dtype_of, in_float32, matching, title_of, widened
from tenon.tensors.index_parsing import INDEX


def class_axis(x: Operand) -> int:
    """Return the axis of ``x`` that holds the classes."""
    return 1 if len(x.shape) > 1 else 0


def check_classes(x: Operand, target: Operand, weight: Operand) -> None:
    """Raise ShapeError or DTypeError, with PyTorch's messages, unless input, target and weight are valid."""
    need_float("nll_loss", x)
    if not x.shape:
        raise ShapeError("nll_loss: Expected an input of 1 or more axes (classes), got a 0-d tensor.")
    axis = class_axis(x)
    expected = tuple(x.shape[:axis]) + tuple(x.shape[axis + 1 :])
    if tuple(target.shape) != expected:
        if target.shape and len(x.shape) > 1 and target.shape[0] != x.shape[0]:
            raise ShapeError(
                f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({target.shape[0]})."
            )
        if len(x.shape) < 3:
            raise ShapeError(
                "0D or 1D target tensor expected, multi-target not supported: got a target of size"
                f" {list(target.shape)} for an input of size {list(x.shape)}."
            )
        raise ShapeError(
            f"Expected target size {list(expected)}, got {list(target.shape)} (input {list(x.shape)}, classes"
            f" on axis {axis})."
        )
    if dtype_of(target).name not in ("int64", "uint8"):
        raise DTypeError(
            f"expected target dtype to be Long or Byte, but got {title_of(target)} (class indices, shape"
            f" {list(target.shape)}). Convert with target.long(); probabilities need the input's shape"
            f" {list(x.shape)}."
        )
    if weight is not None and tuple(weight.shape) != (x.shape[axis],):
        raise ShapeError(
            f"weight tensor should be defined either for all {x.shape[axis]} classes or no classes but got"
            f" weight tensor of shape: {list(weight.shape)}"
        )
    if weight is not None and weight.dtype != x.dtype:
        raise DTypeError(
            f"expected scalar type {title_of(x)} but found {title_of(weight)} as the classes' weight."
            " Convert it with weight.to(input.dtype)."
        )


def present_targets(
    xp: ArrayNamespace, target: Array, classes: int, ignore_index: int
) -> tuple[Array, Array]:
    """Return which targets are not ignored, and the targets with 0 in place of ignored ones.

    IndexRangeError if a target is not the index of a class.
    """
    present = xp.not_equal(target, ignore_index)
    outside = xp.logical_and(present, xp.logical_or(target < 0, target >= classes))
    if outside.any():
        _refuse_target(int(target[outside].reshape(-1)[0]), classes, ignore_index)
    return present, xp.where(present, target, 0)


#: A target that is ignored, in calls that compute a part of the classes.
_IGNORED = -1


def _refuse_target(target: int, classes: int, ignore_index: int) -> NoReturn:
    raise IndexRangeError(
        f"Target {target} is out of bounds. There are {classes} classes, 0 to {classes - 1}; ignore_index is"
        f" {ignore_index}."
    )


def target_weights(xp: ArrayNamespace, present: Array, safe: Array, weight: Array, dtype: np.dtype) -> Array:
    """Return the weight of each target: that of its class, or 1; 0 where it is ignored."""
    return present.astype(dtype) if weight is None else xp.where(present, weight[safe], dtype.type(0))


def reduced_losses(
    xp: ArrayNamespace, picked: Array, present: Array, weights: Array, reduction: str
) -> Array:
    """Return ``-weights * picked``, reduced. Ignored targets contribute 0, also where ``picked`` is NaN."""
    losses = xp.where(present, -(weights * picked), picked.dtype.type(0))
    if reduction == "none":
        return losses
    total = losses.sum(dtype=picked.dtype)
    if reduction == "sum":
        return total
    weight_sum = weights.sum(dtype=picked.dtype)
    return total / weight_sum if weight_sum else xp.full((), float("nan"), picked.dtype)


def target_slopes(xp: ArrayNamespace, g: Array, weights: Array, reduction: str) -> Array:
    """Return the derivative of the reduced loss by each target's log-probability, times ``g``."""
    if reduction != "mean":
        return -weights * g
    weight_sum = weights.sum(dtype=g.dtype)
    return weights * (-g / weight_sum) if weight_sum else xp.zeros_like(weights)


#: The factor of the class axis of scores.
_CLASSES = "classes"


def _factors(x: Operand) -> tuple[Factors, Factors]:
    """The factors of scores and of their targets."""
    axis = class_axis(x)
    own = numbered(x.shape)
    return (*own[:axis], _CLASSES, *own[axis + 1 :]), own[:axis] + own[axis + 1 :]


def _own_targets(
    f: OpNamespace, target: Operand, start: int, count: int, size: int, ignore_index: int
) -> Operand:
    """The targets among the ``count`` classes from ``start`` on, counted from there; ``_IGNORED`` for others.

    IndexRangeError if a target is not the index of one of all ``size`` classes.
    """
    present = f.ne(target, ignore_index)
    if not isinstance(target, Aval):
        outside = f.logical_and(present, f.logical_or(f.lt(target, 0), f.ge(target, size)))
        if outside.any():
            _refuse_target(int(target[outside].reshape(-1)[0]), size, ignore_index)
    own = f.logical_and(present, f.logical_and(f.ge(target, start), f.lt(target, start + count)))
    return f.where(own, f.sub(f.cast(target, dtype=np.dtype(np.int64)), start), _IGNORED)


def _sum_of_weights(
    f: OpNamespace, target: Operand, weight: Operand, dtype: np.dtype, ignore_index: int
) -> Operand:
    """The sum of the weights of the targets that are not ignored: their number, without weights."""
    present = f.ne(target, ignore_index)
    counted = f.cast(present, dtype=dtype)
    if weight is not None:
        safe = f.where(present, target, 0)
        counted = f.mul(counted, f.take(weight, safe, layout=(INDEX,)))
    return f.sum(counted, axes=tuple(range(len(target.shape))))


class NllLoss(Primitive):
    """``-weight[target] * x[target]``; the mean is weighted, over the targets that are not ignored."""

    kind = Kind.INDEX
    inputs = ("x", "target", "weight")
    is_class_loss = True
    saves = ("target", "weight")
    computes_in_float32 = True
    autocast = "float32"
    saved_names = REDUCED

    def sharding_rule(self, x, target, weight, *, reduction="mean", ignore_index=-100):
        """Samples are independent; a mean is computed in parts."""
        if reduction == "mean":
            return None
        own, picked = _factors(x)
        after = picked if reduction == "none" else ()
        return ShardingRule(
            (own, picked, (None,)), (after,), "" if after else "sum", linear="first", looked_up=_CLASSES
        )

    def masked(self, f, x, target, weight, *, start, size, reduction="mean", ignore_index=-100):
        """The loss of the targets that are among the classes of this part."""
        count = x.shape[class_axis(x)]
        own = _own_targets(f, target, start, count, size, ignore_index)
        if not count:
            return f.new_full(x, shape=tuple(target.shape) if reduction == "none" else (), value=0)
        if weight is not None:
            weight = weight[start : start + count]
        return f.nll_loss(x, own, weight, reduction=reduction, ignore_index=_IGNORED)

    def in_parts(self, f, x, target, weight, *, reduction="mean", ignore_index=-100):
        """The mean as a sum divided by the sum of the weights."""
        total = f.nll_loss(x, target, weight, reduction="sum", ignore_index=ignore_index)
        return f.div(total, _sum_of_weights(f, target, weight, x.dtype, ignore_index))

    def infer(self, x, target, weight, *, reduction="mean", ignore_index=-100):
        """The target's shape, or a scalar."""
        check_classes(x, target, weight)
        return Aval(tuple(target.shape) if reduction == "none" else (), x.dtype)

    @in_float32
    def forward(self, xp, x, target, weight, *, reduction="mean", ignore_index=-100):
        """Gather the log-probabilities of the targets, multiply by the weights and reduce."""
        check_classes(x, target, weight)
        axis = class_axis(x)
        present, safe = present_targets(xp, target, x.shape[axis], ignore_index)
        picked = xp.squeeze(xp.take_along_axis(x, xp.expand_dims(safe, axis), axis), axis)
        weights = target_weights(xp, present, safe, weight, x.dtype)
        return reduced_losses(xp, picked, present, weights, reduction)

    def vjp_x(self, f, g, out, x, target, weight, *, reduction="mean", ignore_index=-100):
        return f.nll_loss_grad(
            g, target, weight, shape=tuple(x.shape), reduction=reduction, ignore_index=ignore_index
        )

    def torch_name(self, args, attrs):
        """Inputs of three and more axes have a node name of their own."""
        return "NllLoss2DBackward0" if args and len(args[0].shape) > 2 else "NllLossBackward0"


class NllLossGrad(Primitive):
    """The gradient of ``nll_loss``: at the targets minus their weights times ``g``, 0 elsewhere."""

    kind = Kind.INDEX
    inputs = ("g", "target", "weight")
    is_class_loss = True
    saves = ("target", "weight")
    computes_in_float32 = True

    def sharding_rule(self, g, target, weight, *, shape, reduction="mean", ignore_index=-100):
        """Samples are independent; a mean is computed in parts."""
        if reduction == "mean":
            return None
        after, picked = _factors(Aval(tuple(shape), g.dtype))
        after = tuple(None if factor == _CLASSES else factor for factor in after)
        own = picked if reduction == "none" else ()
        return ShardingRule((own, picked, (None,)), (after,), linear="first", shape_attr="shape")

    def in_parts(self, f, g, target, weight, *, shape, reduction="mean", ignore_index=-100):
        """The gradient of a sum, divided by the sum of the weights."""
        share = f.div(g, _sum_of_weights(f, target, weight, g.dtype, ignore_index))
        return f.nll_loss_grad(share, target, weight, shape=shape, reduction="sum", ignore_index=ignore_index)

    def infer(self, g, target, weight, *, shape, reduction="mean", ignore_index=-100):
        """``shape``."""
        return Aval(tuple(shape), g.dtype)

    @in_float32
    def forward(self, xp, g, target, weight, *, shape, reduction="mean", ignore_index=-100):
        """Write one value per target into an array of zeros."""
        result = xp.zeros(shape, g.dtype)
        axis = class_axis(result)
        present, safe = present_targets(xp, target, shape[axis], ignore_index)
        values = target_slopes(xp, g, target_weights(xp, present, safe, weight, g.dtype), reduction)
        xp.put_along_axis(result, xp.expand_dims(safe, axis), xp.expand_dims(values, axis), axis)
        return result

    def vjp_g(self, f, g, out, gradient, target, weight, *, shape, reduction="mean", ignore_index=-100):
        return f.nll_loss(g, target, weight, reduction=reduction, ignore_index=ignore_index)


class CrossEntropy(Composite):
    """``nll_loss(log_softmax(x))`` over the class axis, for class indices; keeps one number per target."""

    kind = Kind.REDUCE
    widens = True
    inputs = ("x", "target", "weight")
    is_class_loss = True
    saves = ("x", "target", "weight")
    residuals = 1
    computes_in_float32 = True
    autocast = "float32"

    def infer(self, x, target, weight, *, reduction="mean", ignore_index=-100):
        """The target's shape, or a scalar."""
        check_classes(x, target, weight)
        return Aval(tuple(target.shape) if reduction == "none" else (), x.dtype)

    def decompose(self, f, x, target, weight, *, reduction="mean", ignore_index=-100):
        check_classes(x, target, weight)
        logarithms = f.log_softmax(x, axis=class_axis(x))
        return f.nll_loss(logarithms, target, weight, reduction=reduction, ignore_index=ignore_index)

    def raw_forward(self, f, x, target, weight, *, reduction="mean", ignore_index=-100):
        """Return the loss, then the logarithm of each sum of exponentials; 16-bit inputs are computed in
        float32."""
        check_classes(x, target, weight)
        need_float(self.name, x)
        wide, weight = widened(f, x, weight)
        total = f.logsumexp(wide, axes=(class_axis(x),), keepdims=True)
        loss = f.nll_loss(f.sub(wide, total), target, weight, reduction=reduction, ignore_index=ignore_index)
        return matching(f, loss, x), total

    def vjp_joint(
        self, f, g, out, x, target, weight, *, needs, residuals, reduction="mean", ignore_index=-100
    ):
        """Only the scores have a gradient."""
        result = f.cross_entropy_grad(
            g, x, residuals[0], target, weight, reduction=reduction, ignore_index=ignore_index
        )
        return [result, None, None]

    def torch_name(self, args, attrs):
        """Inputs of three and more axes have a node name of their own."""
        return "NllLoss2DBackward0" if args and len(args[0].shape) > 2 else "NllLossBackward0"


class CrossEntropyGrad(Composite):
    """The gradient of ``cross_entropy``: weighted probabilities, minus the weights at the targets."""

    widens = True
    inputs = ("g", "x", "total", "target", "weight")
    is_class_loss = True
    reuses = (1,)  # each row of the result depends on that row only
    computes_in_float32 = True

    def sharding_rule(self, g, x, total, target, weight, *, reduction="mean", ignore_index=-100):
        """Samples are independent, and so are classes, as ``total`` is known; a mean is computed in parts."""
        if reduction == "mean":
            return None
        own, picked = _factors(x)
        sums = tuple(None if factor == _CLASSES else factor for factor in own)
        slopes = picked if reduction == "none" else ()
        return ShardingRule((slopes, own, sums, picked, (None,)), (own,), linear="first", looked_up=_CLASSES)

    def masked(self, f, g, x, total, target, weight, *, start, size, reduction="mean", ignore_index=-100):
        """The gradient of the classes of this part."""
        count = x.shape[class_axis(x)]
        if not count:
            return f.new_full(x, shape=tuple(x.shape), value=0)
        g, wide, all_weights = widened(f, g, x, weight)
        own_weights = None if weight is None else all_weights[start : start + count]
        own = _own_targets(f, target, start, count, size, ignore_index)
        picked = f.nll_loss_grad(
            g, own, own_weights, shape=tuple(x.shape), reduction=reduction, ignore_index=_IGNORED
        )
        present = f.ne(target, ignore_index)
        slopes = f.where(present, f.neg(g), 0)
        if weight is not None:
            safe = f.where(present, target, 0)
            slopes = f.mul(slopes, f.take(all_weights, safe, layout=(INDEX,)))
        shares = f.mul(f.exp(f.sub(wide, total)), f.reshape(slopes, shape=tuple(total.shape)))
        return matching(f, f.sub(picked, shares), x)

    def in_parts(self, f, g, x, total, target, weight, *, reduction="mean", ignore_index=-100):
        """The gradient of a sum, divided by the sum of the weights."""
        share = f.div(g, _sum_of_weights(f, target, weight, g.dtype, ignore_index))
        return f.cross_entropy_grad(
            share, x, total, target, weight, reduction="sum", ignore_index=ignore_index
        )

    def decompose(self, f, g, x, total, target, weight, *, reduction="mean", ignore_index=-100):
        g, wide, weight = widened(f, g, x, weight)
        picked = f.nll_loss_grad(
            g, target, weight, shape=tuple(x.shape), reduction=reduction, ignore_index=ignore_index
        )
        result = f.log_softmax_grad(picked, f.sub(wide, total), axis=class_axis(x))
        return matching(f, result, x)


nll_loss, nll_loss_grad = NllLoss(), NllLossGrad()
cross_entropy, cross_entropy_grad = CrossEntropy(), CrossEntropyGrad()
