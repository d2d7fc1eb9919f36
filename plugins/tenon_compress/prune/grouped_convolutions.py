"""Grouped convolutions: every group that is kept has to lose as many channels as the others.

All groups have one size, before and after. So a group is removed with all of its inputs and outputs, or each
remaining group loses as many inputs as the others, and as many outputs, not necessarily at the same
positions. Where the weight cannot be sliced so, as where it is computed, all channels of a group are coupled.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.biases import bias_fold, with_bias
from tenon_compress.prune.dependencies import (
    AbstractValue,
    ConvolutionGroups,
    DependencyAnalysis,
    location,
    varying,
)

#: An array of bools; to NumPy's annotations, what ``any`` along an axis returns may be a single bool.
_Bools: TypeAlias = Any


def grouped_convolution(
    analysis: DependencyAnalysis,
    node: Node,
    x: AbstractValue,
    weight: AbstractValue,
    bias: object,
    groups: int,
    transposed: bool,
) -> AbstractValue:
    """Return the result of a grouped convolution, transposed if ``transposed``."""
    reason = f"the groups of {location(node)} read an axis of fixed size"
    rows, inputs = analysis.channels_along(weight, 0), analysis.channels_along(x, 1)
    if inputs is None or rows is None:
        analysis.keep(weight, reason, {1})
        analysis.couple_reduced(inputs, rows, reason)
        return AbstractValue(node.avals[0].shape, [a for a in x.channel_maps if 1 not in varying(a)])
    filled: _Bools = np.broadcast_to(~weight.zero, weight.shape)
    filled = filled.reshape(groups, len(rows) // groups, weight.shape[1], -1)
    filled = filled.any(3).swapaxes(1, 2) if transposed else filled.any(3)
    present: _Bools = np.broadcast_to(~x.zero, x.shape).swapaxes(0, 1)
    present = present.reshape(groups, x.shape[1] // groups, -1).any(2)
    zero = ~(filled & present[:, None]).any(2).reshape(-1)
    inner, outer = inputs.reshape(groups, -1), rows.reshape(groups, -1)
    weight_node = node.args[1].node if isinstance(node.args[1], Ref) else node
    if inner.shape[1] == 1 or weight_node not in analysis.stored or analysis.readers[node.args[1]] > 1:
        analysis.keep(weight, reason, {1})
        analysis.channels.couple(inner[:, :1], inner)
        analysis.channels.couple(inner[:, :1], outer)
        outputs = np.repeat(inner[:, 0], node.avals[0].shape[1] // groups)
        return with_bias(analysis, node, x, outputs, bias, 1, zero)
    analysis.keep(weight, "", {1})  # each group loses columns of its own: ``columns``
    if transposed:
        analysis.channels.couple(inner, outer)
        outer = analysis.channels.create(node.avals[0].shape[1]).reshape(groups, -1)
    analysis.groups[weight_node] = ConvolutionGroups(inner, outer, outer if transposed else inner)
    padded = transposed or any(node.attrs["padding"])
    fold = None if padded else bias_fold(analysis, node, x, weight, 1, inputs, groups)
    free: np.ndarray = analysis.removable_in(inputs, (~present | ~filled.any(1)).reshape(-1), fold).reshape(
        inner.shape
    )
    reason = f"{location(node)} reads values other than zero from them"
    for channels, group_free, into in zip(inner, free, outer, strict=True):
        analysis.reduce(channels, group_free, reason, into=into)
    return with_bias(analysis, node, x, outer.reshape(-1), bias, 1, zero)
