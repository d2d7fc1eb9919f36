"""``convolution``, whose number of axes follows from its arguments, and ``conv_tbc`` (time first)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.compat.rerouting import register
from tenon.engine.op import table as f
from tenon.errors import ShapeError
from tenon.nn.functional import convolution as by_rank
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.nn.functional.arguments import PerAxis
    from tenon.tensors.tensor import Tensor

_PLAIN = (by_rank.conv1d, by_rank.conv2d, by_rank.conv3d)
_TRANSPOSED = (by_rank.conv_transpose1d, by_rank.conv_transpose2d, by_rank.conv_transpose3d)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis,
    dilation: PerAxis,
    transposed: bool,
    output_padding: PerAxis,
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
    only_tensors(bias)
    if input.ndim != 3 or weight.ndim != 3:
        raise ShapeError(
            "conv_tbc: input must be [time, batch, channels] and weight [width, channels in, channels out],"
            f" got {list(input.shape)} and {list(weight.shape)}."
        )
    # PyTorch returns an output without time steps where the input is one step shorter than the kernel.
    is_empty = input.shape[0] + 2 * pad + 1 == weight.shape[0]
    x = f.pad(input, widths=((pad, pad + is_empty), (0, 0), (0, 0)), value=0)
    result = by_rank.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias).permute(2, 0, 1)
    return result[:0] if is_empty else result


register("torch", {"conv_tbc": conv_tbc, "convolution": convolution})
