"""Rules of the dependency analysis for recurrent layers.

A hidden unit is a row of every gate and a column of the recurrent weight.

A unit whose candidate row, which is added to the state, is zero stays zero if its initial state is zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tenon.extend import Node
from tenon.ops import gru_sequence, lstm_sequence, rnn_sequence
from tenon_compress.prune.dependencies import (
    RULES,
    AbstractValue,
    DependencyAnalysis,
    Mask,
    location,
    unknown,
)


def recurrent_rule(
    analysis: DependencyAnalysis,
    node: Node,
    x: AbstractValue,
    *args: Any,  # AbstractValues, and None where an input is absent, in the order of the op
) -> tuple[AbstractValue, ...]:
    """Return the outputs and final states of a layer in one direction."""
    op: Any = node.op  # one of the three recurrent ops, whose classes state the two
    gates, candidate = op.gates, op.candidate
    lstm = node.op is lstm_sequence
    states, weights = args[: 1 + lstm], args[1 + lstm : 5 + lstm]
    if node.attrs.get("nonlinearity", "tanh") not in ("tanh", "relu"):
        return unknown(analysis, node, x, *args)
    w_ih, w_hh = weights[:2]
    biases = [b for b in weights[2:] if isinstance(b, AbstractValue)]
    projection = args[-1] if lstm and isinstance(args[-1], AbstractValue) else None
    outer, cells = (w_hh, states) if projection is None else (projection, states[1:])
    reason = f"the states of {location(node)} have a fixed size"
    units = _units(analysis, gates, [outer, *cells], (w_ih, w_hh, *biases), reason)
    inputs = analysis.couple_reduced(analysis.channels_along(x, 1), analysis.channels_along(w_ih, 1), reason)
    present = np.broadcast_to(~x.zero, x.shape).any(0)
    filled = np.broadcast_to(~w_ih.zero, w_ih.shape)
    size = outer.shape[1]
    used = f"{location(node)} reads values other than zero from them"
    analysis.reduce(inputs, ~present | ~filled.any(0), used)
    rows = slice(candidate * size, (candidate + 1) * size)
    recurrent = np.broadcast_to(~w_hh.zero, w_hh.shape)
    zero = ~(filled & present)[rows].any(1) & ~recurrent[rows].any(1)
    for bias in biases:
        zero = zero & np.broadcast_to(bias.zero, bias.shape)[rows]
    for state in cells:
        zero = zero & np.broadcast_to(state.zero, state.shape).all(0)
    outer_nonzero: np.ndarray = np.broadcast_to(~outer.zero, outer.shape)
    analysis.reduce(units, zero | ~outer_nonzero.any(0), used)
    results: list[tuple[np.ndarray | None, Mask]] = [(units, zero)] * (2 + lstm)
    if projection is not None:
        outputs = _units(analysis, 1, [w_hh, states[0]], (projection,), reason)
        zero_outputs = ~(outer_nonzero & ~zero).any(1) & np.broadcast_to(states[0].zero, states[0].shape).all(
            0
        )
        analysis.reduce(outputs, zero_outputs | ~recurrent.any(0), used)
        results[:2] = [(outputs, zero_outputs)] * 2
    return tuple(
        AbstractValue(
            aval.shape,
            [] if channels is None else [channels.reshape(1, -1)],
            known.reshape(1, -1),
            np.zeros((1, known.size), aval.dtype),
        )
        for aval, (channels, known) in zip(node.avals, results, strict=False)
    ) + tuple(AbstractValue(aval.shape) for aval in node.avals[2 + lstm :])


def _units(
    analysis: DependencyAnalysis,
    gates: int,
    columns: Iterable[AbstractValue],
    rows_of: Iterable[AbstractValue],
    reason: str,
) -> np.ndarray | None:
    """Couple the columns of some values with the rows of others in each gate.

    Return the channels; None if they have to be kept.
    """
    coupled = [analysis.channels_along(abstract, 1) for abstract in columns]
    for abstract in rows_of:
        rows = analysis.channels_along(abstract, 0)
        coupled += [None] * gates if rows is None else list(rows.reshape(gates, -1))
    units = coupled[0]
    for other in coupled[1:]:
        units = analysis.couple_reduced(units, other, reason)
    return units


RULES.update({op.name: recurrent_rule for op in (rnn_sequence, lstm_sequence, gru_sequence)})
