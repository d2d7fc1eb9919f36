"""How atoms and constants go through changes in place: ``out[..., a:b] = head``, ``x[:, 0] = 0``.

A recording has no changes in place: a value is copied into a view, and a new value takes the place of what
the view is of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Node
from tenon_compress.prune.flow import Analysis, Flow, place
from tenon_compress.prune.rules import rule


@rule("copy")
def copied(analysis: Analysis, node: Node, x: Flow, y: Flow) -> tuple[Flow, ...]:
    """The values of ``y``, whose atoms are those of the place."""
    (aval,) = node.avals
    y = y.wide(len(aval.shape))
    layers = analysis.join([x, y], f"{place(node)} writes them over what cannot shrink")
    analysis.writes = analysis.writes or bool(y.layers)
    if analysis.scaled and y.layers:
        for layer in layers:
            analysis.atoms.keep(layer, f"{place(node)} writes them into what may have a size of its own")
    value = None if y.value is None else y.value.astype(aval.dtype)
    return (Flow(aval.shape, layers, y.known, value),)


@rule("put_view")
def put(analysis: Analysis, node: Node, x: Flow, value: Flow) -> tuple[Flow, ...]:
    """``x``, and ``value`` in one of its views, of which it has the atoms already."""
    (aval,) = node.avals
    if x.known is None and value.known is None:
        return (Flow(x.shape, list(x.layers)),)

    def whole(flow: Flow, array: Any, dtype: Any) -> Any:
        return np.broadcast_to(np.zeros((), dtype) if array is None else array, flow.shape)

    known = node.op.forward(np, whole(x, x.known, bool), whole(value, value.known, bool), **node.attrs)
    values = node.op.forward(
        np, whole(x, x.value, aval.dtype), whole(value, value.value, aval.dtype), **node.attrs
    )
    return (Flow(x.shape, list(x.layers), known, values),)
