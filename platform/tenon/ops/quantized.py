"""Numbers of 8 bits: ``real = (stored - zero_point) * scale``, and products of them with exact integer sums.

A weight is int8 with one scale for each output (row of a matrix, filter of a convolution), its zero is 0.
Activations have one scale for all: int8 around 0 where it is found at each call (*dynamic*), uint8 with a
zero point where it was calibrated (*static*). Sums are integers of 32 bits and therefore exact; what is
rounded is the float32 product of a sum with its scales.

A backend may keep what it derives of a weight whose memory nobody can write: see ``quantization/frozen.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.core.aval import Aval
from tenon.core.op import Kind, Primitive
from tenon.errors import DTypeError, ShapeError

#: Numbers from -127 to 127 stand for the weight or dynamic activation from its negative to its largest size.
LARGEST = 127
#: Sizes below it count as 0: 127 divided by them may not be finite.
SMALLEST = np.float32(1e-36)
_FLOATS = "fV"


def check_weight(name: str, inner: int, weight: Any, scale: Any, bias: Any) -> None:
    """ShapeError or DTypeError unless the int8 weight fits ``inner`` numbers of an input, its scales, bias."""
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


def scaled_sums(xp: Any, sums: Any, scales: Any, bias: Any, axis: int) -> Any:
    """``sums * scales + bias`` in float32, with one scale and bias for each index of ``axis``."""
    shape = [1] * sums.ndim
    shape[axis] = -1
    made = sums.astype(np.float32) * scales.astype(np.float32).reshape(shape)
    return made if bias is None else made + bias.astype(np.float32).reshape(shape)


def integer_product(xp: Any, rows: Any, weight: Any) -> Any:
    """``rows @ weight.T`` of integers: exact, since float64 holds every sum that 32 bits hold."""
    return rows.astype(np.float64) @ weight.astype(np.float64).T


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
        """Whole numbers in float64."""
        made = self.infer(x, weight, scale, bias)
        rows = x.astype(np.float32).reshape(math.prod(x.shape[:-1]), x.shape[-1])
        step, whole = rounded(xp, rows)
        out = scaled_sums(xp, integer_product(xp, whole, weight), scale * step, bias, 1)
        return out.reshape(made.shape).astype(x.dtype)

    def cost(self, x, weight, scale, bias):
        """2 m n k."""
        return 2.0 * math.prod(x.shape[:-1]) * math.prod(weight.shape)


def rounded(xp: Any, x: Any) -> tuple[Any, Any]:
    """The step and the whole numbers of float32 ``x``; the step is NaN where one is not finite."""
    size = np.float32(float(xp.abs(x).max()) if x.size else 0)
    if size < SMALLEST or not np.isfinite(size):
        return np.float32(0 if np.isfinite(size) else np.nan), xp.zeros(x.shape, np.int8)
    return size / np.float32(LARGEST), xp.rint(x * (np.float32(LARGEST) / size)).astype(np.int8)


int8_dynamic_linear = Int8DynamicLinear()
