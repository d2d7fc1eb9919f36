"""Rules of the dependency analysis by op: movement, elementwise ops, sums, windows, norms, tables.

A rule takes the analysis, the node and the abstract values of its arguments, couples channels or keeps them,
and returns the abstract values of its results. Products are in ``product_rules.py``, recurrent layers
in ``recurrent_rules.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon import ops
from tenon.extend import Aval, Node, Primitive
from tenon_compress.prune.dependencies import (
    KINDS,
    RULES,
    AbstractValue,
    DependencyAnalysis,
    KnownArray,
    Mask,
    Rule,
    location,
    unknown,
    varying,
)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of the ops ``names``."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


# --- movement ---


@rule("reshape", "view", "unsqueeze", "squeeze", "permute", "transpose", "expand", "flip", "roll", "diagonal")
@rule("slice_axis", "split", "unbind", "index")
def movement_rule(analysis: DependencyAnalysis, node: Node, x: AbstractValue) -> tuple[AbstractValue, ...]:
    """Channels and constants move as the op moves elements."""
    op = ops.reshape if node.name == "view" else node.op  # the order in memory may differ here

    assert isinstance(op, Primitive)

    def move(array: np.ndarray) -> tuple[np.ndarray, ...]:
        result = op.forward(np, np.broadcast_to(array, x.shape), **node.attrs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    channel_maps = [move(channel_map) for channel_map in x.channel_maps]
    known, value = (None, None) if x.known is None else (move(x.known), move(x.value))
    return tuple(
        AbstractValue(
            aval.shape,
            [channel_map[i] for channel_map in channel_maps],
            None if known is None else known[i],
            None if value is None else value[i],
        )
        for i, aval in enumerate(node.avals)
    )


@rule("take")
def take_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, *indices: AbstractValue
) -> tuple[AbstractValue, ...]:
    """Rows at indices: their axis is kept; the other axes are unchanged, whatever the indices are."""
    indexed = [axis for axis, key in enumerate(node.attrs["layout"]) if not isinstance(key, slice)]
    channel_maps = analysis.keep(x, f"{location(node)} selects them by index", indexed)
    zero_rows = np.broadcast_to(x.zero, x.shape).all(tuple(indexed), keepdims=True)
    any_index = [np.zeros(index.shape, np.int64) for index in indices]

    op = node.op
    assert isinstance(op, Primitive)

    def take(array: Mask) -> np.ndarray:
        return op.forward(np, np.broadcast_to(array, x.shape), *any_index, **node.attrs)

    return (zeros(node, [take(channel_map) for channel_map in channel_maps], take(zero_rows)),)


@rule("segment_sum")
def segment_sum_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, offsets: AbstractValue
) -> tuple[AbstractValue, ...]:
    """Sums over rows, such as the words of a bag; the other axes are unchanged."""
    channel_maps = analysis.couple_along(x, f"{location(node)} sums over them", {0})
    return (zeros(node, channel_maps, np.broadcast_to(x.zero, x.shape).all(0, keepdims=True)),)


@rule("gather")
def gather_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, indices: AbstractValue
) -> tuple[AbstractValue, ...]:
    """Elements at indices along one axis, which is kept; the others are coupled with the indices' axes."""
    axis = node.attrs["axis"]
    reason = f"{location(node)} selects them by index"
    parts = [AbstractValue(f.shape, analysis.keep(f, reason, {axis})) for f in (x, indices)]
    return (AbstractValue(node.avals[0].shape, analysis.couple_broadcast(parts, reason, but=axis)),)


@rule("pad")
def pad_rule(analysis: DependencyAnalysis, node: Node, x: AbstractValue) -> tuple[AbstractValue, ...]:
    """Padded axes are kept; zeros remain zero if the padding is zero."""
    padded_axes = {axis for axis, width in enumerate(node.attrs["widths"]) if tuple(width) != (0, 0)}
    channel_maps = analysis.keep(x, f"{location(node)} pads them", padded_axes)
    known = x.zero if node.attrs.get("value", 0) == 0 else None
    if known is not None and varying(known) & padded_axes:
        known = None
    return (zeros(node, channel_maps, known),)


@rule("cat", "stack")
def concatenation_rule(
    analysis: DependencyAnalysis, node: Node, *xs: AbstractValue
) -> tuple[AbstractValue, ...]:
    """The operands' channels are concatenated along the axis and coupled along all others."""
    (aval,), axis = node.avals, node.attrs["axis"]
    if node.name == "stack":
        xs = tuple(_expanded(x, axis) for x in xs)
    reason = f"{location(node)} joins them with an axis of fixed size"
    channel_maps = analysis.couple_broadcast(xs, reason, but=axis)
    along = []
    for x in xs:
        own = [channel_map for channel_map in x.channel_maps if axis in varying(channel_map)]
        if len(own) > 1 or any(varying(channel_map) != {axis} for channel_map in own):
            analysis.keep(AbstractValue(x.shape, own), reason)
            own = []
        fixed = np.zeros([x.shape[axis] if i == axis else 1 for i in range(len(x.shape))], np.int64)
        along.append(own[0] if own else fixed)
    if any(a.any() for a in along):
        channel_maps.append(np.concatenate(along, axis))
    if all(x.known is None for x in xs):
        return (AbstractValue(aval.shape, channel_maps),)
    blank = np.zeros((1,) * len(aval.shape), aval.dtype)
    known, value = (
        np.concatenate([np.broadcast_to(blank if a is None else a, x.shape) for x, a in pairs], axis)
        for pairs in ([(x, x.known) for x in xs], [(x, x.value) for x in xs])
    )
    return (AbstractValue(aval.shape, channel_maps, known.astype(bool), value),)


def _expanded(x: AbstractValue, axis: int) -> AbstractValue:
    def more(array: KnownArray) -> KnownArray:
        return None if array is None else np.expand_dims(array, axis)

    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return AbstractValue(
        shape, [more(channel_map) for channel_map in x.channel_maps], more(x.known), more(x.value)
    )


def zeros(node: Node, channel_maps: list[np.ndarray], known: Mask | None, index: int = 0) -> AbstractValue:
    """Return a result that is known to be zero where ``known`` is true."""
    aval = node.avals[index]
    return AbstractValue(
        aval.shape,
        channel_maps,
        known,
        None if known is None else np.zeros((1,) * len(aval.shape), aval.dtype),
    )


# --- elementwise ops ---


def elementwise_rule(analysis: DependencyAnalysis, node: Node, *args: object) -> tuple[AbstractValue, ...]:
    """Operands' channels are coupled; constants are computed, and zero times anything is zero."""
    if len(node.avals) != 1:
        return unknown(analysis, node, *args)
    (aval,) = node.avals
    operands = [
        abstract.with_rank(len(aval.shape)) for abstract in args if isinstance(abstract, AbstractValue)
    ]
    channel_maps = analysis.couple_broadcast(
        operands, f"{location(node)} combines them with an axis of fixed size"
    )
    if len(operands) == len(args):
        known, value = analysis.constant_result(node, operands)
        if known is not None and value is not None:
            return (AbstractValue(aval.shape, channel_maps, *_ranked(len(aval.shape), known, value)),)
    if node.name == "mul":
        return (
            zeros(node, channel_maps, np.logical_or.reduce(np.broadcast_arrays(*(f.zero for f in operands)))),
        )
    return (
        zeros(node, channel_maps, operands[0].zero)
        if node.name == "div"
        else AbstractValue(aval.shape, channel_maps),
    )


def _ranked(rank: int, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(a.reshape((1,) * (rank - a.ndim) + a.shape) for a in arrays)


def copy_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, *rest: object
) -> tuple[AbstractValue, ...]:
    """A copy, in other memory or of another dtype."""
    if rest:
        return unknown(analysis, node, x, *rest)
    value = None if x.value is None else x.value.astype(node.avals[0].dtype)
    return (AbstractValue(x.shape, list(x.channel_maps), x.known, value),)


def creation_rule(analysis: DependencyAnalysis, node: Node, *args: object) -> tuple[AbstractValue, ...]:
    """A new value whose size Python code chose: its axes get new channels."""
    (aval,) = node.avals
    axes = [analysis.channels.create(n) for n in aval.shape]
    channel_maps = [a.reshape((-1,) + (1,) * (len(axes) - i - 1)) for i, a in enumerate(axes) if a.size > 1]
    channel_maps = [a.reshape((1,) * (len(axes) - a.ndim) + a.shape) for a in channel_maps]
    fill = node.attrs.get("value", 0)
    if fill != 0:
        analysis.created_constants += axes
    blank = (1,) * len(axes)
    return (AbstractValue(aval.shape, channel_maps, np.ones(blank, bool), np.full(blank, fill, aval.dtype)),)


@rule("batch_norm_inference", "channel_affine", "batch_norm")
def batch_norm_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, *vectors: object
) -> tuple[AbstractValue, ...]:
    """Vectors over the channels are coupled with the second axis of ``x``; constants are computed."""
    rank = len(x.shape)
    reason = f"{location(node)} has one value for each channel of an axis of fixed size"

    def across(vector: AbstractValue) -> AbstractValue:
        shape = (1, -1) + (1,) * (rank - 2)
        known, value = (None if a is None else a.reshape(shape) for a in (vector.known, vector.value))
        return AbstractValue(
            (1, *vector.shape, *shape[2:]), [a.reshape(shape) for a in vector.channel_maps], known, value
        )

    operands = [x, *(across(v) for v in vectors if isinstance(v, AbstractValue))]
    channel_maps = analysis.couple_broadcast(operands, reason)
    if node.name != "batch_norm":
        return (
            _affine(analysis, node, channel_maps, operands, [isinstance(v, AbstractValue) for v in vectors]),
        )
    return (
        AbstractValue(x.shape, channel_maps),
        *(_channel_vector(aval, channel_maps) for aval in node.avals[1:]),
    )


def _channel_vector(aval: Aval, channel_maps: list[np.ndarray]) -> AbstractValue:
    """Return the abstract value of batch norm's other results: a vector over the channels."""
    return AbstractValue(aval.shape, [a.reshape(-1) for a in channel_maps if varying(a) == {1}])


def _affine(
    analysis: DependencyAnalysis,
    node: Node,
    channel_maps: list[np.ndarray],
    operands: list[AbstractValue],
    present: list[bool],
) -> AbstractValue:
    """Compute ``(x - mean) / sqrt(variance + eps) * weight + bias`` where it is constant."""
    x, *numbers = operands
    one, null = np.ones((1,) * len(x.shape)), np.zeros((1,) * len(x.shape))
    remaining = iter(numbers)
    weight, bias, mean, variance = (
        next(remaining).value if i < len(present) and present[i] else default
        for i, default in enumerate((one, null, null, one))
    )
    if any(v is None for v in (weight, bias, mean, variance)):
        return AbstractValue(x.shape, channel_maps)
    eps = node.attrs.get("eps", 0.0)
    scale = weight / np.sqrt(variance + eps)
    known = (scale == 0) if x.known is None else x.known | (scale == 0)
    value = (0 if x.value is None else x.value - mean) * scale + bias
    value = np.where(scale == 0, bias, value).astype(node.avals[0].dtype)
    return AbstractValue(x.shape, channel_maps, *np.broadcast_arrays(known, value))


# --- sums ---


@rule("sum", "sum_to")
def sum_rule(analysis: DependencyAnalysis, node: Node, x: AbstractValue) -> tuple[AbstractValue, ...]:
    """Channels that are summed over can be removed if they are zero."""
    (aval,) = node.avals
    axes = _reduced_axes(node, x)
    for axis in axes:
        channels = analysis.channels_along(x, axis)
        if channels is not None:
            others = tuple(i for i in range(len(x.shape)) if i != axis)
            free = np.broadcast_to(x.zero, x.shape).all(others)
            analysis.reduce(channels, free, f"{location(node)} sums over values other than zero")
    return (_reduced_value(aval, [a for a in x.channel_maps if not varying(a) & axes], axes, x),)


def reduction_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, *rest: object
) -> tuple[AbstractValue, ...]:
    """Means, maxima and the like depend on the number of elements: the axes they reduce are kept."""
    axes = _reduced_axes(node, x)
    if rest or len(node.avals) != 1 or axes is None:
        return unknown(analysis, node, x, *rest)
    channel_maps = analysis.couple_along(x, f"'{node.name}' in {location(node)} runs over them", axes)
    return (_reduced_value(node.avals[0], channel_maps, axes, x),)


def _reduced_axes(node: Node, x: AbstractValue) -> set[int]:
    attrs, rank = node.attrs, len(x.shape)
    if node.name == "sum_to":
        shape = (1,) * (rank - len(attrs["shape"])) + tuple(attrs["shape"])
        return {i for i in range(rank) if shape[i] != x.shape[i]}
    axes = attrs.get("axes", attrs.get("axis"))
    axes = (axes,) if isinstance(axes, int) else tuple(range(rank)) if axes is None else tuple(axes)
    return {axis % rank for axis in axes} or set(range(rank))


def _reduced_value(
    aval: Aval, channel_maps: list[np.ndarray], axes: set[int], x: AbstractValue
) -> AbstractValue:
    """Return the result of a reduction over ``axes``, which have size 1 or are dropped."""
    if len(aval.shape) == len(x.shape):
        return AbstractValue(aval.shape, channel_maps)
    dropped = tuple(sorted(axes))[: len(x.shape) - len(aval.shape)]
    return AbstractValue(aval.shape, [np.squeeze(channel_map, dropped) for channel_map in channel_maps])


@rule("softmax", "safe_softmax", "log_softmax", "cumsum")
def softmax_rule(analysis: DependencyAnalysis, node: Node, x: AbstractValue) -> tuple[AbstractValue, ...]:
    """Every element depends on all along the axis, which is kept."""
    reason = f"'{node.name}' in {location(node)} runs over them"
    return (AbstractValue(x.shape, analysis.couple_along(x, reason, {node.attrs["axis"] % len(x.shape)})),)


@rule("layer_norm")
def layer_norm_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, weight: object, bias: object
) -> tuple[AbstractValue, ...]:
    """Mean and variance of the last axes depend on their size; slices of zeros remain zero without a bias."""
    axes = range(len(x.shape) - node.attrs["rank"], len(x.shape))
    reason = f"the norm in {location(node)} computes their mean, zeros included"
    for vector in (weight, bias):
        if isinstance(vector, AbstractValue):
            analysis.keep(vector, reason)
    channel_maps = analysis.couple_along(x, reason, axes)
    plain = not isinstance(bias, AbstractValue) and x.known is not None
    zero = np.broadcast_to(x.zero, x.shape).all(tuple(axes), keepdims=True) if plain else None
    return (zeros(node, channel_maps, zero),)


# --- windows, tables ---


def window_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, *rest: object
) -> tuple[AbstractValue, ...]:
    """Pooling and resampling process each channel separately; zero channels remain zero."""
    if rest or node.name.startswith(("unfold", "fold", "fractional")):
        return unknown(analysis, node, x, *rest)
    channel_maps = analysis.couple_along(
        x, f"the windows of {location(node)} extend over them", range(2, len(x.shape))
    )
    known = x.zero
    if varying(known) & set(range(2, len(x.shape))):
        known = np.zeros((1,) * len(x.shape), bool)
    keeps_constants = node.name in ("max_pool", "adaptive_avg_pool") and x.known is not None
    if keeps_constants and max(varying(x.known) | varying(x.value), default=0) < 2:
        return (AbstractValue(node.avals[0].shape, channel_maps, x.known, x.value),)
    return tuple(zeros(node, channel_maps, known, i) for i in range(len(node.avals)))


@rule("embedding", "embedding_rows")
def embedding_rule(
    analysis: DependencyAnalysis, node: Node, weight: AbstractValue, indices: AbstractValue
) -> tuple[AbstractValue, ...]:
    """The last axis of the table may shrink; its rows are kept, as indices refer to them."""
    analysis.keep(weight, "", {0})
    analysis.keep(indices, "")
    outputs = analysis.channels_along(weight, 1)
    across = (1,) * len(indices.shape) + (-1,)
    zero = np.broadcast_to(weight.zero, weight.shape).all(0).reshape(across)
    return (zeros(node, [] if outputs is None else [outputs.reshape(across)], zero),)


KINDS.update(
    elementwise=elementwise_rule,
    reduce=reduction_rule,
    memory=copy_rule,
    window=window_rule,
    create=creation_rule,
)
