"""Gradients of the recurrent layers: backpropagation through time, from the last step to the first.

``needs`` selects the gradients to compute, in the order of the inputs of the forward op; the others are empty
arrays. The gradients of weights are sums over all rows, each computed as one product after the last step.
``out`` and the residuals are results of the forward op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind
from tenon.engine.types import Operand, OpNamespace
from tenon.ops.composite.recurrent import concatenated, rows, scan, spans, split_gates, transposed
from tenon.ops.dtype_queries import matching, widened


def before(f: OpNamespace, states: Operand, initial: Operand, sizes: Sequence[int], reverse: bool) -> Operand:
    """Return the state from which each row of each step was computed: that of the step before, or the initial
    one."""
    rest = states.shape[0] - sizes[0]
    if rest and sizes[0] == sizes[-1]:
        if reverse:
            return f.cat(rows(f, states, sizes[0], states.shape[0]), initial, axis=0)
        return f.cat(initial, rows(f, states, 0, rest), axis=0)
    places, pieces = spans(sizes), []
    for t, size in enumerate(sizes):
        if not reverse:
            pieces.append(rows(f, states, places[t - 1][0], places[t - 1][0] + size) if t else initial)
            continue
        later = sizes[t + 1] if t + 1 < len(sizes) else 0
        if later:
            pieces.append(rows(f, states, *places[t + 1]))
        if size > later or not size:
            pieces.append(rows(f, initial, later, size))
    return f.cat(*pieces, axis=0)


def _empty(f: OpNamespace, like: Operand) -> Operand:
    """Return an array without elements, of the dtype of ``like``."""
    return f.new_full(like, shape=(0,), value=0, dtype=like.dtype)


def _avals(needed: Sequence[bool], *like: Operand) -> tuple[Aval, ...]:
    """Return avals of the shapes of ``like`` where needed, of empty arrays elsewhere."""
    return tuple(
        Aval(tuple(v.shape) if n and v is not None else (0,), like[0].dtype)
        for n, v in zip(needed, like, strict=True)
    )


def _bias(weight: Operand) -> Aval:
    return Aval((weight.shape[0],), weight.dtype)


def _slope(f: OpNamespace, gate: Operand) -> Operand:
    """Return the derivative of the sigmoid, from its value ``gate``."""
    return f.mul(gate, f.sub(1.0, gate))


def _tanh_slope(f: OpNamespace, value: Operand) -> Operand:
    """Return the derivative of the hyperbolic tangent, from its value."""
    return f.sub(1.0, f.mul(value, value))


def products(
    f: OpNamespace,
    x: Operand,
    w_ih: Operand,
    previous: Callable[[], Operand],
    inputs: Operand,
    hidden: Operand,
    needs: Sequence[bool],
) -> tuple[Operand, ...]:
    """Return the gradients of the input, both weights and both biases.

    ``inputs`` and ``hidden`` are the gradients of the two products before the activations of the gates;
    ``previous`` returns the states from which each row was computed.
    """
    rules = (
        (needs[0], lambda: f.matmul(inputs, w_ih)),
        (needs[1], lambda: f.matmul(transposed(f, inputs), x)),
        (needs[2], lambda: f.matmul(transposed(f, hidden), previous())),
        (needs[3], lambda: f.sum(inputs, axes=(0,))),
        (needs[4], lambda: f.sum(hidden, axes=(0,))),
    )
    return tuple(compute() if needed else _empty(f, x) for needed, compute in rules)


class RnnSequenceGrad(Composite):
    """Gradients of ``rnn_sequence`` with respect to input, state, both weights, and either bias."""

    kind = Kind.CONTRACT
    inputs = ("g", "g_last", "out", "x", "h0", "w_ih", "w_hh")
    outputs = 5

    def infer(self, g, g_last, out, x, h0, w_ih, w_hh, *, needs, **attrs):
        """The shapes of the inputs; empty where no gradient is needed."""
        needed = (needs[0], True, *needs[2:4], needs[4] or needs[5])
        return _avals(needed, x, h0, w_ih, w_hh, _bias(w_hh))

    def decompose(
        self, f, g, g_last, out, x, h0, w_ih, w_hh, *, sizes, needs, reverse=False, nonlinearity="tanh"
    ):
        original, pieces = x, []
        g, g_last, out, x, h0, w_ih, w_hh = widened(f, g, g_last, out, x, h0, w_ih, w_hh)

        def step(start: int, stop: int, states: list[Operand]) -> list[Operand]:
            dh, h = f.add(states[0], rows(f, g, start, stop)), rows(f, out, start, stop)
            d = f.relu_grad(dh, h) if nonlinearity == "relu" else f.mul(dh, _tanh_slope(f, h))
            pieces.append(d)
            return [f.matmul(d, w_hh)]

        (dh0,) = scan(f, step, (g_last,), sizes, not reverse)
        d = concatenated(f, pieces, not reverse)
        needed = (needs[0], *needs[2:4], needs[4] or needs[5], False)
        previous = lambda: before(f, out, h0, sizes, reverse)  # noqa: E731 - computed where it is needed
        dx, dw_ih, dw_hh, db, _ = products(f, x, w_ih, previous, d, d, needed)
        return tuple(matching(f, m, original) for m in (dx, dh0, dw_ih, dw_hh, db))


class LstmSequenceGrad(Composite):
    """Gradients of ``lstm_sequence`` with respect to input, both states, both weights, either bias, and the
    projection."""

    kind = Kind.CONTRACT
    inputs = (
        "g", "g_last", "g_cell", "out", "x", "h0", "c0", "w_ih", "w_hh", "w_hr", "gates", "cells",
    )  # fmt: skip
    outputs = 7

    def infer(self, g, g_last, g_cell, out, x, h0, c0, w_ih, w_hh, w_hr, gates, cells, *, needs, **attrs):
        """The shapes of the inputs; empty where no gradient is needed."""
        needed = (needs[0], True, True, *needs[3:5], needs[5] or needs[6], needs[7])
        return _avals(needed, x, h0, c0, w_ih, w_hh, _bias(w_hh), w_hr)

    def decompose(
        self, f, g, g_last, g_cell, out, x, h0, c0, w_ih, w_hh, w_hr, gates, cells,
        *, sizes, needs, reverse=False,
    ):  # fmt: skip
        original = x
        g, g_last, g_cell, out, x, h0, c0 = widened(f, g, g_last, g_cell, out, x, h0, c0)
        w_ih, w_hh, w_hr, gates, cells = widened(f, w_ih, w_hh, w_hr, gates, cells)
        i, forget, a, o = split_gates(f, gates, 4)
        old, tanh = before(f, cells, c0, sizes, reverse), f.tanh(cells)
        through = f.mul(o, _tanh_slope(f, tanh))  # from h to c
        slopes = f.cat(
            f.mul(a, _slope(f, i)), f.mul(old, _slope(f, forget)), f.mul(i, _tanh_slope(f, a)), axis=1
        )
        out_slope = f.mul(tanh, _slope(f, o))
        pieces: list[Operand] = []
        projected: list[Operand] = []

        def step(start: int, stop: int, states: list[Operand]) -> list[Operand]:
            dh = f.add(states[0], rows(f, g, start, stop))
            projected.append(dh)
            dh = dh if w_hr is None else f.matmul(dh, w_hr)
            dc = f.add(states[1], f.mul(dh, rows(f, through, start, stop)))
            d = f.mul(f.cat(dc, dc, dc, axis=1), rows(f, slopes, start, stop))
            d = f.cat(d, f.mul(dh, rows(f, out_slope, start, stop)), axis=1)
            pieces.append(d)
            return [f.matmul(d, w_hh), f.mul(dc, rows(f, forget, start, stop))]

        dh0, dc0 = scan(f, step, (g_last, g_cell), sizes, not reverse)
        d = concatenated(f, pieces, not reverse)
        needed = (needs[0], *needs[3:5], needs[5] or needs[6], False)
        previous = lambda: before(f, out, h0, sizes, reverse)  # noqa: E731 - computed where it is needed
        dx, dw_ih, dw_hh, db, _ = products(f, x, w_ih, previous, d, d, needed)
        dw_hr = _empty(f, x)
        if w_hr is not None and needs[7]:
            dw_hr = f.matmul(transposed(f, concatenated(f, projected, not reverse)), f.mul(o, tanh))
        return tuple(matching(f, m, original) for m in (dx, dh0, dc0, dw_ih, dw_hh, db, dw_hr))


class GruSequenceGrad(Composite):
    """Gradients of ``gru_sequence`` with respect to input, state, both weights and both biases; ``hidden`` is
    ``h_n``."""

    kind = Kind.CONTRACT
    inputs = ("g", "g_last", "out", "x", "h0", "w_ih", "w_hh", "gates", "hidden")
    outputs = 6

    def infer(self, g, g_last, out, x, h0, w_ih, w_hh, gates, hidden, *, needs, **attrs):
        """The shapes of the inputs; empty where no gradient is needed."""
        return _avals((needs[0], True, *needs[2:]), x, h0, w_ih, w_hh, _bias(w_hh), _bias(w_hh))

    def decompose(self, f, g, g_last, out, x, h0, w_ih, w_hh, gates, hidden, *, sizes, needs, reverse=False):
        original = x
        g, g_last, out, x, h0 = widened(f, g, g_last, out, x, h0)
        w_ih, w_hh, gates, hidden = widened(f, w_ih, w_hh, gates, hidden)
        r, z, n = split_gates(f, gates, 3)
        old = before(f, out, h0, sizes, reverse)
        candidate = f.mul(f.sub(1.0, z), _tanh_slope(f, n))  # from h to what n is the tanh of
        reset = f.mul(f.mul(candidate, hidden), _slope(f, r))
        slopes = f.cat(reset, f.mul(f.sub(old, n), _slope(f, z)), candidate, axis=1)
        own = f.cat(f.slice_axis(slopes, axis=1, start=0, stop=2 * r.shape[1]), f.mul(candidate, r), axis=1)
        pieces: list[Operand] = []
        owns: list[Operand] = []

        def step(start: int, stop: int, states: list[Operand]) -> list[Operand]:
            dh = f.add(states[0], rows(f, g, start, stop))
            three = f.cat(dh, dh, dh, axis=1)
            pieces.append(f.mul(three, rows(f, slopes, start, stop)))
            owns.append(f.mul(three, rows(f, own, start, stop)))
            return [f.add(f.mul(dh, rows(f, z, start, stop)), f.matmul(owns[-1], w_hh))]

        (dh0,) = scan(f, step, (g_last,), sizes, not reverse)
        inputs, hiddens = concatenated(f, pieces, not reverse), concatenated(f, owns, not reverse)
        needed = (needs[0], *needs[2:])
        dx, dw_ih, dw_hh, db_ih, db_hh = products(f, x, w_ih, lambda: old, inputs, hiddens, needed)
        return tuple(matching(f, m, original) for m in (dx, dh0, dw_ih, dw_hh, db_ih, db_hh))


rnn_sequence_grad, lstm_sequence_grad = RnnSequenceGrad(), LstmSequenceGrad()
gru_sequence_grad = GruSequenceGrad()
