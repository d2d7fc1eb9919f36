"""Conversion of weights to integers and back: int8 by rows, int4 by groups, two in a byte."""

from __future__ import annotations

import math
from typing import TypeAlias

from tenon import Tensor, as_tensor, empty, float16, float32, int8, uint8
from tenon.errors import QuantizationError
from tenon.ops.quantized import LARGEST

#: The smallest and the largest number to represent: of all numbers, or of each output of a weight.
Limits: TypeAlias = tuple[Tensor | float, Tensor | float]


def check_float32(caller: str, weight: Tensor) -> None:
    """Raise QuantizationError that names ``caller`` unless ``weight`` is float32."""
    if weight.dtype is not float32:
        raise QuantizationError(
            f"{caller} has dtype {weight.dtype}; layers with 8-bit states take and return float32. Call"
            " model.float() first."
        )


def to_int8(weight: Tensor, limits: Limits | None = None) -> tuple[Tensor, Tensor]:
    """Return ``(values, scale)``: int8 of the weight's shape, and a float32 for each index of its first axis.

    ``limits`` are the lowest and the highest number to represent, of the weight or of each such index; the
    default is the range of its values.
    """
    _check_size(weight)
    weight = weight.detach().to(float32)
    rows = weight.reshape(weight.shape[0], -1)
    size = rows.abs().amax(1)
    if limits is not None:
        low, high = (as_tensor(limit, dtype=float32).abs().expand(rows.shape[0]) for limit in limits)
        size = low.where(low > high, high)
    scale = (size / LARGEST).masked_fill(size == 0, 1)
    return (rows / scale[:, None]).round().clamp(-LARGEST, LARGEST).to(int8).reshape(weight.shape), scale


def _check_size(weight: Tensor) -> None:
    if not weight.numel():
        raise QuantizationError(
            f"a weight of shape {list(weight.shape)} has no numbers to quantize. Name its layer in skip."
        )


def from_int8(values: Tensor, scale: Tensor) -> Tensor:
    """Return the float32 weight that ``values`` and ``scale`` of ``to_int8`` stand for."""
    return values.to(float32) * scale.reshape(-1, *(1,) * (values.dim() - 1))


def to_int4(weight: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return ``(bytes, scale)``: integers from -7 to 7, with a float16 scale for each ``group`` of them.

    Groups are consecutive elements of a row (an index of the first axis); the last of a row may be shorter.
    """
    if group < 2 or group % 2:
        raise QuantizationError(f"int4 groups have an even number of weights, two to a byte; got {group}.")
    _check_size(weight)
    weight = weight.detach().to(float32)
    count, width = weight.shape[0], math.prod(weight.shape[1:])
    groups = -(-width // group)
    padded = weight.new_zeros(count, groups * group)
    padded[:, :width] = weight.reshape(count, width)
    padded = padded.reshape(count, groups, group)
    size = padded.abs().amax(2)
    scale = (size / 7).masked_fill(size == 0, 1).to(float16)
    if not bool(scale.isfinite().all()) or not bool((scale > 0).all()):
        raise QuantizationError(
            f"int4 scales are float16, and weights of size {float(size.max()):.3g} are beyond them. Use int8."
        )
    integers = ((padded / scale.to(float32)[:, :, None]).round().clamp(-7, 7) + 8).to(uint8)
    pairs = integers.reshape(count, groups * group // 2, 2)
    return pairs[:, :, 0] + pairs[:, :, 1] * 16, scale


def from_int4(packed: Tensor, scale: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the float32 weight of ``shape`` that ``packed`` and ``scale`` of ``to_int4`` stand for."""
    count, groups = scale.shape
    integers = empty((*packed.shape, 2), dtype=float32, device=packed.device)
    integers[..., 0], integers[..., 1] = packed & 15, packed >> 4
    integers = integers.reshape(count, groups, -1) - 8
    rows = (integers * scale.to(float32)[:, :, None]).reshape(count, -1)
    return rows[:, : math.prod(shape[1:])].reshape(shape)
