"""Gradients of recurrent layers: a kernel backpropagates through the steps; products over all rows follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.families.products import DEPTH, batched, is_float32
from tenon_target_c.families.recurrent import panels, sizes_of
from tenon_target_c.families.reductions import reduce
from tenon_target_c.program import Program, out
from tenon_target_c.values import Pointer, View, reserve


def _rows(count: int, width: int) -> View:
    return reserve("arena", (count, width), np.dtype(np.float32))


def _is_supported(node: Node) -> bool:
    return is_float32(node) and min(node.args[node.op.inputs.index("x")].aval.shape) > 0


def _emit_products(
    program: Program, node: Node, first: int, pairs: Sequence[tuple[View, View] | None]
) -> None:
    """Add ``left @ right`` for each pair whose output, from ``first`` on, is needed."""
    for index, pair in enumerate(pairs, first):
        target = program.new(node, index)
        if target.size and pair is not None:
            batched(program, *pair, target, ())


def _emit_sums(program: Program, node: Node, index: int, gates: View) -> None:
    """Add the gradient of a bias: the sum over all rows."""
    target = program.new(node, index)
    if target.size:
        reduce(program, gates, [0], "k_sum_f32", target)


def _turned(view: View) -> View:
    return view.moved(view.array.T)


def _weights(program: Program, x: Ref, w_ih: Ref) -> tuple[View, View]:
    return program.view(x), program.view(w_ih)


@emits("lstm_sequence_grad", when=_is_supported)
def emit_lstm_gradient(program: Program, node: Node) -> None:
    """Add the gradients of a layer in one direction."""
    g, g_last, g_cell, states, x, h0, c0, w_ih, w_hh, w_hr, gates, cells = node.args
    hidden, width, count = w_hh.aval.shape[0] // 4, w_hh.aval.shape[1], x.aval.shape[0]
    sums, previous = _rows(count, 4 * hidden), _rows(count, width)
    projected, high = (_rows(count, width), _rows(count, hidden)) if w_hr is not None else (None, None)
    first = program.new(node, 0)
    state = program.copy(program.view(g_last), program.new(node, 1))
    cell = program.copy(program.view(g_cell), program.new(node, 2))
    scratch = program.scratch(node.attrs["sizes"][0] * (2 * hidden + DEPTH))
    more: list[Pointer | str] = [out(v) if v is not None else "NULL" for v in (projected, high)]
    given = map(program.dense, (g, states, h0, c0, gates, cells))
    program.step(
        "k_lstm_gradient", *sizes_of(node), hidden, width, *given, panels(program, w_hh, transposed=False),
        panels(program, w_hr, transposed=False) if w_hr is not None else "NULL",
        out(state), out(cell), out(sums), out(previous), *more, out(scratch),
    )  # fmt: skip
    inputs, weight = _weights(program, x, w_ih)
    if first.size:
        batched(program, sums, weight, first, ())
    _emit_products(program, node, 3, [(_turned(sums), inputs), (_turned(sums), previous)])
    _emit_sums(program, node, 5, sums)
    _emit_products(program, node, 6, [(_turned(projected), high) if projected and high else None])


@emits("gru_sequence_grad", when=_is_supported)
def emit_gru_gradient(program: Program, node: Node) -> None:
    """Add the gradients of a layer in one direction."""
    g, g_last, states, x, h0, w_ih, w_hh, gates, more = node.args
    hidden, count = w_hh.aval.shape[1], x.aval.shape[0]
    sums, own, previous = _rows(count, 3 * hidden), _rows(count, 3 * hidden), _rows(count, hidden)
    first = program.new(node, 0)
    state = program.copy(program.view(g_last), program.new(node, 1))
    program.step(
        "k_gru_gradient", *sizes_of(node), hidden, *map(program.dense, (g, states, h0, gates, more)),
        panels(program, w_hh, transposed=False), out(state), out(sums), out(own), out(previous),
        out(program.scratch(node.attrs["sizes"][0] * DEPTH)),
    )  # fmt: skip
    inputs, weight = _weights(program, x, w_ih)
    if first.size:
        batched(program, sums, weight, first, ())
    _emit_products(program, node, 2, [(_turned(sums), inputs), (_turned(own), previous)])
    _emit_sums(program, node, 4, sums)
    _emit_sums(program, node, 5, own)


@emits("rnn_sequence_grad", when=_is_supported)
def emit_rnn_gradient(program: Program, node: Node) -> None:
    """Add the gradients of a layer in one direction."""
    g, g_last, states, x, h0, w_ih, w_hh = node.args
    hidden, count = w_hh.aval.shape[1], x.aval.shape[0]
    sums, previous = _rows(count, hidden), _rows(count, hidden)
    first = program.new(node, 0)
    state = program.copy(program.view(g_last), program.new(node, 1))
    relu = node.attrs.get("nonlinearity", "tanh") == "relu"
    program.step(
        "k_rnn_gradient", *sizes_of(node), hidden, *map(program.dense, (g, states, h0)),
        panels(program, w_hh, transposed=False), relu, out(state), out(sums), out(previous),
        out(program.scratch(node.attrs["sizes"][0] * DEPTH)),
    )  # fmt: skip
    inputs, weight = _weights(program, x, w_ih)
    if first.size:
        batched(program, sums, weight, first, ())
    _emit_products(program, node, 2, [(_turned(sums), inputs), (_turned(sums), previous)])
    _emit_sums(program, node, 4, sums)
