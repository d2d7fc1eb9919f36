"""Recurrent layers of int8 weights: a product for the inputs of all steps, and one for the states at each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import int8_gru_sequence as _gru
from tenon.ops import int8_lstm_sequence as _lstm
from tenon.ops import int8_rnn_sequence as _rnn
from tenon_cpu.jit import integer
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.loops import rnn_int8
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


class _Words:
    """The same by generated code, where oneDNN's kernels are not exact; see ``jit/loops/rnn_int8.py``."""

    def __init__(self, words: Array, own: Array, values: Array, scale: Array) -> None:
        self.words, self.own, self.values, self.scale = words, own, values, scale
        self.panels = _weights.get(values, scale).made("rows", lambda: integer.panels(values[:, None, :]))

    def lines(self, starts: Array, sizes: Array, first: int, last: int, alone: bool) -> Any:
        """As those of ``Products``."""
        steps = np.zeros((len(sizes), 6), np.int64)
        steps[:, 0] = starts
        counts = steps[:, 1] = np.clip(sizes, first, last) - first
        columns, inner = self.values.shape
        places = (address_of(a) + first * a.strides[0] for a in (self.words, self.own))
        source, target = places
        library = np.zeros(3, np.int64)
        for count in np.unique(counts[counts > 0]).tolist():
            made = _cache.get(("words", count, inner, columns), _by_words, count, inner, columns)
            steps[counts == count, 2] = made.table(self.panels, self.scale, source, target)
            library[[0, 2]] = made.address, 1 if alone else made.threads
        return library, steps, []


def _by_words(rows: int, inner: int, columns: int) -> integer.Product:
    return integer.Product(np.zeros(2, np.uint16), np.arange(rows) * inner, [0], inner, columns, columns)


def _begun(h0: Array, w_hh: Array, scale: Array, *numbers: Any) -> Any:
    """The products of states that begin as ``h0``, those states, and the room that a walk needs for both;
    None where no kernel is exact or there is nothing to compute."""
    (batch, width), columns = h0.shape, w_hh.shape[0]
    floats = all(a is None or a.dtype == _FLOAT for a in (scale, *numbers))
    if not floats or not available() or not batch or not 0 < width <= LONGEST:
        return None
    h, s_hh = np.array(h0, order="C"), np.ascontiguousarray(scale)
    own, sizes = np.empty((batch, columns), _FLOAT), np.empty(batch, _FLOAT)
    if _cache.get((batch, width, columns, False), _ready, batch, width, columns) is not None:
        whole = np.empty((batch, width), np.uint8)
        return _States(whole, w_hh, s_hh), h, (own, whole, np.empty((0, 0), np.uint16), sizes)
    if not integer.usable():
        return None
    words = np.zeros(batch * width + 2, np.uint16)[:-2].reshape(batch, width)  # the last pair may be half
    return _Words(words, own, w_hh, s_hh), h, (own, np.empty((0, 0), np.uint8), words, sizes)


def int8_lstm_sequence(
    x: Array, h0: Array, c0: Array, w_ih: Array, s_ih: Array, w_hh: Array, s_hh: Array, b_ih: Any, b_hh: Any,
    *, sizes: Any, reverse: bool = False,
) -> Any:  # fmt: skip
    """Exact products in a compiled walk, where there are both; else the reference."""
    _lstm.infer(x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    begun = _begun(h0, w_hh, s_hh, s_ih, b_ih, b_hh)
    if begun is None:
        return _lstm.forward(np, x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    gates = int8_dynamic_linear(x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
    products, h, room = begun
    out, cell, zeros = (
        np.empty((len(x), h.shape[1]), _FLOAT),
        np.array(c0, order="C"),
        np.zeros(len(w_hh), _FLOAT),
    )
    walk(rnn_int8.lstm.ready(), products, sizes, reverse, gates, *room, zeros, out, h, cell)
    return out, h, cell


def int8_gru_sequence(
    x: Array, h0: Array, w_ih: Array, s_ih: Array, w_hh: Array, s_hh: Array, b_ih: Any, b_hh: Any,
    *, sizes: Any, reverse: bool = False,
) -> Any:  # fmt: skip
    """Exact products in a compiled walk, where there are both; else the reference."""
    _gru.infer(x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    begun = _begun(h0, w_hh, s_hh, s_ih, b_ih, b_hh)
    if begun is None:
        return _gru.forward(np, x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    gates = int8_dynamic_linear(x, w_ih, s_ih, b_ih)
    bias = np.zeros(w_hh.shape[0], _FLOAT) if b_hh is None else np.array(b_hh)
    products, h, room = begun
    out = np.empty((len(x), h.shape[1]), _FLOAT)
    walk(rnn_int8.gru.ready(), products, sizes, reverse, gates, *room, bias, out, h)
    return out, h


def int8_rnn_sequence(
    x: Array, h0: Array, w_ih: Array, s_ih: Array, w_hh: Array, s_hh: Array, b_ih: Any, b_hh: Any,
    *, sizes: Any, reverse: bool = False, nonlinearity: str = "tanh",
) -> Any:  # fmt: skip
    """Exact products in a compiled walk, where there are both; else the reference."""
    attrs = {"sizes": sizes, "reverse": reverse, "nonlinearity": nonlinearity}
    _rnn.infer(x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, **attrs)
    begun = _begun(h0, w_hh, s_hh, s_ih, b_ih, b_hh)
    if begun is None:
        return _rnn.forward(np, x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, **attrs)
    out = int8_dynamic_linear(x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
    products, h, room = begun
    walk(rnn_int8.rnn.ready(), products, sizes, reverse, nonlinearity == "relu", *room, out, h)
    return out, h


KERNELS: dict[str, Kernel] = {
    k.__name__: k for k in (int8_lstm_sequence, int8_gru_sequence, int8_rnn_sequence)
}

__all__ = ["KERNELS"]
