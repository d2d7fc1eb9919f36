"""Rules of the dependency analysis for products: matrix products, linear layers, convolutions.

The channels that are summed over end there (``DependencyAnalysis.reduce``); the rows of the weight are the
channels of the result.

Where two computed values are multiplied, as queries and keys are, code often divides by the square root of
the number of channels summed over. Removing zero channels would change that number, which no recording shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.biases import bias_fold, with_bias
from tenon_compress.prune.dependencies import AbstractValue, DependencyAnalysis, location, unknown, varying
from tenon_compress.prune.grouped_convolutions import grouped_convolution
from tenon_compress.prune.op_rules import rule, zeros


@rule("matmul")
def matmul_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, y: AbstractValue
) -> tuple[AbstractValue, ...]:
    """Channels that are summed over can be removed where one operand is zero; rows and columns remain."""
    if min(len(x.shape), len(y.shape)) < 2:
        return unknown(analysis, node, x, y)
    rank = len(node.avals[0].shape)
    x, y = x.with_rank(rank), y.with_rank(rank)
    reason = f"the product in {location(node)} sums over an axis of fixed size"
    channels = analysis.couple_reduced(
        analysis.channels_along(x, rank - 1), analysis.channels_along(y, rank - 2), reason
    )
    if channels is not None and all(isinstance(a, Ref) and a.node in analysis.computed for a in node.args):
        analysis.multiplies_computed = True
        if analysis.keep_scales:
            analysis.keep(
                AbstractValue(channels.shape, [channels]),
                f"{location(node)} may divide by their number",
            )
    depth = x.shape[-1]
    if not depth:
        return (zeros(node, [], np.ones((1,) * rank, bool)),)
    filled: np.ndarray = np.broadcast_to(~x.zero, (*x.zero.shape[:-1], depth))
    other: np.ndarray = np.broadcast_to(~y.zero, (*y.zero.shape[:-2], depth, y.zero.shape[-1]))
    free = ~filled.reshape(-1, depth).any(0) | ~np.moveaxis(other, -2, -1).reshape(-1, depth).any(0)
    analysis.reduce(channels, free, f"{location(node)} reads them")
    rows = [a for a in x.channel_maps if rank - 1 not in varying(a)]
    columns = [a for a in y.channel_maps if rank - 2 not in varying(a)]
    left = AbstractValue((*x.shape[:-1], 1), rows)
    right = AbstractValue((*y.shape[:-2], 1, y.shape[-1]), columns)
    zero = (filled.astype(np.float32) @ other.astype(np.float32)) == 0
    return (zeros(node, analysis.couple_broadcast([left, right], reason), zero),)


@rule("linear")
def linear_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, weight: AbstractValue, bias: object = None
) -> tuple[AbstractValue, ...]:
    """``x @ weight.T + bias``; constant inputs can be folded into the bias."""
    return (_weighted(analysis, node, x, weight, bias, len(x.shape) - 1, 1, True),)


@rule("conv", "convolution", "conv_input_grad")
def convolution_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, weight: AbstractValue, bias: object = None
) -> tuple[AbstractValue, ...]:
    """A product over the channels at every position, over all or over those of a group."""
    transposed = node.name == "conv_input_grad"
    spatial = range(2, len(x.shape))
    reason = f"the kernel of {location(node)} extends over them"
    x = AbstractValue(x.shape, analysis.couple_along(x, reason, (0, *spatial)), x.known, x.value)
    weight = AbstractValue(
        weight.shape, analysis.couple_along(weight, reason, spatial), weight.known, weight.value
    )
    groups = node.attrs["groups"]
    if groups > 1:
        return (grouped_convolution(analysis, node, x, weight, bias, groups, transposed),)
    full_coverage = not any(node.attrs["padding"]) and not transposed
    return (_weighted(analysis, node, x, weight, bias, 1, 0 if transposed else 1, full_coverage),)


def _weighted(
    analysis: DependencyAnalysis,
    node: Node,
    x: AbstractValue,
    weight: AbstractValue,
    bias: object,
    axis: int,
    inner: int,
    full_coverage: bool,
) -> AbstractValue:
    """A product over axis ``axis`` of ``x`` and axis ``inner`` of the weight, whose other axis is output.

    ``full_coverage``: every output sums over every input, so constants can be folded into the bias.
    """
    reason = f"{location(node)} reads an axis of fixed size"
    channels = analysis.couple_reduced(
        analysis.channels_along(x, axis), analysis.channels_along(weight, inner), reason
    )
    outputs = analysis.channels_along(weight, 1 - inner)
    filled: np.ndarray = np.broadcast_to(~weight.zero, weight.shape)
    matrix: Any = (  # NumPy's annotation of ``any`` allows for an array without axes
        np.moveaxis(filled, inner, 1).reshape(weight.shape[1 - inner], weight.shape[inner], -1).any(2)
    )
    present = np.moveaxis(np.broadcast_to(~x.zero, x.shape), axis, -1).reshape(-1, x.shape[axis]).any(0)
    free = ~present | ~matrix.any(0)
    fold = bias_fold(analysis, node, x, weight, axis, channels) if full_coverage and inner == 1 else None
    analysis.reduce(channels, free, f"{location(node)} reads values other than zero from them", fold)
    zero = ~(matrix & present).any(1)
    return with_bias(analysis, node, x, outputs, bias, axis, zero)
