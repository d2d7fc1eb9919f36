"""How atoms and constants go through ops: movement, element-wise ops, sums, windows, norms, tables.

A rule gets the analysis, the node and the flows of its arguments, and returns the flows of its results.
Products are in ``products.py``, recurrent layers in ``recurrent.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon import ops
from tenon.extend import Node
from tenon_compress.prune.flow import KINDS, RULES, Analysis, Flow, Rule, place, unknown, varying


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of the ops of ``names``."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


# --- the same elements elsewhere ---


@rule("reshape", "view", "unsqueeze", "squeeze", "permute", "transpose", "expand", "flip", "roll", "diagonal")
@rule("slice_axis", "split", "unbind", "index")
def moved(analysis: Analysis, node: Node, x: Flow) -> tuple[Flow, ...]:
    """Move atoms and constants as the op moves elements."""
    op = ops.reshape if node.name == "view" else node.op  # what lies in memory here is not what lay there

    def move(array: Any) -> tuple[Any, ...]:
        made = op.forward(np, np.broadcast_to(array, x.shape), **node.attrs)
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)

    layers = [move(layer) for layer in x.layers]
    known, value = (None, None) if x.known is None else (move(x.known), move(x.value))
    return tuple(
        Flow(
            aval.shape,
            [layer[i] for layer in layers],
            None if known is None else known[i],
            None if value is None else value[i],
        )
        for i, aval in enumerate(node.avals)
    )


@rule("take")
def taken(analysis: Analysis, node: Node, x: Flow, *indices: Any) -> tuple[Flow, ...]:
    """Rows wherever they are asked for: whatever the indices are, the other axes stay as they are."""
    places = [axis for axis, key in enumerate(node.attrs["layout"]) if not isinstance(key, slice)]
    layers = analysis.keep(x, f"{place(node)} looks for them by their number", places)
    zeros_there = np.broadcast_to(x.zero, x.shape).all(tuple(places), keepdims=True)
    anywhere = [np.zeros(index.shape, np.int64) for index in indices]

    def take(array: Any) -> Any:
        return node.op.forward(np, np.broadcast_to(array, x.shape), *anywhere, **node.attrs)

    return (zeros(node, [take(layer) for layer in layers], take(zeros_there)),)


@rule("segment_sum")
def segmented(analysis: Analysis, node: Node, x: Flow, offsets: Flow) -> tuple[Flow, ...]:
    """Sums over rows, as of the words of a bag; the other axes stay as they are."""
    layers = analysis.flatten(x, f"{place(node)} sums over them", {0})
    return (zeros(node, layers, np.broadcast_to(x.zero, x.shape).all(0, keepdims=True)),)


@rule("gather")
def gathered(analysis: Analysis, node: Node, x: Flow, indices: Flow) -> tuple[Flow, ...]:
    """Numbers along one axis, each of the others with indices of its own."""
    axis = node.attrs["axis"]
    reason = f"{place(node)} looks for them by their number"
    parts = [Flow(f.shape, analysis.keep(f, reason, {axis})) for f in (x, indices)]
    return (Flow(node.avals[0].shape, analysis.join(parts, reason, but=axis)),)


@rule("pad")
def padded(analysis: Analysis, node: Node, x: Flow) -> tuple[Flow, ...]:
    """Padding of other axes leaves channels as they are; zeros stay zero where zeros are added."""
    padded_axes = {axis for axis, width in enumerate(node.attrs["widths"]) if tuple(width) != (0, 0)}
    layers = analysis.keep(x, f"{place(node)} pads them", padded_axes)
    known = x.zero if node.attrs.get("value", 0) == 0 else None
    if known is not None and varying(known) & padded_axes:
        known = None
    return (zeros(node, layers, known),)


@rule("cat", "stack")
def joined(analysis: Analysis, node: Node, *xs: Flow) -> tuple[Flow, ...]:
    """Atoms of the operands one after the other along the axis; along all others they are united."""
    (aval,), axis = node.avals, node.attrs["axis"]
    if node.name == "stack":
        xs = tuple(_expanded(x, axis) for x in xs)
    reason = f"{place(node)} joins them with what cannot shrink"
    layers = analysis.join(xs, reason, but=axis)
    along = []
    for x in xs:
        mine = [layer for layer in x.layers if axis in varying(layer)]
        if len(mine) > 1 or any(varying(layer) != {axis} for layer in mine):
            analysis.keep(Flow(x.shape, mine), reason)
            mine = []
        fixed = np.zeros([x.shape[axis] if i == axis else 1 for i in range(len(x.shape))], np.int64)
        along.append(mine[0] if mine else fixed)
    if any(a.any() for a in along):
        layers.append(np.concatenate(along, axis))
    if all(x.known is None for x in xs):
        return (Flow(aval.shape, layers),)
    blank = np.zeros((1,) * len(aval.shape), aval.dtype)
    known, value = (
        np.concatenate([np.broadcast_to(blank if a is None else a, x.shape) for x, a in pairs], axis)
        for pairs in ([(x, x.known) for x in xs], [(x, x.value) for x in xs])
    )
    return (Flow(aval.shape, layers, known.astype(bool), value),)


def _expanded(x: Flow, axis: int) -> Flow:
    def more(array: Any) -> Any:
        return None if array is None else np.expand_dims(array, axis)

    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return Flow(shape, [more(layer) for layer in x.layers], more(x.known), more(x.value))


def zeros(node: Node, layers: list[Any], known: Any, index: int = 0) -> Flow:
    """A result that is known where it is zero, if ``known`` says where."""
    aval = node.avals[index]
    return Flow(
        aval.shape, layers, known, None if known is None else np.zeros((1,) * len(aval.shape), aval.dtype)
    )


# --- element by element ---


def elementwise(analysis: Analysis, node: Node, *args: Any) -> tuple[Flow, ...]:
    """Operands share their atoms; constants are computed, and zero times anything is zero."""
    if len(node.avals) != 1:
        return unknown(analysis, node, *args)
    (aval,) = node.avals
    flows = [flow.wide(len(aval.shape)) for flow in args if isinstance(flow, Flow)]
    layers = analysis.join(flows, f"{place(node)} combines them with what cannot shrink")
    if len(flows) == len(args):
        known, value = analysis.compute(node, flows)
        if known is not None:
            return (Flow(aval.shape, layers, *_ranked(len(aval.shape), known, value)),)
    if node.name == "mul":
        return (zeros(node, layers, np.logical_or.reduce(np.broadcast_arrays(*(f.zero for f in flows)))),)
    return (zeros(node, layers, flows[0].zero) if node.name == "div" else Flow(aval.shape, layers),)


def _ranked(rank: int, *arrays: Any) -> tuple[Any, ...]:
    return tuple(a.reshape((1,) * (rank - a.ndim) + a.shape) for a in arrays)


def same(analysis: Analysis, node: Node, x: Flow, *rest: Any) -> tuple[Flow, ...]:
    """A copy, in some memory or dtype."""
    if rest:
        return unknown(analysis, node, x, *rest)
    value = None if x.value is None else x.value.astype(node.avals[0].dtype)
    return (Flow(x.shape, list(x.layers), x.known, value),)


def created(analysis: Analysis, node: Node, *args: Any) -> tuple[Flow, ...]:
    """New values of a size that Python chose; the size follows what it was taken from."""
    (aval,) = node.avals
    axes = [analysis.atoms.fresh(n) for n in aval.shape]
    layers = [a.reshape((-1,) + (1,) * (len(axes) - i - 1)) for i, a in enumerate(axes) if a.size > 1]
    layers = [a.reshape((1,) * (len(axes) - a.ndim) + a.shape) for a in layers]
    fill = node.attrs.get("value", 0)
    if fill != 0:
        analysis.made += axes
    blank = (1,) * len(axes)
    return (Flow(aval.shape, layers, np.ones(blank, bool), np.full(blank, fill, aval.dtype)),)


@rule("batch_norm_inference", "channel_affine", "batch_norm")
def per_channel(analysis: Analysis, node: Node, x: Flow, *vectors: Any) -> tuple[Flow, ...]:
    """Numbers of each channel, the second axis, next to it; constants become other constants."""
    rank = len(x.shape)
    reason = f"{place(node)} has numbers for channels that cannot shrink"

    def across(vector: Flow) -> Flow:
        shape = (1, -1) + (1,) * (rank - 2)
        known, value = (None if a is None else a.reshape(shape) for a in (vector.known, vector.value))
        return Flow((1, *vector.shape, *shape[2:]), [a.reshape(shape) for a in vector.layers], known, value)

    given = [x, *(across(v) for v in vectors if isinstance(v, Flow))]
    layers = analysis.join(given, reason)
    if node.name != "batch_norm":
        return (_affine(analysis, node, layers, given, [isinstance(v, Flow) for v in vectors]),)
    return (Flow(x.shape, layers), *(_channel_flow(aval, layers) for aval in node.avals[1:]))


def _channel_flow(aval: Any, layers: list[Any]) -> Flow:
    """What batch norm returns beside: one number for each channel."""
    return Flow(aval.shape, [a.reshape(-1) for a in layers if varying(a) == {1}])


def _affine(analysis: Analysis, node: Node, layers: list[Any], given: list[Flow], there: list[bool]) -> Flow:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` where all of it is known, or the weight is 0."""
    x, *numbers = given
    one, nothing = np.ones((1,) * len(x.shape)), np.zeros((1,) * len(x.shape))
    found = iter(numbers)
    weight, bias, mean, variance = (
        next(found).value if i < len(there) and there[i] else default
        for i, default in enumerate((one, nothing, nothing, one))
    )
    if any(v is None for v in (weight, bias, mean, variance)):
        return Flow(x.shape, layers)
    eps = node.attrs.get("eps", 0.0)
    scale = weight / np.sqrt(variance + eps)
    known = (scale == 0) if x.known is None else x.known | (scale == 0)
    value = (0 if x.value is None else x.value - mean) * scale + bias
    value = np.where(scale == 0, bias, value).astype(node.avals[0].dtype)
    return Flow(x.shape, layers, *np.broadcast_arrays(known, value))


# --- sums ---


@rule("sum", "sum_to")
def summed(analysis: Analysis, node: Node, x: Flow) -> tuple[Flow, ...]:
    """Atoms summed over may go if they are zero."""
    (aval,) = node.avals
    axes = _reduced(node, x)
    for axis in axes:
        atoms = analysis.vector(x, axis)
        if atoms is not None:
            others = tuple(i for i in range(len(x.shape)) if i != axis)
            free = np.broadcast_to(x.zero, x.shape).all(others)
            analysis.consume(atoms, free, f"{place(node)} sums over numbers other than zero")
    return (_without(aval, [a for a in x.layers if not varying(a) & axes], axes, x),)


def reduced(analysis: Analysis, node: Node, x: Flow, *rest: Any) -> tuple[Flow, ...]:
    """Means, maxima and the like depend on how many there are: what they are taken over stays."""
    axes = _reduced(node, x)
    if rest or len(node.avals) != 1 or axes is None:
        return unknown(analysis, node, x, *rest)
    layers = analysis.flatten(x, f"'{node.name}' in {place(node)} is taken over them", axes)
    return (_without(node.avals[0], layers, axes, x),)


def _reduced(node: Node, x: Flow) -> set[int]:
    attrs, rank = node.attrs, len(x.shape)
    if node.name == "sum_to":
        shape = (1,) * (rank - len(attrs["shape"])) + tuple(attrs["shape"])
        return {i for i in range(rank) if shape[i] != x.shape[i]}
    axes = attrs.get("axes", attrs.get("axis"))
    axes = (axes,) if isinstance(axes, int) else tuple(range(rank)) if axes is None else tuple(axes)
    return {axis % rank for axis in axes} or set(range(rank))


def _without(aval: Any, layers: list[Any], axes: set[int], x: Flow) -> Flow:
    """Layers over the axes that are left, kept with size 1 or dropped."""
    if len(aval.shape) == len(x.shape):
        return Flow(aval.shape, layers)
    gone = tuple(sorted(axes))[: len(x.shape) - len(aval.shape)]
    return Flow(aval.shape, [np.squeeze(layer, gone) for layer in layers])


@rule("softmax", "safe_softmax", "log_softmax", "cumsum")
def along(analysis: Analysis, node: Node, x: Flow) -> tuple[Flow, ...]:
    """Along the axis everything depends on everything."""
    reason = f"'{node.name}' in {place(node)} is taken over them"
    return (Flow(x.shape, analysis.flatten(x, reason, {node.attrs["axis"] % len(x.shape)})),)


@rule("layer_norm")
def normalized(analysis: Analysis, node: Node, x: Flow, weight: Any, bias: Any) -> tuple[Flow, ...]:
    """Mean and variance of the last axes depend on how many there are; what is zero there stays so."""
    axes = range(len(x.shape) - node.attrs["rank"], len(x.shape))
    reason = f"the norm in {place(node)} takes their mean, zeros included"
    for vector in (weight, bias):
        if isinstance(vector, Flow):
            analysis.keep(vector, reason)
    layers = analysis.flatten(x, reason, axes)
    plain = not isinstance(bias, Flow) and x.known is not None
    zero = np.broadcast_to(x.zero, x.shape).all(tuple(axes), keepdims=True) if plain else None
    return (zeros(node, layers, zero),)


# --- windows, tables ---


def windowed(analysis: Analysis, node: Node, x: Flow, *rest: Any) -> tuple[Flow, ...]:
    """Pools and resampling work on every channel by itself; channels that are zero stay so."""
    if rest or node.name.startswith(("unfold", "fold", "fractional")):
        return unknown(analysis, node, x, *rest)
    layers = analysis.flatten(x, f"the windows of {place(node)} span them", range(2, len(x.shape)))
    known = x.zero
    if varying(known) & set(range(2, len(x.shape))):
        known = np.zeros((1,) * len(x.shape), bool)
    keeps_constants = node.name in ("max_pool", "adaptive_avg_pool") and x.known is not None
    if keeps_constants and max(varying(x.known) | varying(x.value), default=0) < 2:
        return (Flow(node.avals[0].shape, layers, x.known, x.value),)
    return tuple(zeros(node, layers, known, i) for i in range(len(node.avals)))


@rule("embedding", "embedding_rows")
def embedded(analysis: Analysis, node: Node, weight: Flow, indices: Flow) -> tuple[Flow, ...]:
    """The last axis of the table; its rows stay, whatever asks for them, and nobody wonders why."""
    analysis.keep(weight, "", {0})
    analysis.keep(indices, "")
    outputs = analysis.vector(weight, 1)
    across = (1,) * len(indices.shape) + (-1,)
    zero = np.broadcast_to(weight.zero, weight.shape).all(0).reshape(across)
    return (zeros(node, [] if outputs is None else [outputs.reshape(across)], zero),)


KINDS.update(elementwise=elementwise, reduce=reduced, memory=same, window=windowed, create=created)
