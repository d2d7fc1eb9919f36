"""``int8_lstm_sequence``: an int8 product for the inputs of all steps, and one for the states at each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import int8_lstm_sequence as _op
from tenon_cpu.jit import rnn
from tenon_cpu.jit.compile import available
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.int8 import LONGEST, exact
from tenon_cpu.onednn.int8_dynamic import int8_dynamic_linear
from tenon_cpu.onednn.int8_packed import PackedWeights
from tenon_cpu.onednn.primitives import Primitive, address_of
from tenon_cpu.onednn.rnn_walk import Products, Weights, walk

Array = np.ndarray[Any, Any]
_FLOAT = np.dtype(np.float32)
_cache = Cache("int8 recurrent layers")
_weights = PackedWeights()


def _product(rows: int, inner: int, columns: int) -> Primitive | None:
    return exact(
        "matmul",
        Descriptor.rows((rows, inner), np.int8),
        Descriptor.any((inner, columns), np.int8),
        None,
        Descriptor.rows((rows, columns), np.float32),
        attributes=Attributes(scales={c.WEIGHTS: 1 << 1}),
    )


def _ready(rows: int, inner: int, columns: int) -> tuple[Any, Descriptor] | None:
    made = _product(rows, inner, columns)
    if made is None:
        return None
    scales = {c.SCALES | c.WEIGHTS: np.ones(columns, np.float32)}
    return made.execution({c.SRC: None, c.WEIGHTS: None, c.DST: None, **scales}), made.layout(c.WEIGHTS)


class _States(Products):
    """Products of rounded states and int8 weights."""

    def __init__(self, whole: Array, values: Array, scale: Array) -> None:
        columns, inner = values.shape
        super().__init__(Weights(None, inner, columns, "int8"), whole, c.DST, False)
        self.values, self.scale = values, scale
        self.packed = _weights.get(values, scale)
        self.window = Descriptor.strided((inner, columns), (1, inner), np.int8)

    def execution(self, rows: int, alone: bool) -> Any:
        """The product of ``rows`` rows, with its weights and their scales."""
        key = (rows, self.weights.inner, self.weights.columns, alone)
        execution, layout = _cache.get(key, _ready, *key[:3])
        execution.point(c.WEIGHTS, self.packed.packed(self.values, layout, self.window).address)
        execution.point(c.SCALES | c.WEIGHTS, address_of(self.scale))
        return execution


def int8_lstm_sequence(
    x: Array, h0: Array, c0: Array, w_ih: Array, s_ih: Array, w_hh: Array, s_hh: Array, b_ih: Any, b_hh: Any,
    *, sizes: Any, reverse: bool = False,
) -> Any:  # fmt: skip
    """oneDNN in a compiled walk, where there are both; else the reference."""
    _op.infer(x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    (batch, width), columns = h0.shape, w_hh.shape[0]
    floats = all(a is None or a.dtype == _FLOAT for a in (s_ih, s_hh, b_ih, b_hh))
    usable = floats and available() and x.size and width and width <= LONGEST
    if not usable or _cache.get((batch, width, columns, False), _ready, batch, width, columns) is None:
        return _op.forward(np, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    bias = None if b_ih is None else b_ih + b_hh
    gates = int8_dynamic_linear(x, w_ih, s_ih, bias)
    out, h, cell = np.empty((x.shape[0], width), _FLOAT), np.array(h0, order="C"), np.array(c0, order="C")
    own, whole = np.empty((batch, columns), _FLOAT), np.empty((batch, width), np.uint8)
    states = _States(whole, w_hh, np.ascontiguousarray(s_hh))
    room = np.empty(batch, _FLOAT), np.zeros(columns, _FLOAT)
    walk(rnn.lstm_int8.ready(), states, sizes, reverse, gates, own, whole, *room, out, h, cell)
    return out, h, cell


KERNELS: dict[str, Kernel] = {"int8_lstm_sequence": int8_lstm_sequence}

__all__ = ["KERNELS"]
