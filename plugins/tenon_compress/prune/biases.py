"""The biases of products, and the constants that are folded into them."""

from __future__ import annotations

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.dependencies import (
    AbstractValue,
    BiasFold,
    DependencyAnalysis,
    Mask,
    location,
    varying,
)


def bias_fold(
    analysis: DependencyAnalysis,
    node: Node,
    x: AbstractValue,
    weight: AbstractValue,
    axis: int,
    channels: np.ndarray | None,
    groups: int = 1,
) -> BiasFold | None:
    """Return what constant inputs add to the bias; None unless it is a parameter with no other reader."""
    ref = node.args[2] if len(node.args) > 2 else None
    if channels is None or not isinstance(ref, Ref) or ref.node not in analysis.stored or x.known is None:
        return None
    if analysis.readers[ref] > 1 or weight.known is None or not weight.known.all():
        return None
    if (varying(x.known) | varying(x.value)) - {axis}:
        return None
    size = x.shape[axis]
    known = np.broadcast_to(x.known.reshape(-1), (size,))
    value = np.broadcast_to(x.value.reshape(-1), (size,)).astype(np.float64)
    totals = (
        np.broadcast_to(weight.value, weight.shape).reshape(*weight.shape[:2], -1).sum(2, dtype=np.float64)
    )
    if groups > 1:  # outputs see the inputs of their group only
        in_group = np.repeat(np.eye(groups), len(totals) // groups, 0)
        totals = (in_group[:, :, None] * totals[:, None]).reshape(len(totals), size)
    return BiasFold(ref.node, channels, np.where(known, totals * value, np.nan))


def with_bias(
    analysis: DependencyAnalysis,
    node: Node,
    x: AbstractValue,
    outputs: np.ndarray | None,
    bias: object,
    axis: int,
    zero: Mask,
) -> AbstractValue:
    """Return the result of a product: its channels, and the bias where the sum is zero."""
    aval, rank = node.avals[0], len(x.shape)
    across = tuple(-1 if i == axis else 1 for i in range(rank))
    rest = [channel_map for channel_map in x.channel_maps if axis not in varying(channel_map)]
    value = np.zeros((1,) * rank, aval.dtype)
    if isinstance(bias, AbstractValue):
        other = analysis.channels_along(bias, 0)
        outputs = analysis.couple_reduced(outputs, other, f"the bias of {location(node)} has a fixed size")
        value = value if bias.value is None else bias.value.reshape(across)
        zero = zero & (False if bias.known is None else bias.known.reshape(-1))
    channel_maps = rest if outputs is None else [*rest, outputs.reshape(across)]
    return AbstractValue(
        aval.shape, channel_maps, zero.reshape(across), np.broadcast_to(value, zero.reshape(across).shape)
    )
