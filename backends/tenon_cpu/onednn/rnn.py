"""Recurrent layers: one product for the inputs of all steps, then a compiled loop over the steps.

The kernels support float32 without a projection of the states. ``table/recurrent.py`` states for which calls
they are used, and ``in_float32`` applies them to 16-bit floats.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tenon.extend import Attrs, Kernel, Operand, OpNamespace, Thunk
from tenon.ops import gru_sequence as _gru
from tenon.ops import lstm_sequence as _lstm
from tenon.ops import rnn_sequence as _rnn
from tenon.ops.composite.recurrent_grad import before, products
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.loops import rnn
from tenon_cpu.onednn import prepared_matmul
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.rnn_loop import Products, Weights, parts, plain, run_loop, transposed

Array = np.ndarray
_FLOAT = np.dtype(np.float32)
#: Multiplications of the states, over all steps, from which the compiled loop is faster.
LEAST = 1 << 16


def is_faster(w_hh: Array, sizes: Sequence[int]) -> bool:
    """Whether the loop is compiled and has enough work to be faster than the reference."""
    return sum(sizes) * w_hh.size >= LEAST and bool(available())


def is_supported(w_hh: Array, sizes: Sequence[int], *arrays: Array | None) -> bool:
    """Whether all arrays but None are float32 and ``is_faster``."""
    present = [w_hh, *(a for a in arrays if a is not None)]
    return is_faster(w_hh, sizes) and all(a.dtype is _FLOAT for a in present)


def _plain(x: Array) -> Array:
    return x if x.flags.carray else np.array(x, order="C")


def _copy(x: Array) -> Array:
    """Return a writable copy in C order."""
    return np.array(x, order="C")


def _transposed(w_hh: Array, sizes: Sequence[int]) -> Weights:
    bounds = parts(sizes)
    rows = max(b - a for a, b in pairwise(bounds))
    return transposed(_plain(w_hh), len(sizes), rows)


def _buffer(rows: int, width: int) -> Array:
    return np.empty((rows, width), _FLOAT)


def lstm_sequence(
    f: OpNamespace, x: Array, h0: Array, c0: Array, w_ih: Array, w_hh: Array, b_ih: Array | None,
    b_hh: Array | None, w_hr: Array | None, *, sizes: Sequence[int], reverse: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    """Return outputs, last states and cells; gates and cells of all steps."""
    _lstm.infer(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes=sizes, reverse=reverse)
    gates, width = _plain(f.linear(x, w_ih, None if b_ih is None else b_ih + b_hh)), c0.shape[1]
    results = (
        _buffer(x.shape[0], width),
        np.empty(h0.shape, _FLOAT),
        np.empty(c0.shape, _FLOAT),
        gates,
        _buffer(x.shape[0], width),
    )
    _run_lstm(results, h0, c0, w_hh, sizes, reverse)
    return results


def _run_lstm(
    results: Sequence[Array],
    h0: Array,
    c0: Array,
    w_hh: Array,
    sizes: Sequence[int],
    reverse: bool,
) -> None:
    """Fill ``results``, whose gates hold the inputs' products."""
    out, h, cell, gates, cells = results
    h[...], cell[...] = h0, c0
    products_out = _buffer(h.shape[0], gates.shape[1])
    states = Products(_transposed(w_hh, sizes), h, c.DST, False)
    run_loop(rnn.lstm.ready(), states, sizes, reverse, gates, products_out, out, cells, h, cell)


def lstm_sequence_grad(
    f: OpNamespace, g: Array, g_last: Array, g_cell: Array, out: Array, x: Array,
    h0: Array, c0: Array, w_ih: Array, w_hh: Array, w_hr: Array | None, gates: Array, cells: Array, *,
    sizes: Sequence[int], needs: Sequence[bool], reverse: bool = False,
) -> tuple[Array | None, ...]:  # fmt: skip
    """Return the gradients of the inputs; a loop backwards over the steps computes those before the
    activations, products over all steps the rest."""
    d, dh, dc = np.empty_like(gates), _copy(g_last), _copy(g_cell)
    states = Products(plain(_plain(w_hh)), dh, c.SRC, False)
    forward_values = (_plain(g), _plain(gates), _plain(cells), _plain(c0))
    run_loop(rnn.lstm_grad.ready(), states, sizes, reverse, *forward_values, d, dh, dc)
    needed = (needs[0], *needs[3:5], needs[5] or needs[6], False)
    dx, dw_ih, dw_hh, db, nothing = _products(f, x, w_ih, out, h0, d, sizes, reverse, needed)
    return dx, dh, dc, dw_ih, dw_hh, db, nothing


def _products(
    f: OpNamespace,
    x: Array,
    w_ih: Array,
    out: Array,
    h0: Array,
    d: Array,
    sizes: Sequence[int],
    reverse: bool,
    needed: Sequence[bool],
) -> tuple[Array | None, ...]:
    """Compute ``products``, with one product for both weights where they have the same gradient ``d``.

    It reads ``d``, the largest array, once; and oneDNN's kernel for AVX2 is slow for few rows or columns:
    2048 terms of 1024 x 256 take 28 ms on one core, those of 1024 x 512 as long.
    """

    def previous() -> Array:
        return before(f, out, h0, sizes, reverse)

    if not (needed[1] and needed[2]):
        return products(f, x, w_ih, previous, d, d, needed)
    dx, _, _, db, nothing = products(f, x, w_ih, previous, d, d, (needed[0], False, False, *needed[3:]))
    both = f.matmul(d.T, np.concatenate((x, previous()), axis=1))
    dw_ih, dw_hh = (np.ascontiguousarray(part) for part in np.split(both, (x.shape[1],), axis=1))
    return dx, dw_ih, dw_hh, db, nothing


def gru_sequence(
    f: OpNamespace,
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    *,
    sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[Array, ...]:
    """Return outputs and last states; gates and the states' part of the candidates of all steps."""
    _gru.infer(x, h0, w_ih, w_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    gates, width = _plain(f.linear(x, w_ih, b_ih)), h0.shape[1]
    results = (_buffer(x.shape[0], width), np.empty(h0.shape, _FLOAT), gates, _buffer(x.shape[0], width))
    _run_gru(results, h0, w_hh, b_hh, sizes, reverse)
    return results


def _run_gru(
    results: Sequence[Array],
    h0: Array,
    w_hh: Array,
    b_hh: Array | None,
    sizes: Sequence[int],
    reverse: bool,
) -> None:
    """Fill ``results``, whose gates hold the inputs' products."""
    out, h, gates, hidden = results
    h[...] = h0
    products_out = _buffer(h.shape[0], gates.shape[1])
    bias = np.zeros(gates.shape[1], _FLOAT) if b_hh is None else _plain(b_hh)
    states = Products(_transposed(w_hh, sizes), h, c.DST, False)
    run_loop(rnn.gru.ready(), states, sizes, reverse, gates, products_out, bias, out, hidden, h)


def gru_sequence_grad(
    f: OpNamespace, g: Array, g_last: Array, out: Array, x: Array, h0: Array, w_ih: Array, w_hh: Array,
    gates: Array, hidden: Array, *, sizes: Sequence[int], needs: Sequence[bool], reverse: bool = False,
) -> tuple[Array | None, ...]:  # fmt: skip
    """Return the gradients of the inputs; unlike the LSTM's, those of the candidates differ for inputs and
    states."""
    d, d_states, dh = np.empty_like(gates), np.empty_like(gates), _copy(g_last)
    states = Products(plain(_plain(w_hh)), dh, c.SRC, True)
    forward_values = (_plain(g), _plain(gates), _plain(hidden), _plain(out), _plain(h0))
    run_loop(rnn.gru_grad.ready(), states, sizes, reverse, *forward_values, d, d_states, dh)
    needed = (needs[0], *needs[2:])
    dx, *others = products(f, x, w_ih, lambda: before(f, out, h0, sizes, reverse), d, d_states, needed)
    return dx, dh, *others


def rnn_sequence(
    f: OpNamespace, x: Array, h0: Array, w_ih: Array, w_hh: Array, b_ih: Array | None,
    b_hh: Array | None, *, sizes: Sequence[int], reverse: bool = False, nonlinearity: str = "tanh",
) -> tuple[Array, ...]:  # fmt: skip
    """Return outputs and last states."""
    _rnn.infer(x, h0, w_ih, w_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)
    out = _plain(f.linear(x, w_ih, None if b_ih is None else b_ih + b_hh))
    results = (out, np.empty(h0.shape, _FLOAT))
    _run_rnn(results, h0, w_hh, sizes, reverse, nonlinearity)
    return results


def _run_rnn(
    results: Sequence[Array],
    h0: Array,
    w_hh: Array,
    sizes: Sequence[int],
    reverse: bool,
    nonlinearity: str,
) -> None:
    """Fill ``results``, whose first array holds the inputs' products."""
    out, h = results
    h[...] = h0
    states = Products(_transposed(w_hh, sizes), h, c.DST, False)
    run_loop(
        rnn.rnn.ready(), states, sizes, reverse, nonlinearity == "relu", np.empty(h.shape, _FLOAT), out, h
    )


def rnn_sequence_grad(
    f: OpNamespace, g: Array, g_last: Array, out: Array, x: Array, h0: Array, w_ih: Array, w_hh: Array,
    *, sizes: Sequence[int], needs: Sequence[bool], reverse: bool = False, nonlinearity: str = "tanh",
) -> tuple[Array | None, ...]:  # fmt: skip
    """Return the gradients of the inputs, computed as those of the LSTM."""
    d, dh = np.empty(out.shape, _FLOAT), _copy(g_last)
    states = Products(plain(_plain(w_hh)), dh, c.SRC, False)
    run_loop(
        rnn.rnn_grad.ready(), states, sizes, reverse, nonlinearity == "relu", _plain(g), _plain(out), d, dh
    )
    needed = (needs[0], *needs[2:4], needs[4] or needs[5], False)
    dx, dw_ih, dw_hh, db, _ = _products(f, x, w_ih, out, h0, d, sizes, reverse, needed)
    return dx, dh, dw_ih, dw_hh, db


def one_short_dtype(*arrays: Array | None) -> bool:
    """Whether all arrays but None have one dtype, a 16-bit float."""
    first = arrays[0]
    assert first is not None
    dtype = first.dtype
    return dtype.itemsize == 2 and dtype.kind in "fV" and all(a is None or a.dtype == dtype for a in arrays)


def in_float32(kernel: Kernel) -> Kernel:
    """Return ``kernel`` of a recurrent op for 16-bit floats: it computes in float32 and rounds the
    results."""

    def call(f: OpNamespace, *args: Array | None, **attrs: object) -> tuple[Array, ...]:
        first = args[0]
        assert first is not None
        results = kernel(f, *(a if a is None else a.astype(_FLOAT) for a in args), **attrs)
        return tuple(result.astype(first.dtype) for result in results)

    return call


#: Op name -> kernel.
KERNELS: dict[str, Kernel] = {
    kernel.__name__: kernel
    for kernel in (
        lstm_sequence, lstm_sequence_grad, gru_sequence, gru_sequence_grad, rnn_sequence, rnn_sequence_grad,
    )
}  # fmt: skip


def _prepared(name: str, ins: Sequence[Operand], attrs: Attrs, outs: Sequence[Array]) -> Thunk | None:
    """Prepare a forward op: products are written to the program's arrays, which the loop updates in place."""
    count = {"lstm": 5, "gru": 4, "rnn": 2}[name]
    x, h0, *others = ins
    sizes, reverse = attrs["sizes"], attrs.get("reverse", False)
    w_ih, w_hh, b_ih, b_hh = others[1:5] if name == "lstm" else others
    arrays = (*ins, *outs)
    if not all(a is None or isinstance(a, np.ndarray) for a in arrays) or (
        name == "lstm" and ins[7] is not None
    ):
        return None
    if not is_supported(w_hh, sizes, *arrays) or not all(a.flags.carray for a in outs):
        return None
    if len(outs) < count:  # without gradients the program has no arrays for residuals
        rows = x.shape[0]
        outs = [*outs, _buffer(rows, w_hh.shape[0]), _buffer(rows, w_hh.shape[1])]
    both = b_ih is not None and name != "gru"
    bias = np.empty_like(b_ih) if both else b_ih
    product = prepared_matmul.PREPARE["linear"]((x, w_ih, bias), {}, (outs[0 if name == "rnn" else -2],))
    if product is None:
        return None

    def run() -> None:
        if both:
            np.add(b_ih, b_hh, out=bias)
        product()
        if name == "lstm":
            _run_lstm(outs, h0, others[0], w_hh, sizes, reverse)
        elif name == "gru":
            _run_gru(outs, h0, w_hh, b_hh, sizes, reverse)
        else:
            _run_rnn(outs, h0, w_hh, sizes, reverse, attrs.get("nonlinearity", "tanh"))

    return run


PREPARE = {f"{name}_sequence": functools.partial(_prepared, name) for name in ("lstm", "gru", "rnn")}

__all__ = ["KERNELS", "LEAST", "PREPARE", "in_float32", "is_faster", "is_supported", "one_short_dtype"]
