"""What products add after their sums: biases, and the constants that go into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.flow import Analysis, Flow, Fold, place, varying


def fold(
    analysis: Analysis, node: Node, x: Flow, weight: Flow, axis: int, atoms: Any, groups: int = 1
) -> Fold | None:
    """What the constants among the inputs add to the bias, if it is a parameter that nobody else reads."""
    ref = node.args[2] if len(node.args) > 2 else None
    if atoms is None or not isinstance(ref, Ref) or ref.node not in analysis.stored or x.known is None:
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
    if groups > 1:  # every group's own outputs
        own = np.repeat(np.eye(groups), len(totals) // groups, 0)
        totals = (own[:, :, None] * totals[:, None]).reshape(len(totals), size)
    return Fold(ref.node, atoms, np.where(known, totals * value, np.nan))


def biased(analysis: Analysis, node: Node, x: Flow, outputs: Any, bias: Any, axis: int, zero: Any) -> Flow:
    """The output of a product: its atoms, and the bias where nothing else comes."""
    aval, rank = node.avals[0], len(x.shape)
    across = tuple(-1 if i == axis else 1 for i in range(rank))
    rest = [layer for layer in x.layers if axis not in varying(layer)]
    value = np.zeros((1,) * rank, aval.dtype)
    if isinstance(bias, Flow):
        other = analysis.vector(bias, 0)
        outputs = analysis.meet(outputs, other, f"the bias of {place(node)} cannot shrink")
        value = value if bias.value is None else bias.value.reshape(across)
        zero = zero & (False if bias.known is None else bias.known.reshape(-1))
    layers = rest if outputs is None else [*rest, outputs.reshape(across)]
    return Flow(aval.shape, layers, zero.reshape(across), np.broadcast_to(value, zero.reshape(across).shape))
