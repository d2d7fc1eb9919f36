"""``int8_dynamic_linear`` on oneDNN's int8 products: the activations are quantized at each call.

All rows share one scale: oneDNN supports a per-tensor scale of the source only. A factor of shape
``[rows, 1]`` after the product could scale row by row, but no kernel of it works (oneDNN 3.2 crashes in it).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.extend import Availability, Kernel
from tenon.ops.quantized import LARGEST, SMALLEST, rounded
from tenon_cpu.jit import integer
from tenon_cpu.jit.eager_ops.calls import FLOAT, SHARED, fits, plain, share
from tenon_cpu.jit.loops import rounding
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.int8 import LONGEST, exact, has_exact_kernel
from tenon_cpu.onednn.int8_packed import PackedWeight, PackedWeights
from tenon_cpu.onednn.primitives import Memory, Primitive, address_of
from tenon_cpu.onednn.runtime import Buffer

Array = np.ndarray
_cache = Cache("linear int8")
_weights = PackedWeights()
_LARGEST = np.float32(LARGEST)
_empty = np.empty


class Dynamic:
    """A product of ``rows`` activations by oneDNN; weight, bias and result are arguments of each call."""

    def __init__(self, primitive: Primitive, rows: int, inner: int, columns: int, biased: bool) -> None:
        self.quantized, self.step = np.empty((rows, inner), np.uint8), np.empty(1, np.float32)
        self.sizes = np.empty(rows, np.float32)
        self.layout = primitive.layout(c.WEIGHTS)
        arguments: dict[int, Memory | None] = {c.SRC: self.quantized, c.WEIGHTS: None, c.DST: None}
        arguments |= {c.SCALES | c.SRC: self.step, c.SCALES | c.WEIGHTS: np.ones(columns, np.float32)}
        if biased:
            arguments[c.BIAS] = None
        self.execution = execution = primitive.execution(arguments)
        self._out, self._weight = execution.memory(c.DST), execution.memory(c.WEIGHTS)
        self._scale = execution.memory(c.SCALES | c.WEIGHTS)
        self._bias = execution.memory(c.BIAS) if biased else None
        self._last: PackedWeight | None = None
        self._packed: Buffer | None = None

    @classmethod
    def of(cls, rows: int, inner: int, columns: int, biased: bool) -> Dynamic | None:
        """Return the product by oneDNN's exact kernel; None if it has none."""
        primitive = exact(
            "inner_product_forward",
            c.FORWARD_INFERENCE,
            Descriptor.rows((rows, inner), np.int8),
            Descriptor.any((columns, inner), np.int8),
            Descriptor.rows((columns,), np.float32) if biased else None,
            Descriptor.rows((rows, columns), np.float32),
            attributes=Attributes(scales={c.SRC: 0, c.WEIGHTS: 1}),
        )
        return None if primitive is None else cls(primitive, rows, inner, columns, biased)

    def __call__(self, x: Array, values: Array, scale: Array, bias: Array | None, out: Array) -> None:
        """``out``, the product of float32 rows."""
        self._round(x)
        execution = self.execution
        point = execution.set_handle
        weight = _weights.get(values, scale)
        if weight is not self._last:
            self._packed, self._last = weight.packed(values, self.layout), weight
            point(self._weight, self._packed.address)
        point(self._scale, address_of(scale))
        point(self._out, address_of(out))
        if bias is not None:
            point(self._bias, address_of(bias))
        execution()

    def _round(self, x: Array) -> None:
        if not fits(x):
            self.step[0], self.quantized.view(np.int8)[...] = rounded(np, x)
            return
        if x.size < SHARED:
            rounding.all_to_bytes.ready()(x.reshape(-1), self.step, self.quantized.reshape(-1))
            return
        self.step[0], factor = _step(x, self.sizes)
        if factor:
            share(rounding.scaled_bytes, (x, factor, self.quantized), x.shape[0], x.size)
        else:
            self.quantized.fill(0)


def _step(x: Array, sizes: Array) -> tuple[float, float]:
    """Return the scale of ``x`` and its reciprocal. The scale is NaN unless all elements are finite; the
    reciprocal is 0 where all quantized values are to be 0. ``sizes`` receives the largest magnitude of each
    row."""
    share(rounding.magnitudes, (x, sizes), x.shape[0], x.size)
    size = sizes.max()
    if size < SMALLEST or not size < np.inf:
        return (0 if size < SMALLEST else np.nan), 0
    return size / _LARGEST, _LARGEST / size


class DynamicWords:
    """A product of ``rows`` activations by generated code on 16-bit integers."""

    def __init__(self, rows: int, inner: int, columns: int, biased: bool = False) -> None:
        del biased  # the code adds zeros where there is no bias
        starts = np.arange(rows) * inner
        self.rows, self.sizes = integer.Rows(rows * inner, starts, inner), np.empty(rows, np.float32)
        self.flat, self.step = self.rows.source[: rows * inner], np.empty(1, np.float32)
        self.product = integer.Product(self.rows.source, starts, [0], inner, columns, columns)

    def __call__(self, x: Array, values: Array, scale: Array, bias: Array | None, out: Array) -> None:
        """``out``, the product of float32 rows."""
        if x.size < SHARED:
            rounding.all_to_words.ready()(x.reshape(-1), self.step, self.flat)
        else:
            self.step[0], factor = _step(x, self.sizes)
            if factor:
                self.rows.fill_scaled(x, factor)
            else:
                self.flat.fill(0)
        weight = _weights.get(values, scale).custom("rows", lambda: integer.panels(values[:, None, :]))
        self.product(weight, scale, self.step[0], bias, address_of(out))


def product(rows: int, inner: int, columns: int, biased: bool) -> Dynamic | DynamicWords | None:
    """Return the product by oneDNN, else by generated code; None where neither is exact."""
    if inner > LONGEST:
        return None
    by_onednn_product = Dynamic.of(rows, inner, columns, biased)
    return (
        DynamicWords(rows, inner, columns)
        if by_onednn_product is None and integer.usable()
        else by_onednn_product
    )


def _kernel(make: Callable[[int, int, int, bool], Dynamic | DynamicWords | None]) -> Kernel:
    """Return the kernel that computes by the product that ``make`` returns, and declines where that is
    None."""

    def int8_dynamic_linear(x: Array, weight: Array, scale: Array, bias: Array | None) -> Array:
        columns, inner = weight.shape
        rows = x.size // inner
        key = (make, rows, inner, columns, bias is None)
        ready = _cache.get(key, make, rows, inner, columns, bias is not None)
        if ready is None:
            return NotImplemented
        matrix = plain(x) if x.ndim == 2 else plain(x).reshape(rows, inner)
        out = _empty((rows, columns), FLOAT)
        ready(
            matrix,
            weight,
            np.ascontiguousarray(scale),
            None if bias is None else np.ascontiguousarray(bias),
            out,
        )
        return out if x.ndim == 2 else out.reshape(*x.shape[:-1], columns)

    return int8_dynamic_linear


by_onednn, by_generated = _kernel(Dynamic.of), _kernel(DynamicWords)


def installed() -> Availability:
    """Whether oneDNN has an exact kernel here."""
    return has_exact_kernel(lambda: Dynamic.of(16, 64, 32, True))


__all__ = ["Dynamic", "DynamicWords", "by_generated", "by_onednn", "installed", "product"]
