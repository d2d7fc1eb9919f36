"""The randomized leaky ReLU."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.errors import ArgumentError
from tenon.nn.functional.activation import leaky_relu
from tenon.tensors.inplace import inplace as write_inplace

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


@titled("RreluWithNoise0")
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """``input`` where positive, else times a slope between ``lower`` and ``upper``: a random one for each
    element in training, their mean otherwise."""
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise ArgumentError(f"rrelu: bounds must be finite, got lower={lower} and upper={upper}")
    if lower > upper:
        raise ArgumentError(
            "Lower bound should be less than or equal to the upper bound, but got"
            f" lower={lower} and upper={upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    noise = f.rrelu_noise(input.detach(), lower=float(lower), upper=float(upper))
    return write_inplace(f.mul, input, noise) if inplace else f.mul(input, noise)


@titled("RreluWithNoise1")
def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """In-place ``rrelu``."""
    return rrelu(input, lower, upper, training, True)
