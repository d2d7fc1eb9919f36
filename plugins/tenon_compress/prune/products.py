"""How atoms and constants go through products: matrix products, linear layers, convolutions.

What is summed over ends there (``Analysis.consume``); the rows of the weight are the atoms of the result.

Where two computed values are multiplied, as queries and keys are, code often divides by the root of how many
numbers are summed. Without those that are zero it would divide by another, which no recording shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.biases import biased, fold
from tenon_compress.prune.flow import Analysis, Flow, place, unknown, varying
from tenon_compress.prune.groups import grouped
from tenon_compress.prune.rules import rule, zeros


@rule("matmul")
def multiplied(analysis: Analysis, node: Node, x: Flow, y: Flow) -> tuple[Flow, ...]:
    """Rows and columns stay; what is summed over goes where one of the two is zero."""
    if min(len(x.shape), len(y.shape)) < 2:
        return unknown(analysis, node, x, y)
    rank = len(node.avals[0].shape)
    x, y = x.wide(rank), y.wide(rank)
    reason = f"the product in {place(node)} sums over what cannot shrink"
    atoms = analysis.meet(analysis.vector(x, rank - 1), analysis.vector(y, rank - 2), reason)
    if atoms is not None and all(isinstance(a, Ref) and a.node in analysis.computed for a in node.args):
        analysis.scales = True
        if analysis.scaled:
            analysis.keep(Flow(atoms.shape, [atoms]), f"{place(node)} may divide by how many there are")
    depth = x.shape[-1]
    if not depth:
        return (zeros(node, [], np.ones((1,) * rank, bool)),)
    filled: Any = np.broadcast_to(~x.zero, (*x.zero.shape[:-1], depth))
    other: Any = np.broadcast_to(~y.zero, (*y.zero.shape[:-2], depth, y.zero.shape[-1]))
    free = ~filled.reshape(-1, depth).any(0) | ~np.moveaxis(other, -2, -1).reshape(-1, depth).any(0)
    analysis.consume(atoms, free, f"{place(node)} reads them")
    rows = [a for a in x.layers if rank - 1 not in varying(a)]
    columns = [a for a in y.layers if rank - 2 not in varying(a)]
    left = Flow((*x.shape[:-1], 1), rows)
    right = Flow((*y.shape[:-2], 1, y.shape[-1]), columns)
    zero = (filled.astype(np.float32) @ other.astype(np.float32)) == 0
    return (zeros(node, analysis.join([left, right], reason), zero),)


@rule("linear")
def linear(analysis: Analysis, node: Node, x: Flow, weight: Flow, bias: Any = None) -> tuple[Flow, ...]:
    """``x @ weight.T + bias``; constants go into the bias."""
    return (_weighed(analysis, node, x, weight, bias, len(x.shape) - 1, 1, True),)


@rule("conv", "convolution", "conv_input_grad")
def convolved(analysis: Analysis, node: Node, x: Flow, weight: Flow, bias: Any = None) -> tuple[Flow, ...]:
    """A product over channels at every place, of all or of those of a group."""
    back = node.name == "conv_input_grad"
    spatial = range(2, len(x.shape))
    reason = f"the kernel of {place(node)} spans them"
    x = Flow(x.shape, analysis.flatten(x, reason, (0, *spatial)), x.known, x.value)
    weight = Flow(weight.shape, analysis.flatten(weight, reason, spatial), weight.known, weight.value)
    groups = node.attrs["groups"]
    if groups > 1:
        return (grouped(analysis, node, x, weight, bias, groups, back),)
    inside = not any(node.attrs["padding"]) and not back
    return (_weighed(analysis, node, x, weight, bias, 1, 0 if back else 1, inside),)


def _weighed(
    analysis: Analysis, node: Node, x: Flow, weight: Flow, bias: Any, axis: int, inner: int, inside: bool
) -> Flow:
    """A product of axis ``axis`` of ``x`` and axis ``inner`` of the weight, 0 or 1; the other is the output.

    ``inside``: every output sees every input, so constants can be folded into the bias.
    """
    reason = f"{place(node)} reads what cannot shrink"
    atoms = analysis.meet(analysis.vector(x, axis), analysis.vector(weight, inner), reason)
    outputs = analysis.vector(weight, 1 - inner)
    filled: Any = np.broadcast_to(~weight.zero, weight.shape)
    matrix = np.moveaxis(filled, inner, 1).reshape(weight.shape[1 - inner], weight.shape[inner], -1).any(2)
    present = np.moveaxis(np.broadcast_to(~x.zero, x.shape), axis, -1).reshape(-1, x.shape[axis]).any(0)
    free = ~present | ~matrix.any(0)
    gives = fold(analysis, node, x, weight, axis, atoms) if inside and inner == 1 else None
    analysis.consume(atoms, free, f"{place(node)} reads them as numbers other than zero", gives)
    zero = ~(matrix & present).any(1)
    return biased(analysis, node, x, outputs, bias, axis, zero)
