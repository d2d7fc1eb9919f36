"""Patches of images and their sums, and rearrangements between channels and space."""

from __future__ import annotations

import math
from operator import index
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn.functional.arguments import PerAxis, batched, check_kernel, per_axis
from tenon.tensors.memory_formats import like, with_gradient_in_format

if TYPE_CHECKING:
    from tenon.engine.types import Attrs
    from tenon.tensors.tensor import Tensor


def _patch_attrs(kernel_size: PerAxis, dilation: PerAxis, padding: PerAxis, stride: PerAxis) -> Attrs:
    """Return the layout of patches as attributes of the ops ``fold`` and ``unfold``."""
    kernel = per_axis(kernel_size, 2, "kernel_size")
    check_kernel(kernel)
    return {
        "kernel": kernel,
        "dilation": per_axis(dilation, 2, "dilation"),
        "padding": per_axis(padding, 2, "padding"),
        "stride": per_axis(stride, 2, "stride"),
    }


@titled("Im2Col0")
def unfold(
    input: Tensor,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """Patches of ``input[N, C, H, W]`` as columns ``[N, C * KH * KW, positions]`` (im2col)."""
    x, added = batched(input, 2, "unfold")
    if 0 in x.raw.shape[1:]:
        raise ShapeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions"
            f" for input, but got: {list(input.raw.shape)}"
        )
    result = f.unfold(x, **_patch_attrs(kernel_size, dilation, padding, stride))
    return result.squeeze(0) if added else result


@titled("Col2Im0")
def fold(
    input: Tensor,
    output_size: PerAxis,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """Columns ``[N, C * KH * KW, positions]`` summed into images ``[N, C, *output_size]`` (col2im)."""
    rank = input.raw.ndim
    if rank not in (2, 3) or 0 in input.raw.shape[rank - 2 :]:
        raise ShapeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero"
            f" dimensions for input, but got: {list(input.raw.shape)}"
        )
    x = input.unsqueeze(0) if rank == 2 else input
    sizes = per_axis(output_size, 2, "output_size")
    result = f.fold(x, sizes=sizes, **_patch_attrs(kernel_size, dilation, padding, stride))
    return result.squeeze(0) if rank == 2 else result


@titled("PixelShuffle0")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """``[..., C * r * r, H, W]`` as ``[..., C, H * r, W * r]``: channels become blocks of pixels."""
    *leading, channels, height, width = _image(input, "pixel_shuffle")
    r = index(upscale_factor)
    if r <= 0:
        raise ModuleValueError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if channels % (r * r):
        raise ShapeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of"
            f" upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    split = with_gradient_in_format(input).reshape(*leading, channels // (r * r), r, r, height, width)
    n = len(leading)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return like(split.permute(order).reshape(*leading, channels // (r * r), height * r, width * r), input)


@titled("PixelUnshuffle0")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """``[..., C, H * r, W * r]`` as ``[..., C * r * r, H, W]``: blocks of pixels become channels.

    An empty input comes back in its own shape, as in PyTorch.
    """
    *leading, channels, height, width = _image(input, "pixel_unshuffle")
    r = index(downscale_factor)
    if r <= 0:
        raise ModuleValueError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    for name, size, axis in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise ShapeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but"
                f" input.size({axis})={size} is not divisible by {r}"
            )
    if not input.raw.size:
        return input.clone()
    split = with_gradient_in_format(input).reshape(*leading, channels, height // r, r, width // r, r)
    n = len(leading)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return like(split.permute(order).reshape(*leading, channels * r * r, height // r, width // r), input)


def _image(x: Tensor, name: str) -> tuple[int, ...]:
    """Return the shape of ``x``, or raise ShapeError if it has fewer than 3 axes."""
    shape = tuple(x.raw.shape)
    if len(shape) < 3:
        raise ShapeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {len(shape)}"
            " dimension(s)"
        )
    return shape


@titled("ChannelShuffle0")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """``[N, groups * C, ...]`` with the channels of all groups interleaved."""
    shape = tuple(input.raw.shape)
    if len(shape) < 3:
        raise ShapeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}"
        )
    if groups <= 0:
        raise ModuleValueError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if shape[1] % groups:
        raise ShapeError(
            f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups."
        )
    split = with_gradient_in_format(input).reshape(shape[0], groups, shape[1] // groups, math.prod(shape[2:]))
    return like(split.transpose(1, 2).reshape(shape), input)


native_channel_shuffle = channel_shuffle
