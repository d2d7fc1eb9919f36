"""Static int8 where oneDNN's kernels are not exact: ``jit/integer.py`` on 16-bit integers ("words").

An image is copied once to channels-last memory, padded with zeros and with its zero point subtracted; then
every position of the result is a row of a product, whose operands are runs of that memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tenon_cpu.jit import integer
from tenon_cpu.onednn.int8 import Shapes, Steps
from tenon_cpu.onednn.int8_packed import PackedWeights
from tenon_cpu.onednn.primitives import address_of
from tenon_cpu.onednn.problems import Geometry

Array = np.ndarray

_FLOAT = np.dtype(np.float32)
_weights = PackedWeights()
#: Channels of a group below which a panel would be mostly zero padding.
_LEAST = 4


class _Words:
    """Rows of 16-bit integers, and a product for each group of columns."""

    def __init__(self, rows: integer.Rows, products: list[integer.Product], key: int, steps: Steps) -> None:
        self.rows, self.products, self.key = rows, products, key
        self.x_step, self.x_zero = np.float32(steps[0]), steps[1]

    def fill(self, x: Array) -> None:
        """Copy contiguous rows, uint8 or float32, into ``rows``."""
        if x.dtype == np.uint8:
            self.rows.fill(x, self.x_zero)
        else:
            self.rows.fill_steps(x, self.x_step, self.x_zero)

    def multiply(self, weight: Array, scale: Array, bias: Array | None, target: int, item: int) -> None:
        """Write the results, of ``item`` bytes each, from address ``target`` on."""
        packed = _weights.get(weight, scale).custom(self.key, lambda: self._panels(weight))
        columns = weight.shape[0] // len(self.products)
        for g, (product, panels) in enumerate(zip(self.products, packed, strict=True)):
            group = slice(g * columns, (g + 1) * columns)
            added = None if bias is None else bias[group]
            product(panels, scale[group], self.x_step, added, target + g * columns * item)

    def _panels(self, weight: Array) -> list[Array]:
        runs = self.key
        transposed = np.moveaxis(weight, 1, -1).reshape(len(self.products), -1, runs, weight[0].size // runs)
        return [integer.panels(part) for part in transposed]


# Keyword arguments of ``integer.Product``, which states their types.
def _numbers(steps: Steps) -> dict[str, Any]:
    _, _, out_step, out_zero, relu = steps
    return {"least": 0 if relu else -math.inf, "out": None if out_step is None else (out_step, out_zero)}


class LinearWords(_Words):
    """``int8_linear`` of ``count`` rows."""

    def __init__(self, count: int, inner: int, columns: int, steps: Steps) -> None:
        starts = np.arange(count) * inner
        rows = integer.Rows(count * inner, starts, inner)
        product = integer.Product(rows.source, starts, [0], inner, columns, columns, **_numbers(steps))
        super().__init__(rows, [product], 1, steps)

    def __call__(self, x: Array, weight: Array, scale: Array, bias: Array | None, out: Array) -> None:
        """Compute ``out``."""
        self.fill(np.ascontiguousarray(x))
        self.multiply(weight, scale, bias, address_of(out), out.itemsize)


class ConvolutionWords(_Words):
    """``int8_conv``; ``last``: the image is channels-last, ``plain``: the result is to be ``[N, C, *S]`` in C
    order."""

    def __init__(self, shapes: Shapes, steps: Steps, geometry: Geometry, last: bool, plain: bool) -> None:
        (count, channels, *sizes), (outputs, inner, *kernel), (_, _, *out_sizes) = shapes
        stride, padding, dilation, groups = geometry
        padded = [
            max(s + p, (n - 1) * t + d * (k - 1) + 1)
            for s, p, n, t, d, k in zip(sizes, padding, out_sizes, stride, dilation, kernel, strict=True)
        ]
        padded = [max(r, s + 2 * p) for r, s, p in zip(padded, sizes, padding, strict=True)]
        step = [channels * math.prod(padded[i + 1 :]) for i in range(len(padded))]
        image = channels * math.prod(padded)

        def at(starts: npt.ArrayLike, *axes: np.ndarray) -> Array:
            total = np.asarray(starts)
            for axis in axes:
                total = np.add.outer(total, axis)
            return total.reshape(-1)

        images = np.arange(count) * image
        lines = at(
            images, *((np.arange(s) + p) * n for s, p, n in zip(sizes[:-1], padding, step, strict=False))
        )
        row_starts = at(
            images, *(np.arange(n) * t * k for n, t, k in zip(out_sizes, stride, step, strict=True))
        )
        joined = groups == 1 and dilation[-1] == 1
        windows = [np.arange(k) * d * n for k, d, n in zip(kernel, dilation, step, strict=True)]
        taps = at(0, *(windows[:-1] if joined else windows))
        run = inner * kernel[-1] if joined else inner
        rows = integer.Rows(count * image, lines + padding[-1] * channels, sizes[-1] * channels)
        products = [
            integer.Product(
                rows.source, row_starts + g * inner, taps.tolist(), run, outputs // groups, outputs,
                **_numbers(steps),
            )
            for g in range(groups)
        ]  # fmt: skip
        super().__init__(rows, products, len(taps), steps)
        self.channels_last_shape, self.last = (count, *sizes, channels), last
        self.result = np.empty((count, *out_sizes, outputs), _FLOAT) if plain else None

    def __call__(self, x: Array, weight: Array, scale: Array, bias: Array | None, out: Array) -> None:
        """Compute ``out``."""
        if self.last and x.flags.c_contiguous:
            channels_last = x.reshape(self.channels_last_shape)
        else:
            channels_last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
        self.fill(channels_last.reshape(-1, self.rows.inner))
        result = self.result
        if result is None:
            self.multiply(weight, scale, bias, address_of(out), out.itemsize)
        else:
            self.multiply(weight, scale, bias, address_of(result), result.itemsize)
            out[...] = np.moveaxis(result, -1, 1)


def is_supported(weight: tuple[int, ...], groups: int) -> bool:
    """Whether generated code is available and faster for a convolution with this weight shape."""
    return (groups == 1 or weight[1] >= _LEAST) and integer.usable()


__all__ = ["ConvolutionWords", "LinearWords", "is_supported"]
