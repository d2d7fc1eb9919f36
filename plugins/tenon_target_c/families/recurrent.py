"""Recurrent layers over whole sequences: LSTM (with projection), GRU, and RNN.

The products of all inputs with their weights are one matrix product before the steps.
"""

from __future__ import annotations

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import Loop
from tenon_target_c.families.products import DEPTH, is_float32, pack_columns, product, rounded
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import Pointer, View, reserve


def panels(program: Program, weight: Ref, transposed: bool = True) -> View:
    """Return the transpose of a weight, or if not ``transposed`` itself, as packed columns."""
    known = program.known(weight)
    if known is not None:
        return program.weight(pack_columns(known.T if transposed else known))
    view = program.view(weight)
    matrix = view.array.T if transposed else view.array
    k, n = matrix.shape
    packed = program.scratch(k * rounded(n))
    row, column = view.moved(matrix).strides
    program.step("k_pack_columns", k, n, view, row, column, out(packed))
    return packed


def added(program: Program, *biases: Ref | None) -> Ref | None:
    """Return the sum of two biases; None for none."""
    given = [b for b in biases if b is not None]
    if len(given) < 2:
        return given[0] if given else None
    one, other = given
    bias = Ref(Node("call"), 0)
    bias.node.avals = (one.aval,)
    first, second = program.known(one), program.known(other)
    if first is not None and second is not None:
        program.views[bias] = program.weight(first + second)
    else:
        program.views[bias] = reserve("arena", tuple(one.aval.shape), np.dtype(np.float32))
        loop = Loop(program, program.views[bias], [program.view(one), program.view(other)])
        loop.emit([], "x0 + x1", [], "each")
    return bias


def _inputs(program: Program, node: Node, x: Ref, weight: Ref, biases: tuple[Ref | None, ...]) -> View:
    """Return the products of all inputs, with ``biases`` added."""
    rows, k = x.aval.shape
    result = reserve("arena", (rows, weight.aval.shape[0]), np.dtype(np.float32))
    bias = added(program, *biases)
    shape = (k, weight.aval.shape[0])
    product(program, program.view(x), (rows, k), weight, shape, True, bias, result, Node("call"))
    return result


def initial(program: Program, node: Node, index: int, state: Ref) -> View:
    """Return the memory of a last state, which starts as the initial one."""
    return program.copy(program.view(state), program.new(node, index))


def sizes_of(node: Node) -> tuple[int, str, int]:
    """Return the number of steps, the rows of each as C text, and the direction."""
    sizes = node.attrs["sizes"]
    return len(sizes), f"(const long[]){shape_text(sizes)}", int(node.attrs.get("reverse", False))


def _is_supported(node: Node) -> bool:
    return is_float32(node) and min(node.args[0].aval.shape) > 0


@emits("lstm_sequence", when=_is_supported)
def emit_lstm(program: Program, node: Node) -> None:
    """Add one layer in one direction."""
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr = node.args
    hidden, width = w_hh.aval.shape[0] // 4, w_hh.aval.shape[1]
    inputs = _inputs(program, node, x, w_ih, (b_ih, b_hh))
    weight = panels(program, w_hh)
    projection = panels(program, w_hr) if w_hr is not None else "NULL"
    target = program.new(node)
    state, cells = initial(program, node, 1, h0), initial(program, node, 2, c0)
    residuals: list[Pointer | str] = [out(program.new(node, i)) for i in range(3, len(node.avals))] or [
        "NULL",
        "NULL",
    ]
    rows = node.attrs["sizes"][0]
    scratch = program.scratch(rows * (5 * hidden + min(max(width, hidden), DEPTH)))
    program.step(
        "k_lstm", *sizes_of(node), hidden, width, inputs, weight, projection, out(target), out(state),
        out(cells), *residuals, out(scratch),
    )  # fmt: skip


@emits("gru_sequence", when=_is_supported)
def emit_gru(program: Program, node: Node) -> None:
    """Add one layer in one direction."""
    x, h0, w_ih, w_hh, b_ih, b_hh = node.args
    hidden = w_hh.aval.shape[1]
    inputs = _inputs(program, node, x, w_ih, (b_ih,))
    weight = panels(program, w_hh)
    bias = program.dense(b_hh) if b_hh is not None else "NULL"
    target, state = program.new(node), initial(program, node, 1, h0)
    residuals: list[Pointer | str] = [out(program.new(node, i)) for i in range(2, len(node.avals))] or [
        "NULL",
        "NULL",
    ]
    rows = node.attrs["sizes"][0]
    scratch = program.scratch(rows * (3 * hidden + min(hidden, DEPTH)))
    program.step(
        "k_gru",
        *sizes_of(node),
        hidden,
        inputs,
        weight,
        bias,
        out(target),
        out(state),
        *residuals,
        out(scratch),
    )


@emits("rnn_sequence", when=_is_supported)
def emit_rnn(program: Program, node: Node) -> None:
    """Add one layer in one direction."""
    x, h0, w_ih, w_hh, b_ih, b_hh = node.args
    hidden = w_hh.aval.shape[1]
    inputs = _inputs(program, node, x, w_ih, (b_ih, b_hh))
    weight = panels(program, w_hh)
    target, state = program.new(node), initial(program, node, 1, h0)
    relu = node.attrs.get("nonlinearity", "tanh") == "relu"
    scratch = program.scratch(node.attrs["sizes"][0] * (hidden + min(hidden, DEPTH)))
    program.step(
        "k_rnn", *sizes_of(node), hidden, inputs, weight, relu, out(target), out(state), out(scratch)
    )
