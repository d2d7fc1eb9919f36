"""Layers in 8-bit integers, ``real = (stored - zero_point) * scale``, with exact integer sums.

A weight is int8 with one scale per output (row of a matrix, filter of a convolution) and zero point 0.
Activations have one scale for the whole tensor: int8 with zero point 0 if it is computed at each call
(*dynamic*), uint8 with a zero point if it was calibrated (*static*). Sums are 32-bit integers and therefore
exact; only the float32 product of a sum with its scales is rounded.

A backend may cache data derived from a weight in read-only memory: ADR 0032.
"""

from __future__ import annotations

import math

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace, Attrs, Operand
from tenon.errors import DTypeError, ShapeError
from tenon.ops.convolution import conv
from tenon.ops.spatial.pooling import pooled_sizes

#: The largest magnitude of a weight or a dynamic activation is stored as 127, its negative as -127.
LARGEST = 127
#: Magnitudes below it count as 0: 127 divided by them may not be finite.
SMALLEST = np.float32(1e-36)
_FLOATS = "fV"


def check_weight(name: str, inner: int, weight: Operand, scale: Operand, bias: Operand) -> None:
    """Raise unless ``weight`` is int8 with ``inner`` inputs, and ``scale`` and ``bias`` fit its outputs."""
    if str(weight.dtype) != "int8" or len(weight.shape) < 2:
        raise DTypeError(
            f"{name}: the weight is {weight.dtype}{list(weight.shape)}. Quantize it to int8, with the"
            " outputs along the first axis."
        )
    if weight.shape[1] != inner:
        raise ShapeError(
            f"{name}: the input has {inner} features (or channels per group), but the weight"
            f" {list(weight.shape)} expects {weight.shape[1]}."
        )
    for argument, value in (("scale", scale), ("bias", bias)):
        if value is not None and tuple(value.shape) != tuple(weight.shape[:1]):
            raise ShapeError(
                f"{name}: {argument} has shape {list(value.shape)}; it needs one number for each of the"
                f" {weight.shape[0]} outputs of the weight."
            )


def scaled_sums(xp: ArrayNamespace, sums: Array, scales: Array, bias: Array, axis: int) -> Array:
    """Return ``sums * scales + bias`` in float32, with one scale and bias for each index of ``axis``."""
    shape = [1] * sums.ndim
    shape[axis] = -1
    result = sums.astype(np.float32) * scales.astype(np.float32).reshape(shape)
    return result if bias is None else result + bias.astype(np.float32).reshape(shape)


def exact_floats(inner: int, largest: int) -> type[np.float32] | type[np.float64]:
    """Return the float type that is exact for sums of ``inner`` products of int8 with integers up to
    ``largest``.

    float64 represents all 32-bit integers; float32, which takes half the time, integers up to 2 ** 24.
    """
    return np.float32 if inner * largest * 128 <= 1 << 24 else np.float64


def integer_product(xp: ArrayNamespace, rows: Array, weight: Array, largest: int = 255) -> Array:
    """Return the exact ``rows @ weight.T`` of integers, those of ``rows`` of magnitude up to ``largest``."""
    kind = exact_floats(weight.shape[1], largest)
    return rows.astype(kind) @ weight.astype(kind).T


class Int8DynamicLinear(Primitive):
    """``x @ (weight * scale).T + bias`` with ``x`` quantized to int8 by its largest magnitude.

    ``x[..., K]`` of floats, ``weight[N, K]`` int8, ``scale[N]``, ``bias[N]`` or None. A number is
    quantized as ``rint(x * (127 / size))`` in float32, with ``size`` the largest magnitude in ``x``; that is
    exact if ``size`` is 127 times a power of two. If ``x`` has NaN or infinity, every result is NaN.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "weight", "scale", "bias")

    def infer(self, x, weight, scale, bias):
        """The last axis of ``x`` is replaced by the weight's first."""
        if not x.shape or np.dtype(x.dtype).kind not in _FLOATS:
            raise DTypeError(
                f"{self.name}: x is {x.dtype}{list(x.shape)}; it must be floats of one axis or more."
            )
        check_weight(self.name, x.shape[-1], weight, scale, bias)
        return Aval((*x.shape[:-1], weight.shape[0]), x.dtype)

    def forward(self, xp, x, weight, scale, bias):
        """Compute with integers held in floats."""
        result = self.infer(x, weight, scale, bias)
        rows = x.astype(np.float32).reshape(math.prod(x.shape[:-1]), x.shape[-1])
        step, integers = rounded(xp, rows)
        out = scaled_sums(xp, integer_product(xp, integers, weight, LARGEST), scale * step, bias, 1)
        return out.reshape(result.shape).astype(x.dtype)

    def cost(self, x, weight, scale, bias):
        """2 m n k."""
        return 2.0 * math.prod(x.shape[:-1]) * math.prod(weight.shape)


def rounded(xp: ArrayNamespace, x: Array) -> tuple[np.float32, Array]:
    """Return the step and the int8 integers of float32 ``x``; the step is NaN if an element is not finite."""
    size = np.float32(float(xp.abs(x).max()) if x.size else 0)
    if size < SMALLEST or not np.isfinite(size):
        return np.float32(0 if np.isfinite(size) else np.nan), xp.zeros(x.shape, np.int8)
    return size / np.float32(LARGEST), xp.rint(x * (np.float32(LARGEST) / size)).astype(np.int8)


int8_dynamic_linear = Int8DynamicLinear()


def to_steps(xp: ArrayNamespace, x: Array, step: float, zero: int) -> Array:
    """Quantize ``x`` to uint8: ``rint(x / step + zero)``, clipped to 0 to 255."""
    integers = xp.rint(x.astype(np.float32) / np.float32(step) + np.float32(zero))
    return xp.clip(integers, 0, 255).astype(np.uint8)


def _finish(xp: ArrayNamespace, sums: Array, scale: Array, bias: Array, attrs: Attrs) -> Array:
    """Apply scales, bias and ReLU to exact sums, and quantize the result if ``out_step`` is set."""
    result = scaled_sums(xp, sums, scale * np.float32(attrs["x_step"]), bias, 1)
    result = xp.maximum(result, np.float32(0)) if attrs["relu"] else result
    return result if attrs["out_step"] is None else to_steps(xp, result, attrs["out_step"], attrs["out_zero"])


def _check_static(name: str, x: Operand) -> None:
    """Raise DTypeError unless ``x`` is uint8 or float32 of two axes or more."""
    if str(x.dtype) not in ("uint8", "float32") or len(x.shape) < 2:
        raise DTypeError(
            f"{name}: x is {x.dtype}{list(x.shape)}; it must be uint8 or float32, of 2 axes or more."
        )


class Int8Linear(Primitive):
    """``relu(x @ weight.T + bias)`` of uint8 integers ``x``, which represent ``(x - x_zero) * x_step``.

    A float32 ``x[..., K]`` is quantized first. The result is uint8 with ``out_step`` and ``out_zero``, or
    float32 if ``out_step`` is None; ``relu`` is applied if it is set.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "weight", "scale", "bias")

    def infer(self, x, weight, scale, bias, *, x_step, x_zero, out_step, out_zero, relu):
        """The last axis of ``x`` is replaced by the weight's first."""
        _check_static(self.name, x)
        check_weight(self.name, x.shape[-1], weight, scale, bias)
        return Aval((*x.shape[:-1], weight.shape[0]), np.dtype(np.float32 if out_step is None else np.uint8))

    def forward(self, xp, x, weight, scale, bias, **attrs):
        """Compute with integers held in floats."""
        result = self.infer(x, weight, scale, bias, **attrs)
        x = x if x.dtype == np.uint8 else to_steps(xp, x, attrs["x_step"], attrs["x_zero"])
        rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).astype(np.float32) - attrs["x_zero"]
        return _finish(xp, integer_product(xp, rows, weight), scale, bias, attrs).reshape(result.shape)

    def cost(self, x, weight, scale, bias, **attrs):
        """2 m n k."""
        return 2.0 * math.prod(x.shape[:-1]) * math.prod(weight.shape)


class Int8Conv(Primitive):
    """A convolution of uint8 integers like ``int8_linear``; ``x[N, C, *S]`` and ``weight[O, C / groups,
    *K]``.

    Padding represents 0.
    """

    kind = Kind.CONVOLVE
    inputs = ("x", "weight", "scale", "bias")

    def infer(
        self, x, weight, scale, bias, *, x_step, x_zero, out_step, out_zero, relu,
        stride, padding, dilation, groups,
    ):  # fmt: skip
        """The shape of the convolution, in uint8, or float32 if ``out_step`` is None."""
        _check_static(self.name, x)
        check_weight(self.name, x.shape[1] // groups, weight, scale, bias)
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        result = conv.infer(Aval(tuple(x.shape), weight.dtype), weight, **geometry)
        return Aval(result.shape, np.dtype(np.float32 if out_step is None else np.uint8))

    def forward(self, xp, x, weight, scale, bias, *, stride, padding, dilation, groups, **attrs):
        """Compute with integers held in floats."""
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        self.infer(x, weight, scale, bias, **attrs, **geometry)
        x = x if x.dtype == np.uint8 else to_steps(xp, x, attrs["x_step"], attrs["x_zero"])
        kind = exact_floats(math.prod(weight.shape[1:]), 255)
        wide = x.astype(kind) - kind(attrs["x_zero"])
        return _finish(xp, conv.forward(xp, wide, weight.astype(kind), **geometry), scale, bias, attrs)

    def cost(self, x, weight, scale, bias, **attrs):
        """A multiplication and an addition per weight and element of the result."""
        return 2.0 * self.infer(x, weight, scale, bias, **attrs).size * math.prod(weight.shape[1:])


int8_linear, int8_conv = Int8Linear(), Int8Conv()


class Int8MaxPool(Primitive):
    """The largest element of each window of uint8 ``x[N, C, *S]``; padding is never the largest."""

    kind = Kind.WINDOW
    inputs = ("x",)

    def infer(self, x, *, kernel, stride, padding):
        """The shape of ``max_pool``."""
        if str(x.dtype) != "uint8" or len(x.shape) != len(kernel) + 2:
            raise DTypeError(
                f"{self.name}: x is {x.dtype}{list(x.shape)}; it must be uint8 of {len(kernel) + 2} axes."
            )
        sizes = pooled_sizes(x, kernel, stride, padding, (1,) * len(kernel), False)
        return Aval((*x.shape[:2], *sizes), x.dtype)

    def forward(self, xp, x, *, kernel, stride, padding):
        """One maximum per position in the window."""
        sizes = self.infer(x, kernel=kernel, stride=stride, padding=padding).shape[2:]
        wide = xp.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
        result = xp.zeros((*x.shape[:2], *sizes), np.uint8)
        for position in np.ndindex(*kernel):
            region = [
                slice(a, a + t * (n - 1) + 1, t) for a, t, n in zip(position, stride, sizes, strict=True)
            ]
            result = xp.maximum(result, wide[(slice(None), slice(None), *region)])
        return result


int8_max_pool = Int8MaxPool()
