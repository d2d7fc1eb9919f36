"""Recurrent layers over sequences of one length: ``LSTM``, ``GRU`` and ``RNN``.

The order of gates differs between ONNX and PyTorch. Sequences of several lengths are written step by step.
If the batch may be empty, a row is added and removed again, as onnxruntime aborts for an empty batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_onnx.builder import Builder
from tenon_target_onnx.forms import form, same_floats

#: The positions of ONNX's gates among PyTorch's: input, output, forget, cell; update, reset, new.
_LSTM, _GRU, _RNN = (0, 3, 1, 2), (1, 0, 2), (0,)


def _has_one_length(node: Node) -> bool:
    sizes = node.attrs["sizes"]
    return same_floats(node) and node.avals[0].dtype.name == "float32" and all(s == sizes[0] for s in sizes)


def _ordered(b: Builder, argument: Ref | None, order: Sequence[int], rows: int, name: str) -> str | None:
    """Return a weight or bias with its gates in ONNX's order; computed now if it is known."""
    if argument is None:
        return None
    value = b.value(argument)
    if len(order) == 1:
        return value
    known = b.known(value)
    if known is not None:
        array = np.concatenate([known[g * rows : (g + 1) * rows] for g in order])
        return b.initializer(array, f"{value}/{name}")
    parts = b.calls("Split", (value, b.ints([rows] * len(order))), len(order), axis=0)
    return b.call("Concat", *(parts[g] for g in order), axis=0)


def _biases(
    b: Builder, node: Node, given: Sequence[Ref | None], order: Sequence[int], rows: int, name: str
) -> str:
    """Return both biases concatenated, zeros for a missing one."""
    if all(g is None for g in given):
        return ""
    dtype, zeros = node.avals[0].dtype, np.zeros(rows * len(order))
    parts = [_ordered(b, g, order, rows, name) or b.constant(zeros, dtype) for g in given]
    arrays = [b.known(p) for p in parts]
    if all(a is not None for a in arrays):
        whole = np.concatenate([a for a in arrays if a is not None])[None]
        return b.initializer(whole, f"{parts[0]}/both")
    return b.unsqueezed(b.call("Concat", *parts, axis=0), [0])


def _layer(
    b: Builder, node: Node, operator: str, order: Sequence[int], states: Sequence[Ref],
    weights: Sequence[Ref | None], **attributes: object,
) -> tuple[str, ...]:  # fmt: skip
    """Write one layer in one direction; return its outputs of all steps in rows, and its last states."""
    x, sizes = node.args[0], node.attrs["sizes"]
    w_ih, w_hh, b_ih, b_hh = weights
    assert w_ih is not None and w_hh is not None
    rows = int(w_hh.aval.shape[1])
    stacked = b.reshape(b.value(x), (len(sizes), sizes[0], x.aval.shape[1]))
    matrices = []
    for weight in (w_ih, w_hh):
        ordered = _ordered(b, weight, order, rows, operator)
        assert ordered is not None
        known = b.known(ordered)
        if known is not None and len(order) > 1:
            del b.initializers[ordered]
            b.initializers[ordered] = known[None]
            matrices.append(ordered)
        else:
            matrices.append(b.unsqueezed(ordered, [0]))
    bias = _biases(b, node, (b_ih, b_hh), order, rows, operator)
    first = [b.unsqueezed(b.value(s), [0]) for s in states]
    batch, empty = sizes[0], b.may_be_zero(sizes[0])
    if empty:
        missing = b.call("Sub", b.call("Max", b.size(batch), b.ints([1])), b.size(batch))
        widths = b.call("Concat", b.ints([0, 0, 0, 0]), missing, b.ints([0]), axis=0)
        stacked, *first = (b.call("Pad", each, widths) for each in (stacked, *first))
    direction = "reverse" if node.attrs.get("reverse") else "forward"
    outputs = b.calls(
        operator, (stacked, *matrices, bias, "", *first), 1 + len(states), hidden_size=rows,
        direction=direction, **attributes,
    )  # fmt: skip
    if empty:
        outputs = tuple(b.sliced(out, [(2 if i == 0 else 1, 0, batch, 1)]) for i, out in enumerate(outputs))
    steps = b.reshape(outputs[0], node.avals[0].shape)
    return (steps, *(b.squeezed(last, [0]) for last in outputs[1:]))


@form("lstm_sequence", when=lambda node: _has_one_length(node) and node.args[7] is None)
def write_lstm(b: Builder, node: Node) -> tuple[str, ...]:
    """Write ``LSTM``."""
    return _layer(b, node, "LSTM", _LSTM, node.args[1:3], node.args[3:7])


@form("gru_sequence", when=_has_one_length)
def write_gru(b: Builder, node: Node) -> tuple[str, ...]:
    """Write ``GRU`` whose reset gate is applied after the product, as PyTorch's is."""
    return _layer(b, node, "GRU", _GRU, node.args[1:2], node.args[2:6], linear_before_reset=1)


@form("rnn_sequence", when=_has_one_length)
def write_rnn(b: Builder, node: Node) -> tuple[str, ...]:
    """Write ``RNN``."""
    function = "Relu" if node.attrs.get("nonlinearity", "tanh") == "relu" else "Tanh"
    return _layer(b, node, "RNN", _RNN, node.args[1:2], node.args[2:6], activations=[function])
