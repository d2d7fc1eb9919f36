"""Rules of the dependency analysis for in-place changes: ``out[..., a:b] = head``, ``x[:, 0] = 0``.

A recording has no in-place changes: a value is copied into a view, and a new value replaces the base of that
view.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from tenon.extend import Node, Primitive
from tenon_compress.prune.dependencies import AbstractValue, DependencyAnalysis, location
from tenon_compress.prune.op_rules import rule


@rule("copy")
def copy_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, y: AbstractValue
) -> tuple[AbstractValue, ...]:
    """Copy the values of ``y``, whose channels are coupled with those of the destination ``x``."""
    (aval,) = node.avals
    y = y.with_rank(len(aval.shape))
    channel_maps = analysis.couple_broadcast(
        [x, y], f"{location(node)} writes them into an axis of fixed size"
    )
    analysis.writes_channels = analysis.writes_channels or bool(y.channel_maps)
    if analysis.keep_scales and y.channel_maps:
        for channel_map in channel_maps:
            analysis.channels.keep(
                channel_map, f"{location(node)} writes them into a tensor whose size may be fixed"
            )
    value = None if y.value is None else y.value.astype(aval.dtype)
    return (AbstractValue(aval.shape, channel_maps, y.known, value),)


@rule("put_view")
def put_view_rule(
    analysis: DependencyAnalysis, node: Node, x: AbstractValue, value: AbstractValue
) -> tuple[AbstractValue, ...]:
    """Put ``value`` into a view of ``x``; their channels are coupled already."""
    (aval,) = node.avals
    if x.known is None and value.known is None:
        return (AbstractValue(x.shape, list(x.channel_maps)),)

    def filled(abstract: AbstractValue, array: np.ndarray | None, dtype: DTypeLike) -> np.ndarray:
        return np.broadcast_to(np.zeros((), dtype) if array is None else array, abstract.shape)

    op = node.op
    assert isinstance(op, Primitive)
    known = op.forward(np, filled(x, x.known, bool), filled(value, value.known, bool), **node.attrs)
    values = op.forward(
        np, filled(x, x.value, aval.dtype), filled(value, value.value, aval.dtype), **node.attrs
    )
    return (AbstractValue(x.shape, list(x.channel_maps), known, values),)
