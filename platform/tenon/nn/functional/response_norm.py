"""Normalisation by neighbouring channels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError
from tenon.nn.functional.arguments import refuse_short_integers
from tenon.tensors.memory_formats import like, with_gradient_in_format

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def over_channels(input: Tensor, before: int, after: int) -> Tensor:
    """Return the mean square of each channel of ``input[N, C, ...]`` and its neighbours.

    ``before`` and ``after`` are how many neighbours count on each side; missing ones are 0.
    """
    shape = tuple(input.raw.shape)
    planes = f.reshape(f.square(input), shape=(shape[0], 1, shape[1], math.prod(shape[2:])))
    widened = f.pad(planes, widths=((0, 0), (0, 0), (before, after), (0, 0)), value=0)
    size = before + after + 1
    means = f.avg_pool(
        widened,
        kernel=(size, 1),
        stride=(1, 1),
        padding=(0, 0),
        ceil_mode=False,
        include_pad=True,
        divisor=None,
    )
    return f.reshape(means, shape=shape)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``input[N, C, ...]`` over ``(k + alpha * m) ** beta``, ``m`` the mean square of ``size`` channels."""
    if input.raw.ndim < 3:
        raise ModuleValueError(
            f"Expected 3D or higher dimensionality input (got {input.raw.ndim} dimensions)"
        )
    if input.raw.size == 0:
        return input
    refuse_short_integers(input, "local_response_norm")
    x = with_gradient_in_format(input)
    return like(x / (over_channels(x, size // 2, (size - 1) // 2) * alpha + k).pow(beta), input)
