"""How atoms go through recurrent layers: a hidden unit is a row of every gate and a column of the next step.

A unit whose candidate, the row that is added to the state, is zero stays at zero from a state of zeros on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Node
from tenon_compress.prune.flow import RULES, Analysis, Flow, place, unknown

#: Number of gates, and which of them is the candidate.
_GATES = {"lstm_sequence": (4, 2), "gru_sequence": (3, 2), "rnn_sequence": (1, 0)}


def sequence(analysis: Analysis, node: Node, x: Flow, *args: Any) -> tuple[Flow, ...]:
    """The outputs and last states of a layer in one direction."""
    gates, candidate = _GATES[node.name]
    lstm = node.name == "lstm_sequence"
    states, weights = args[: 1 + lstm], args[1 + lstm : 5 + lstm]
    if node.attrs.get("nonlinearity", "tanh") not in ("tanh", "relu"):
        return unknown(analysis, node, x, *args)
    w_ih, w_hh = weights[:2]
    biases = [b for b in weights[2:] if isinstance(b, Flow)]
    projection = args[-1] if lstm and isinstance(args[-1], Flow) else None
    outer, cells = (w_hh, states) if projection is None else (projection, states[1:])
    reason = f"the states of {place(node)} cannot shrink"
    units = _units(analysis, gates, [outer, *cells], (w_ih, w_hh, *biases), reason)
    inputs = analysis.meet(analysis.vector(x, 1), analysis.vector(w_ih, 1), reason)
    present = np.broadcast_to(~x.zero, x.shape).any(0)
    filled = np.broadcast_to(~w_ih.zero, w_ih.shape)
    size = outer.shape[1]
    said = f"{place(node)} reads them as numbers other than zero"
    analysis.consume(inputs, ~present | ~filled.any(0), said)
    rows = slice(candidate * size, (candidate + 1) * size)
    recurrent = np.broadcast_to(~w_hh.zero, w_hh.shape)
    zero = ~(filled & present)[rows].any(1) & ~recurrent[rows].any(1)
    for bias in biases:
        zero = zero & np.broadcast_to(bias.zero, bias.shape)[rows]
    for state in cells:
        zero = zero & np.broadcast_to(state.zero, state.shape).all(0)
    shown: Any = np.broadcast_to(~outer.zero, outer.shape)
    analysis.consume(units, zero | ~shown.any(0), said)
    made: list[tuple[Any, Any]] = [(units, zero)] * (2 + lstm)
    if projection is not None:
        outputs = _units(analysis, 1, [w_hh, states[0]], (projection,), reason)
        nothing = ~(shown & ~zero).any(1) & np.broadcast_to(states[0].zero, states[0].shape).all(0)
        analysis.consume(outputs, nothing | ~recurrent.any(0), said)
        made[:2] = [(outputs, nothing)] * 2
    return tuple(
        Flow(
            aval.shape,
            [] if atoms is None else [atoms.reshape(1, -1)],
            known.reshape(1, -1),
            np.zeros((1, len(known)), aval.dtype),
        )
        for aval, (atoms, known) in zip(node.avals, made, strict=False)
    ) + tuple(Flow(aval.shape) for aval in node.avals[2 + lstm :])


def _units(analysis: Analysis, gates: int, columns: Any, rows_of: Any, reason: str) -> Any:
    """The atoms of the columns of some values, united with the rows of others, of each of so many gates; None
    where they stay."""
    found = [analysis.vector(flow, 1) for flow in columns]
    for flow in rows_of:
        rows = analysis.vector(flow, 0)
        found += [None] * gates if rows is None else list(rows.reshape(gates, -1))
    units = found[0]
    for other in found[1:]:
        units = analysis.meet(units, other, reason)
    return units


RULES.update(dict.fromkeys(_GATES, sequence))
