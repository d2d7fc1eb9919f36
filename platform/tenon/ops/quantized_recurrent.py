"""Recurrent layers in 8-bit integers; ``composite/recurrent.py`` documents the layout of rows and steps.

Weights are int8, ``w_ih[G H, I]`` and ``w_hh[G H, H]`` for ``G`` gates, with a scale for each row. The inputs
of all steps are quantized by their largest magnitude, as by ``int8_dynamic_linear``. States are quantized at
each step, each row by its own largest magnitude, so that rows do not affect each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace, Attr, Operand
from tenon.errors import DTypeError, ShapeError
from tenon.ops.composite.recurrent import spans
from tenon.ops.quantized import LARGEST, SMALLEST, check_weight, exact_floats, int8_dynamic_linear

_WEIGHTS = ("w_ih", "s_ih", "w_hh", "s_hh", "b_ih", "b_hh")


class _Sequence(Primitive):
    """Base of the layers: checks shapes and iterates over the steps."""

    kind = Kind.CONTRACT
    gates: ClassVar[int]

    def _outputs(
        self, x: Operand, states: Sequence[Operand], weights: Sequence[Operand], sizes: tuple[int, ...]
    ) -> tuple[Aval, ...]:
        """Return the avals of all outputs and of the last states; raise unless the arguments fit."""
        for name, value in zip(self.inputs, (x, *states), strict=False):
            if str(value.dtype) != "float32" or len(value.shape) != 2:
                raise DTypeError(
                    f"{self.name}: {name} is {value.dtype}{list(value.shape)}; it must be float32 of 2 axes."
                )
        w_ih, s_ih, w_hh, s_hh, b_ih, b_hh = weights
        h0, width = states[0], states[0].shape[1]
        check_weight(self.name, x.shape[1], w_ih, s_ih, b_ih)
        check_weight(self.name, width, w_hh, s_hh, b_hh)
        fits = sizes and list(sizes) == sorted(sizes, reverse=True) and sum(sizes) == x.shape[0]
        same = all(tuple(s.shape) == ((sizes[0] if sizes else 0), width) for s in states)
        rows = self.gates * width
        if not fits or not same or w_ih.shape[0] != rows or w_hh.shape[0] != rows:
            initial = " and ".join(str(list(s.shape)) for s in states)
            raise ShapeError(
                f"{self.name}: input {list(x.shape)}, states {initial}, weights {list(w_ih.shape)} and"
                f" {list(w_hh.shape)} do not fit steps of {tuple(sizes)} rows, which must not increase."
            )
        return Aval((x.shape[0], width), x.dtype), *(Aval(h0.shape, x.dtype) for _ in states)

    def _run_steps(
        self, xp: ArrayNamespace, gates: Array, states: Sequence[Array], w_hh: Array, s_hh: Array,
        cell: Callable[..., None], sizes: tuple[int, ...], reverse: bool,
    ) -> Array:  # fmt: skip
        """Return the first state of every step, and the last states.

        ``cell(input gates, state gates, *states)`` updates the states in place.
        """
        out = xp.empty((gates.shape[0], states[0].shape[1]), np.float32)
        result = [s.copy() for s in states]
        row_ranges, kind = spans(sizes), exact_floats(w_hh.shape[1], LARGEST)
        transposed = w_hh.astype(kind).T
        for start, stop in reversed(row_ranges) if reverse else row_ranges:
            current = [s[: stop - start] for s in result]
            steps, integers = rounded_rows(xp, current[0])
            own = (integers.astype(kind) @ transposed).astype(np.float32) * s_hh * steps[:, None]
            cell(gates[start:stop], own, *current)
            out[start:stop] = current[0]
        return out, *result

    def cost(self, *args: Operand, **attrs: Attr) -> float:
        """The operations of both matrix products."""
        w_ih, w_hh = (args[self.inputs.index(name)] for name in ("w_ih", "w_hh"))
        work: float = args[0].shape[0] * (math.prod(w_ih.shape) + math.prod(w_hh.shape))
        return 2.0 * work


class Int8LstmSequence(_Sequence):
    """``lstm_sequence`` with int8 weights."""

    inputs = ("x", "h0", "c0", *_WEIGHTS)
    outputs = 3
    gates = 4

    def infer(self, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Outputs of all steps, the last hidden and cell states."""
        return self._outputs(x, (h0, c0), (w_ih, s_ih, w_hh, s_hh, b_ih, b_hh), sizes)

    def forward(self, xp, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Compute with integers held in floats."""
        self.infer(x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)

        def cell(row: Array, own: Array, h: Array, c: Array) -> None:
            i, forget, g, o = xp.split(row + own, 4, 1)
            c[...] = _sigmoid(xp, forget) * c + _sigmoid(xp, i) * xp.tanh(g)
            h[...] = _sigmoid(xp, o) * xp.tanh(c)

        gates = int8_dynamic_linear.forward(xp, x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
        return self._run_steps(xp, gates, (h0, c0), w_hh, s_hh, cell, sizes, reverse)


class Int8GruSequence(_Sequence):
    """``gru_sequence`` with int8 weights."""

    inputs = ("x", "h0", *_WEIGHTS)
    outputs = 2
    gates = 3

    def infer(self, x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Outputs of all steps, and the last states."""
        return self._outputs(x, (h0,), (w_ih, s_ih, w_hh, s_hh, b_ih, b_hh), sizes)

    def forward(self, xp, x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Compute with integers held in floats."""
        self.infer(x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)

        def cell(row: Array, own: Array, h: Array) -> None:
            own = own if b_hh is None else own + b_hh
            reset, z, n = xp.split(row, 3, 1)
            own_gates = xp.split(own, 3, 1)
            n = xp.tanh(n + _sigmoid(xp, reset + own_gates[0]) * own_gates[2])
            h[...] = n + _sigmoid(xp, z + own_gates[1]) * (h - n)

        gates = int8_dynamic_linear.forward(xp, x, w_ih, s_ih, b_ih)
        return self._run_steps(xp, gates, (h0,), w_hh, s_hh, cell, sizes, reverse)


class Int8RnnSequence(_Sequence):
    """``rnn_sequence`` with int8 weights."""

    inputs = ("x", "h0", *_WEIGHTS)
    outputs = 2
    gates = 1

    def infer(
        self, x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False, nonlinearity="tanh"
    ):  # fmt: skip
        """Outputs of all steps, and the last states."""
        return self._outputs(x, (h0,), (w_ih, s_ih, w_hh, s_hh, b_ih, b_hh), sizes)

    def forward(
        self, xp, x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False, nonlinearity="tanh"
    ):  # fmt: skip
        """Compute with integers held in floats."""
        self.infer(x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)

        def cell(row: Array, own: Array, h: Array) -> None:
            h[...] = xp.tanh(row + own) if nonlinearity == "tanh" else xp.maximum(row + own, 0)

        gates = int8_dynamic_linear.forward(xp, x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
        return self._run_steps(xp, gates, (h0,), w_hh, s_hh, cell, sizes, reverse)


def rounded_rows(xp: ArrayNamespace, x: Array) -> tuple[Array, Array]:
    """Return a step for each row of float32 ``x``, NaN if the row is not finite, and the int8 integers."""
    size = xp.abs(x).max(1)
    usable = (size >= SMALLEST) & xp.isfinite(size)
    factor = xp.where(usable, np.float32(LARGEST) / xp.where(usable, size, 1), 0).astype(np.float32)
    step = xp.where(usable, size / np.float32(LARGEST), xp.where(xp.isfinite(size), 0, np.nan))
    integers = xp.rint(xp.where(usable[:, None], x, 0) * factor[:, None])
    return step.astype(np.float32), integers.astype(np.int8)


def _sigmoid(xp: ArrayNamespace, x: Array) -> Array:
    return 1 / (1 + xp.exp(-xp.clip(x, -80, 80)))


int8_lstm_sequence, int8_gru_sequence = Int8LstmSequence(), Int8GruSequence()
int8_rnn_sequence = Int8RnnSequence()
