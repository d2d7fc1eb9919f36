"""Recurrent layers over long sequences of one length: a loop over the steps.

Short ones, and those that keep values for a gradient, are written step by step by their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.extend import Node, Ref
from tenon_target_stablehlo.builder import INT32, Builder, Value
from tenon_target_stablehlo.families.products import dot
from tenon_target_stablehlo.forms import alone, form
from tenon_target_stablehlo.sizes import are_numbers
from tenon_target_stablehlo.texts import integers_text, type_text

#: Sequences of more steps are loops.
_SHORT = 16


def _is_long(node: Node) -> bool:
    sizes = node.attrs["sizes"]
    return (
        len(sizes) > _SHORT
        and are_numbers(sizes)
        and all(s == sizes[0] for s in sizes)
        and node.avals[0].dtype.name in ("float32", "float64")
        and alone(node)
        and len({r.aval.dtype for r in node.refs}) == 1
    )


def _product(b: Builder, x: Value, weight: Value, biases: Sequence[Ref | None]) -> Value:
    """Return ``x @ weight.T`` and the biases."""
    result = dot(b, x, weight, ([x.rank - 1], [1]))
    for bias in biases:
        if bias is not None:
            result = b.binary("add", result, b.broadcast(b.value(bias), result.shape))
    return result


def _parts(b: Builder, x: Value, count: int) -> list[Value]:
    """Return the gates, side by side in ``x``."""
    width = int(x.shape[-1]) // count
    return [b.slice(x, x.rank - 1, i * width, (i + 1) * width) for i in range(count)]


#: ``step(b, inputs, states, weights)`` returns the states after a step, the output first.
_Step = Callable[[Builder, Value, list[Value], list[Value]], list[Value]]


def _over_steps(
    b: Builder, node: Node, inputs: Value, states: Sequence[Value], weights: Sequence[Value], step: _Step
) -> tuple[Value, ...]:
    """Run ``step`` on ``inputs[T, B, ...]``; return the outputs of all steps in rows, and the last states."""
    count, batch = len(node.attrs["sizes"]), int(node.attrs["sizes"][0])
    width = int(node.avals[0].shape[-1])
    outputs = b.full(0, inputs.dtype, (count, batch, width))
    own = len(states)

    def body(number: Value, values: list[Value]) -> list[Value]:
        rows, made, *rest = values
        place = number
        if node.attrs.get("reverse"):
            place = b.binary("subtract", b.full(count - 1, INT32), number)
        zero = b.full(0, INT32)
        shape = (1, *rows.shape[1:])
        row = b.generic(
            "dynamic_slice", [rows, place, zero, zero], f"slice_sizes = {integers_text(shape)}", "",
            [(rows.dtype, shape)],
        )[0]  # fmt: skip
        new = step(b, b.reshape(row, shape[1:]), rest[:own], rest[own:])
        update = b.reshape(new[0], (1, batch, width))
        operands = [made, update, place, zero, zero]
        names, types = ", ".join(o.name for o in operands), ", ".join(o.type for o in operands)
        text = f"stablehlo.dynamic_update_slice {names} : ({types}) -> {type_text(made.dtype, made.shape)}"
        return [rows, b.write(text, made.dtype, made.shape), *new, *rest[own:]]

    _, made, *last = b.loop(count, [inputs, outputs, *states, *weights], body)
    return (b.reshape(made, node.avals[0].shape), *last[:own])


def _stacked(b: Builder, node: Node) -> Value:
    """Return the input as ``[T, B, I]``."""
    x, sizes = b.value(node.args[0]), node.attrs["sizes"]
    return b.reshape(x, (len(sizes), int(sizes[0]), x.shape[1]))


@form("lstm_sequence", when=_is_long)
def write_lstm(b: Builder, node: Node) -> tuple[Value, ...]:
    """Write a loop with two states."""
    _, h, c, w_ih, w_hh, b_ih, b_hh, w_hr = node.args
    inputs = _product(b, _stacked(b, node), b.value(w_ih), [b_ih, b_hh])
    weights = [b.value(w) for w in (w_hh, w_hr) if w is not None]

    def step(b: Builder, x: Value, states: list[Value], weights: list[Value]) -> list[Value]:
        gates = b.binary("add", x, _product(b, states[0], weights[0], []))
        i, forget, g, o = _parts(b, gates, 4)
        i, forget, o = (b.unary("logistic", gate) for gate in (i, forget, o))
        kept = b.binary("multiply", forget, states[1])
        cell = b.binary("add", kept, b.binary("multiply", i, b.unary("tanh", g)))
        out = b.binary("multiply", o, b.unary("tanh", cell))
        return [_product(b, out, weights[1], []) if len(weights) > 1 else out, cell]

    return _over_steps(b, node, inputs, [b.value(h), b.value(c)], weights, step)


@form("gru_sequence", when=_is_long)
def write_gru(b: Builder, node: Node) -> tuple[Value, ...]:
    """Write a loop whose reset gate is applied after the product, as PyTorch's is."""
    _, h, w_ih, w_hh, b_ih, b_hh = node.args
    inputs = _product(b, _stacked(b, node), b.value(w_ih), [b_ih])
    weights = [b.value(w) for w in (w_hh, b_hh) if w is not None]

    def step(b: Builder, x: Value, states: list[Value], weights: list[Value]) -> list[Value]:
        state = states[0]
        product = _product(b, state, weights[0], [])
        if len(weights) > 1:
            product = b.binary("add", product, b.broadcast(weights[1], product.shape))
        (xr, xz, xn), (hr, hz, hn) = _parts(b, x, 3), _parts(b, product, 3)
        reset = b.unary("logistic", b.binary("add", xr, hr))
        share = b.unary("logistic", b.binary("add", xz, hz))
        new = b.unary("tanh", b.binary("add", xn, b.binary("multiply", reset, hn)))
        difference = b.binary("subtract", state, new)
        return [b.binary("add", new, b.binary("multiply", share, difference))]

    return _over_steps(b, node, inputs, [b.value(h)], weights, step)


@form("rnn_sequence", when=_is_long)
def write_rnn(b: Builder, node: Node) -> tuple[Value, ...]:
    """Write a loop of ``tanh`` or ReLU."""
    _, h, w_ih, w_hh, b_ih, b_hh = node.args
    inputs = _product(b, _stacked(b, node), b.value(w_ih), [b_ih, b_hh])
    relu = node.attrs.get("nonlinearity", "tanh") == "relu"

    def step(b: Builder, x: Value, states: list[Value], weights: list[Value]) -> list[Value]:
        total = b.binary("add", x, _product(b, states[0], weights[0], []))
        if relu:
            return [b.binary("maximum", total, b.full(0, total.dtype, total.shape))]
        return [b.unary("tanh", total)]

    return _over_steps(b, node, inputs, [b.value(h)], [b.value(w_hh)], step)
