"""Convolutions in groups: what goes of one group has to go of every other one too.

Groups are equally large, before and after. So a group goes with all of its inputs and outputs, or each of
those that stay loses as many inputs as the others, and as many outputs; which may differ among groups.
Where that cannot be said of the weight, as where it is computed, a group is one atom with its outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Node, Ref
from tenon_compress.prune.biases import biased, fold
from tenon_compress.prune.flow import Analysis, Flow, Groups, place, varying


def grouped(
    analysis: Analysis, node: Node, x: Flow, weight: Flow, bias: Any, groups: int, back: bool
) -> Flow:
    """The result of a convolution in groups, ``back`` for a transposed one."""
    reason = f"the groups of {place(node)} read what cannot shrink"
    rows, inputs = analysis.vector(weight, 0), analysis.vector(x, 1)
    if inputs is None or rows is None:
        analysis.keep(weight, reason, {1})
        analysis.meet(inputs, rows, reason)
        return Flow(node.avals[0].shape, [a for a in x.layers if 1 not in varying(a)])
    filled: Any = np.broadcast_to(~weight.zero, weight.shape)
    filled = filled.reshape(groups, len(rows) // groups, weight.shape[1], -1)
    filled = filled.any(3).swapaxes(1, 2) if back else filled.any(3)
    present: Any = np.broadcast_to(~x.zero, x.shape).swapaxes(0, 1)
    present = present.reshape(groups, x.shape[1] // groups, -1).any(2)
    zero = ~(filled & present[:, None]).any(2).reshape(-1)
    inner, outer = inputs.reshape(groups, -1), rows.reshape(groups, -1)
    held = node.args[1].node if isinstance(node.args[1], Ref) else node
    if inner.shape[1] == 1 or held not in analysis.stored or analysis.readers[node.args[1]] > 1:
        analysis.keep(weight, reason, {1})
        analysis.atoms.unite(inner[:, :1], inner)
        analysis.atoms.unite(inner[:, :1], outer)
        outputs = np.repeat(inner[:, 0], node.avals[0].shape[1] // groups)
        return biased(analysis, node, x, outputs, bias, 1, zero)
    analysis.keep(weight, "", {1})  # other ones go in every group: ``columns``
    if back:
        analysis.atoms.unite(inner, outer)
        outer = analysis.atoms.fresh(node.avals[0].shape[1]).reshape(groups, -1)
    analysis.groups[held] = Groups(inner, outer, outer if back else inner)
    padded = back or any(node.attrs["padding"])
    gives = None if padded else fold(analysis, node, x, weight, 1, inputs, groups)
    free = analysis.folded(inputs, (~present | ~filled.any(1)).reshape(-1), gives).reshape(inner.shape)
    said = f"{place(node)} reads them as numbers other than zero"
    for atoms, nothing, into in zip(inner, free, outer, strict=True):
        analysis.consume(atoms, nothing, said, into=into)
    return biased(analysis, node, x, outer.reshape(-1), bias, 1, zero)
