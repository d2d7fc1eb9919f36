"""A recurrent layer of 8-bit integers, ``int8_lstm_sequence``: rows and steps are ``lstm_sequence``'s."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.core.aval import Aval
from tenon.core.op import Kind, Primitive
from tenon.errors import DTypeError, ShapeError
from tenon.ops.composite.recurrent import spans
from tenon.ops.quantized import LARGEST, SMALLEST, check_weight, exact_floats, int8_dynamic_linear


class Int8LstmSequence(Primitive):
    """``lstm_sequence`` with int8 weights ``w_ih[4 H, I]`` and ``w_hh[4 H, H]``, and a scale for each row.

    The inputs of all steps are rounded by the largest size in them, as ``int8_dynamic_linear`` does it.
    States are rounded at each step, each row by the largest size in it: the others do not matter to it.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "h0", "c0", "w_ih", "s_ih", "w_hh", "s_hh", "b_ih", "b_hh")
    outputs = 3

    def infer(self, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Outputs of all steps; states and cells of the last ones."""
        for what, given in (("x", x), ("h0", h0), ("c0", c0)):
            if str(given.dtype) != "float32" or len(given.shape) != 2:
                raise DTypeError(
                    f"{self.name}: {what} is {given.dtype}{list(given.shape)}; give float32 of two axes."
                )
        check_weight(self.name, x.shape[1], w_ih, s_ih, b_ih)
        check_weight(self.name, h0.shape[1], w_hh, s_hh, b_hh)
        width = h0.shape[1]
        fits = sizes and list(sizes) == sorted(sizes, reverse=True) and sum(sizes) == x.shape[0]
        same = tuple(h0.shape) == tuple(c0.shape) == ((sizes[0] if sizes else 0), width)
        if not fits or not same or w_ih.shape[0] != 4 * width or w_hh.shape[0] != 4 * width:
            raise ShapeError(
                f"{self.name}: input {list(x.shape)}, states {list(h0.shape)} and {list(c0.shape)}, weights"
                f" {list(w_ih.shape)} and {list(w_hh.shape)} do not fit steps of {tuple(sizes)} rows, which"
                " may not grow."
            )
        return Aval((x.shape[0], width), x.dtype), Aval(h0.shape, x.dtype), Aval(c0.shape, x.dtype)

    def forward(self, xp, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Whole numbers in floats."""
        self.infer(x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
        bias = None if b_ih is None else b_ih + b_hh
        gates = int8_dynamic_linear.forward(xp, x, w_ih, s_ih, bias)
        out, h, c = xp.empty((x.shape[0], h0.shape[1]), np.float32), h0.copy(), c0.copy()
        places, kind = spans(sizes), exact_floats(w_hh.shape[1], LARGEST)
        turned = w_hh.astype(kind).T
        for start, stop in reversed(places) if reverse else places:
            count = stop - start
            steps, whole = rounded_rows(xp, h[:count])
            states = (whole.astype(kind) @ turned).astype(np.float32) * s_hh
            i, forget, g, o = xp.split(gates[start:stop] + states * steps[:, None], 4, 1)
            c[:count] = _sigmoid(xp, forget) * c[:count] + _sigmoid(xp, i) * xp.tanh(g)
            h[:count] = out[start:stop] = _sigmoid(xp, o) * xp.tanh(c[:count])
        return out, h, c

    def cost(self, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, **attrs):
        """Both products."""
        return 2.0 * x.shape[0] * (math.prod(w_ih.shape) + math.prod(w_hh.shape))


def rounded_rows(xp: Any, x: Any) -> tuple[Any, Any]:
    """A step for each row of float32 ``x``, and the whole numbers; it is NaN where a row is not finite."""
    size = xp.abs(x).max(1)
    usable = (size >= SMALLEST) & xp.isfinite(size)
    factor = xp.where(usable, np.float32(LARGEST) / xp.where(usable, size, 1), 0).astype(np.float32)
    step = xp.where(usable, size / np.float32(LARGEST), xp.where(xp.isfinite(size), 0, np.nan))
    whole = xp.rint(xp.where(usable[:, None], x, 0) * factor[:, None])
    return step.astype(np.float32), whole.astype(np.int8)


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-xp.clip(x, -80, 80)))


int8_lstm_sequence = Int8LstmSequence()
