"""How atoms go through recurrent layers: a hidden unit is a row of every gate and a column of the next step.

A unit whose candidate, the row that is added to the state, is zero stays at zero from a state of zeros on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.graph.graph import Node
from tenon.prune.flow import RULES, Analysis, Flow, place, unknown

#: Number of gates, and which of them is the candidate.
_GATES = {"lstm_sequence": (4, 2), "gru_sequence": (3, 2), "rnn_sequence": (1, 0)}


def sequence(analysis: Analysis, node: Node, x: Flow, *args: Any) -> tuple[Flow, ...]:
    """The outputs and last states of a layer in one direction."""
    gates, candidate = _GATES[node.name]
    lstm = node.name == "lstm_sequence"
    states, weights = args[: 1 + lstm], args[1 + lstm : 5 + lstm]
    if (lstm and isinstance(args[-1], Flow)) or (
        node.attrs.get("nonlinearity", "tanh") not in ("tanh", "relu")
    ):
        return unknown(analysis, node, x, *args)  # a projection of the states
    w_ih, w_hh = weights[:2]
    biases = [b for b in weights[2:] if isinstance(b, Flow)]
    reason = f"the states of {place(node)} cannot shrink"
    units = _units(analysis, gates, w_ih, w_hh, biases, states, reason)
    inputs = analysis.meet(analysis.vector(x, 1), analysis.vector(w_ih, 1), reason)
    present = np.broadcast_to(~x.zero, x.shape).any(0)
    filled = np.broadcast_to(~w_ih.zero, w_ih.shape)
    size = w_hh.shape[1]
    said = f"{place(node)} reads them as numbers other than zero"
    analysis.consume(inputs, ~present | ~filled.any(0), said)
    rows = slice(candidate * size, (candidate + 1) * size)
    recurrent = np.broadcast_to(~w_hh.zero, w_hh.shape)
    zero = ~(filled & present)[rows].any(1) & ~recurrent[rows].any(1)
    for bias in biases:
        zero = zero & np.broadcast_to(bias.zero, bias.shape)[rows]
    for state in states:
        zero = zero & np.broadcast_to(state.zero, state.shape).all(0)
    analysis.consume(units, zero | ~recurrent.any(0), said)
    layers = [] if units is None else [units.reshape(1, -1)]
    return tuple(
        Flow(aval.shape, list(layers), zero.reshape(1, -1), np.zeros((1, size), aval.dtype))
        for aval in node.avals[: 2 + lstm]
    ) + tuple(Flow(aval.shape) for aval in node.avals[2 + lstm :])


def _units(
    analysis: Analysis, gates: int, w_ih: Flow, w_hh: Flow, biases: list[Flow], states: Any, reason: str
) -> Any:
    """The atoms of the hidden units, united over gates, columns, biases and states; None where they stay."""
    found = [analysis.vector(w_hh, 1), *(analysis.vector(state, 1) for state in states)]
    for flow in (w_ih, w_hh, *biases):
        rows = analysis.vector(flow, 0)
        found += [None] * gates if rows is None else list(rows.reshape(gates, -1))
    units = found[0]
    for other in found[1:]:
        units = analysis.meet(units, other, reason)
    return units


RULES.update(dict.fromkeys(_GATES, sequence))
