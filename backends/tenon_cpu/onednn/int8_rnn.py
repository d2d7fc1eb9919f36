"""Recurrent layers with int8 weights: one product of the inputs of all steps, and one of the states per
step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tenon.extend import Availability, Kernel, OpNamespace
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
from tenon_cpu.onednn.int8 import LONGEST, exact, has_exact_kernel
from tenon_cpu.onednn.int8_packed import PackedWeights
from tenon_cpu.onednn.primitives import Execution, Primitive, address_of
from tenon_cpu.onednn.rnn_loop import Products, StepProducts, Weights, run_loop

Array = np.ndarray
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


def _ready(rows: int, inner: int, columns: int) -> tuple[Execution, Descriptor] | None:
    primitive = _product(rows, inner, columns)
    if primitive is None:
        return None
    scales = {c.SCALES | c.WEIGHTS: np.ones(columns, np.float32)}
    return primitive.execution({c.SRC: None, c.WEIGHTS: None, c.DST: None, **scales}), primitive.layout(
        c.WEIGHTS
    )


class _States(Products):
    """Products of quantized states and int8 weights, by oneDNN."""

    def __init__(self, rounded_states: Array, values: Array, scale: Array) -> None:
        columns, inner = values.shape
        super().__init__(Weights(None, inner, columns, "int8"), rounded_states, c.DST, False)
        self.values, self.scale = values, scale
        self.packed = _weights.get(values, scale)
        self.window = Descriptor.strided((inner, columns), (1, inner), np.int8)

    def execution(self, rows: int, alone: bool) -> Execution:
        """Return the product of ``rows`` rows, bound to the weights and their scales."""
        key = (rows, self.weights.inner, self.weights.columns, alone)
        ready = _cache.get(key, _ready, *key[:3])
        assert ready is not None  # checked by ``_by_onednn``
        execution, layout = ready
        execution.point(c.WEIGHTS, self.packed.packed(self.values, layout, self.window).address)
        execution.point(c.SCALES | c.WEIGHTS, address_of(self.scale))
        return execution


class _GeneratedProducts:
    """Products by generated code, where oneDNN's kernels are not exact; see ``jit/loops/rnn_int8.py``."""

    def __init__(self, words: Array, out: Array, values: Array, scale: Array) -> None:
        self.words, self.out, self.values, self.scale = words, out, values, scale
        self.panels = _weights.get(values, scale).custom("rows", lambda: integer.panels(values[:, None, :]))

    def lines(
        self, starts: Array, sizes: Array, first: int, last: int, alone: bool
    ) -> tuple[np.ndarray, np.ndarray, list[Execution]]:
        """See ``StepProducts.lines``."""
        steps = np.zeros((len(sizes), 6), np.int64)
        steps[:, 0] = starts
        counts = steps[:, 1] = np.clip(sizes, first, last) - first
        columns, inner = self.values.shape
        addresses = (address_of(a) + first * a.strides[0] for a in (self.words, self.out))
        source, target = addresses
        library = np.zeros(3, np.int64)
        for count in np.unique(counts[counts > 0]).tolist():
            product = _cache.get(("words", count, inner, columns), _by_words, count, inner, columns)
            steps[counts == count, 2] = product.table(self.panels, self.scale, source, target)
            library[[0, 2]] = product.address, 1 if alone else product.threads
        return library, steps, []


def _by_words(rows: int, inner: int, columns: int) -> integer.Product:
    return integer.Product(np.zeros(2, np.uint16), np.arange(rows) * inner, [0], inner, columns, columns)


def is_supported(h0: Array, s_ih: Array, s_hh: Array, b_ih: Array | None, b_hh: Array | None) -> bool:
    """Whether the kernels below support the shape of ``h0``, and scales and biases are float32."""
    floats = all(a is None or a.dtype == _FLOAT for a in (s_ih, s_hh, b_ih, b_hh))
    batch, width = h0.shape if h0.ndim == 2 else (0, 0)
    return bool(floats and batch and 0 < width <= LONGEST and available())


class _Loop(NamedTuple):
    """The products of states, a writable copy of the initial states, and the loop's scratch buffers."""

    products: StepProducts
    h: Array
    buffers: tuple[Array, ...]


#: Returns the loop for ``h0``, ``w_hh`` and the scales of its rows; None where its products are not exact.
Begin = Callable[[Array, Array, Array], _Loop | None]


def _by_onednn(h0: Array, w_hh: Array, scale: Array) -> _Loop | None:
    (batch, width), columns = h0.shape, w_hh.shape[0]
    if _cache.get((batch, width, columns, False), _ready, batch, width, columns) is None:
        return None
    rounded = np.empty((batch, width), np.uint8)
    buffers = (
        np.empty((batch, columns), _FLOAT),
        rounded,
        np.empty((0, 0), np.uint16),
        np.empty(batch, _FLOAT),
    )
    return _Loop(_States(rounded, w_hh, np.ascontiguousarray(scale)), np.array(h0, order="C"), buffers)


def _by_generated(h0: Array, w_hh: Array, scale: Array) -> _Loop:
    (batch, width), columns = h0.shape, w_hh.shape[0]
    products = np.empty((batch, columns), _FLOAT)
    words = np.zeros(batch * width + 2, np.uint16)[:-2].reshape(batch, width)  # the last pair may be half
    buffers = (products, np.empty((0, 0), np.uint8), words, np.empty(batch, _FLOAT))
    return _Loop(
        _GeneratedProducts(words, products, w_hh, np.ascontiguousarray(scale)),
        np.array(h0, order="C"),
        buffers,
    )


def _lstm_sequence(
    begin: Begin, f: OpNamespace, x: Array, h0: Array, c0: Array, w_ih: Array, s_ih: Array, w_hh: Array,
    s_hh: Array, b_ih: Array | None, b_hh: Array | None, *, sizes: Sequence[int], reverse: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    _lstm.infer(x, h0, c0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    walked = begin(h0, w_hh, s_hh)
    if walked is None:
        return NotImplemented
    gates = f.int8_dynamic_linear(x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
    products, h, buffers = walked
    out, cell, zeros = (
        np.empty((len(x), h.shape[1]), _FLOAT),
        np.array(c0, order="C"),
        np.zeros(len(w_hh), _FLOAT),
    )
    run_loop(rnn_int8.lstm.ready(), products, sizes, reverse, gates, *buffers, zeros, out, h, cell)
    return out, h, cell


def _gru_sequence(
    begin: Begin, f: OpNamespace, x: Array, h0: Array, w_ih: Array, s_ih: Array, w_hh: Array, s_hh: Array,
    b_ih: Array | None, b_hh: Array | None, *, sizes: Sequence[int], reverse: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    _gru.infer(x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    walked = begin(h0, w_hh, s_hh)
    if walked is None:
        return NotImplemented
    gates = f.int8_dynamic_linear(x, w_ih, s_ih, b_ih)
    bias = np.zeros(w_hh.shape[0], _FLOAT) if b_hh is None else np.array(b_hh)
    products, h, buffers = walked
    out = np.empty((len(x), h.shape[1]), _FLOAT)
    run_loop(rnn_int8.gru.ready(), products, sizes, reverse, gates, *buffers, bias, out, h)
    return out, h


def _rnn_sequence(
    begin: Begin, f: OpNamespace, x: Array, h0: Array, w_ih: Array, s_ih: Array, w_hh: Array, s_hh: Array,
    b_ih: Array | None, b_hh: Array | None, *, sizes: Sequence[int], reverse: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[Array, ...]:  # fmt: skip
    attrs = {"sizes": sizes, "reverse": reverse, "nonlinearity": nonlinearity}
    _rnn.infer(x, h0, w_ih, s_ih, w_hh, s_hh, b_ih, b_hh, **attrs)
    walked = begin(h0, w_hh, s_hh)
    if walked is None:
        return NotImplemented
    out = f.int8_dynamic_linear(x, w_ih, s_ih, None if b_ih is None else b_ih + b_hh)
    products, h, buffers = walked
    run_loop(rnn_int8.rnn.ready(), products, sizes, reverse, nonlinearity == "relu", *buffers, out, h)
    return out, h


#: Op name -> its kernel with products by oneDNN, and its kernel with products by generated code.
KERNELS: dict[str, tuple[Kernel, Kernel]] = {
    f"int8{kernel.__name__}": (
        functools.partial(kernel, _by_onednn),
        functools.partial(kernel, _by_generated),
    )
    for kernel in (_lstm_sequence, _gru_sequence, _rnn_sequence)
}


def installed() -> Availability:
    """Whether oneDNN has an exact product here."""
    return has_exact_kernel(lambda: _product(16, 64, 32))


__all__ = ["KERNELS", "installed", "is_supported"]
