"""Numbers of 8 bits: ``real = (stored - zero_point) * scale``, and products of them with exact integer sums.

A weight is int8 with one scale for each output (row of a matrix, filter of a convolution), its zero is 0.
Activations have one scale for all: int8 around 0 where it is found at each call (*dynamic*), uint8 with a
zero point where it was calibrated (*static*). Sums are integers of 32 bits and therefore exact; what is
rounded is the float32 product of a sum with its scales.

A backend may keep what it derives of a weight whose memory nobody can write: see ``quantization/frozen.py``.
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

#: Numbers from -127 to 127 stand for the weight or dynamic activation from its negative to its largest size.
LARGEST = 127
#: Sizes below it count as 0: 127 divided by them may not be finite.
SMALLEST = np.float32(1e-36)
_FLOATS = "fV"


def check_weight(name: str, inner: int, weight: Operand, scale: Operand, bias: Operand) -> None:
    """ShapeError or DTypeError unless the int8 weight fits ``inner`` numbers of an input and the rest."""
    if str(weight.dtype) != "int8" or len(weight.shape) < 2:
        raise DTypeError(
            f"{name}: the weight is {weight.dtype}{list(weight.shape)}. Give int8 with the outputs first:"
            " quantize it before."
        )
    if weight.shape[1] != inner:
        raise ShapeError(
            f"{name}: the input has {inner} features (or channels of a group), the weight"
            f" {list(weight.shape)} wants {weight.shape[1]}."
        )
    for what, given in (("scale", scale), ("bias", bias)):
        if given is not None and tuple(given.shape) != tuple(weight.shape[:1]):
            raise ShapeError(
                f"{name}: {what} has shape {list(given.shape)}; give one number for each of the"
                f" {weight.shape[0]} outputs of the weight."
            )


def scaled_sums(xp: ArrayNamespace, sums: Array, scales: Array, bias: Array, axis: int) -> Array:
    """``sums * scales + bias`` in float32, with one scale and bias for each index of ``axis``."""
    shape = [1] * sums.ndim
    shape[axis] = -1
    result = sums.astype(np.float32) * scales.astype(np.float32).reshape(shape)
    return result if bias is None else result + bias.astype(np.float32).reshape(shape)


def exact_floats(inner: int, largest: int) -> type[np.float32] | type[np.float64]:
    """The floats that hold every sum of ``inner`` products of int8 and of numbers up to ``largest``.

    float64 holds all that 32 bits hold; float32, in half the time, whole numbers up to 2 ** 24.
    """
    return np.float32 if inner * largest * 128 <= 1 << 24 else np.float64


def integer_product(xp: ArrayNamespace, rows: Array, weight: Array, largest: int = 255) -> Array:
    """``rows @ weight.T`` of integers, those of ``rows`` up to ``largest`` in size: exact."""
    kind = exact_floats(weight.shape[1], largest)
    return rows.astype(kind) @ weight.astype(kind).T


class Int8DynamicLinear(Primitive):
    """``x @ (weight * scale).T + bias`` with ``x`` rounded to int8 by the largest size in it.

    ``x[..., K]`` of floats, ``weight[N, K]`` int8, ``scale[N]``, ``bias[N]`` or None. The integer of a number
    is ``rint(x * (127 / size))`` in float32, ``size`` the largest absolute value in ``x``: exact for a size
    of 127 times a power of two. Where ``x`` holds NaN or infinity every result is NaN.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "weight", "scale", "bias")

    def infer(self, x, weight, scale, bias):
        """The last axis becomes the weight's first."""
        if not x.shape or np.dtype(x.dtype).kind not in _FLOATS:
            raise DTypeError(f"{self.name}: x is {x.dtype}{list(x.shape)}; give floats of one axis or more.")
        check_weight(self.name, x.shape[-1], weight, scale, bias)
        return Aval((*x.shape[:-1], weight.shape[0]), x.dtype)

    def forward(self, xp, x, weight, scale, bias):
        """Whole numbers in floats."""
        result = self.infer(x, weight, scale, bias)
        rows = x.astype(np.float32).reshape(math.prod(x.shape[:-1]), x.shape[-1])
        step, whole = rounded(xp, rows)
        out = scaled_sums(xp, integer_product(xp, whole, weight, LARGEST), scale * step, bias, 1)
        return out.reshape(result.shape).astype(x.dtype)

    def cost(self, x, weight, scale, bias):
        """2 m n k."""
        return 2.0 * math.prod(x.shape[:-1]) * math.prod(weight.shape)


def rounded(xp: ArrayNamespace, x: Array) -> tuple[np.float32, Array]:
    """The step and the whole numbers of float32 ``x``; the step is NaN where one is not finite."""
    size = np.float32(float(xp.abs(x).max()) if x.size else 0)
    if size < SMALLEST or not np.isfinite(size):
        return np.float32(0 if np.isfinite(size) else np.nan), xp.zeros(x.shape, np.int8)
    return size / np.float32(LARGEST), xp.rint(x * (np.float32(LARGEST) / size)).astype(np.int8)


int8_dynamic_linear = Int8DynamicLinear()


def to_steps(xp: ArrayNamespace, x: Array, step: float, zero: int) -> Array:
    """``x`` as uint8: ``rint(x / step + zero)``, within 0 to 255."""
    whole = xp.rint(x.astype(np.float32) / np.float32(step) + np.float32(zero))
    return xp.clip(whole, 0, 255).astype(np.uint8)


def _finish(xp: ArrayNamespace, sums: Array, scale: Array, bias: Array, attrs: Attrs) -> Array:
    """What follows exact sums: scales and bias, the rectifier, and steps where uint8 is to come out."""
    result = scaled_sums(xp, sums, scale * np.float32(attrs["x_step"]), bias, 1)
    result = xp.maximum(result, np.float32(0)) if attrs["relu"] else result
    return result if attrs["out_step"] is None else to_steps(xp, result, attrs["out_step"], attrs["out_zero"])


def _check_static(name: str, x: Operand) -> None:
    if str(x.dtype) not in ("uint8", "float32") or len(x.shape) < 2:
        raise DTypeError(f"{name}: x is {x.dtype}{list(x.shape)}; give uint8 or float32 of two axes or more.")


class Int8Linear(Primitive):
    """``relu(x @ weight.T + bias)`` of uint8 steps: ``x`` stands for ``(x - x_zero) * x_step``.

    A float32 ``x[..., K]`` is rounded to such steps first. The result is uint8 of ``out_step`` and
    ``out_zero``, or float32 where ``out_step`` is None. Without ``relu`` nothing is rectified.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "weight", "scale", "bias")

    def infer(self, x, weight, scale, bias, *, x_step, x_zero, out_step, out_zero, relu):
        """The last axis becomes the weight's first."""
        _check_static(self.name, x)
        check_weight(self.name, x.shape[-1], weight, scale, bias)
        return Aval((*x.shape[:-1], weight.shape[0]), np.dtype(np.float32 if out_step is None else np.uint8))

    def forward(self, xp, x, weight, scale, bias, **attrs):
        """Whole numbers in floats."""
        result = self.infer(x, weight, scale, bias, **attrs)
        x = x if x.dtype == np.uint8 else to_steps(xp, x, attrs["x_step"], attrs["x_zero"])
        rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).astype(np.float32) - attrs["x_zero"]
        return _finish(xp, integer_product(xp, rows, weight), scale, bias, attrs).reshape(result.shape)

    def cost(self, x, weight, scale, bias, **attrs):
        """2 m n k."""
        return 2.0 * math.prod(x.shape[:-1]) * math.prod(weight.shape)


class Int8Conv(Primitive):
    """A convolution of uint8 steps, as ``int8_linear``; ``x[N, C, *S]`` and ``weight[O, C / groups, *K]``.

    What lies beyond the edge stands for 0.
    """

    kind = Kind.CONVOLVE
    inputs = ("x", "weight", "scale", "bias")

    def infer(
        self, x, weight, scale, bias, *, x_step, x_zero, out_step, out_zero, relu,
        stride, padding, dilation, groups,
    ):  # fmt: skip
        """As the convolution."""
        _check_static(self.name, x)
        check_weight(self.name, x.shape[1] // groups, weight, scale, bias)
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        result = conv.infer(Aval(tuple(x.shape), weight.dtype), weight, **geometry)
        return Aval(result.shape, np.dtype(np.float32 if out_step is None else np.uint8))

    def forward(self, xp, x, weight, scale, bias, *, stride, padding, dilation, groups, **attrs):
        """Whole numbers in floats."""
        geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        self.infer(x, weight, scale, bias, **attrs, **geometry)
        x = x if x.dtype == np.uint8 else to_steps(xp, x, attrs["x_step"], attrs["x_zero"])
        kind = exact_floats(math.prod(weight.shape[1:]), 255)
        wide = x.astype(kind) - kind(attrs["x_zero"])
        return _finish(xp, conv.forward(xp, wide, weight.astype(kind), **geometry), scale, bias, attrs)

    def cost(self, x, weight, scale, bias, **attrs):
        """Two for each weight that a number of the result is made of."""
        return 2.0 * self.infer(x, weight, scale, bias, **attrs).size * math.prod(weight.shape[1:])


int8_linear, int8_conv = Int8Linear(), Int8Conv()


class Int8MaxPool(Primitive):
    """The largest of each window of uint8 ``x[N, C, *S]``; beyond the edge nothing is larger."""

    kind = Kind.WINDOW
    inputs = ("x",)

    def infer(self, x, *, kernel, stride, padding):
        """As ``max_pool``."""
        if str(x.dtype) != "uint8" or len(x.shape) != len(kernel) + 2:
            raise DTypeError(
                f"{self.name}: x is {x.dtype}{list(x.shape)}; give uint8 of {len(kernel) + 2} axes."
            )
        sizes = pooled_sizes(x, kernel, stride, padding, (1,) * len(kernel), False)
        return Aval((*x.shape[:2], *sizes), x.dtype)

    def forward(self, xp, x, *, kernel, stride, padding):
        """Place after place of the window."""
        sizes = self.infer(x, kernel=kernel, stride=stride, padding=padding).shape[2:]
        wide = xp.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
        result = xp.zeros((*x.shape[:2], *sizes), np.uint8)
        for place in np.ndindex(*kernel):
            cut = [slice(a, a + t * (n - 1) + 1, t) for a, t, n in zip(place, stride, sizes, strict=True)]
            result = xp.maximum(result, wide[(slice(None), slice(None), *cut)])
        return result


int8_max_pool = Int8MaxPool()
