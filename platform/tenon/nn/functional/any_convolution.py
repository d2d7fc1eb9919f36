"""``convolution``, whose number of axes follows from its arguments, and ``conv_tbc`` (time first)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.rerouting import register
from tenon.engine.op import table as f
from tenon.errors import ShapeError
from tenon.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from tenon.tensors.methods.titles import titled

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

_PLAIN, _TRANSPOSED = (conv1d, conv2d, conv3d), (conv_transpose1d, conv_transpose2d, conv_transpose3d)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """``conv1d`` to ``conv3d`` or their transposes, by the axes of ``weight[O, C / groups, *K]``."""
    rank = weight.ndim - 2
    if not 1 <= rank <= 3:
        raise ShapeError(f"convolution: weight must have 3 to 5 axes, got {list(weight.shape)}.")
    if transposed:
        return _TRANSPOSED[rank - 1](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _PLAIN[rank - 1](input, weight, bias, stride, padding, dilation, groups)


@titled("ConvTbc0")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """``conv1d`` of ``input[T, N, C]`` with ``weight[K, C, O]``: ``[T', N, O]``."""
    if input.ndim != 3 or weight.ndim != 3:
        raise ShapeError(
            "conv_tbc: input must be [time, batch, channels] and weight [width, channels in, channels out],"
            f" got {list(input.shape)} and {list(weight.shape)}."
        )
    nowhere = input.shape[0] + 2 * pad + 1 == weight.shape[0]  # which torch takes for no places
    x = f.pad(input, widths=((pad, pad + nowhere), (0, 0), (0, 0)), value=0)
    made = conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias).permute(2, 0, 1)
    return made[:0] if nowhere else made


register("torch", {"conv_tbc": conv_tbc, "convolution": convolution})
