"""Masked softmax, and softmax under the names of PyTorch's internal functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import ArgumentError, ShapeError
from tenon.nn.functional.arguments import axis_of

if TYPE_CHECKING:
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["_masked_softmax", "_softmax", "_softmax_backward_data"]


def _masked_softmax(
    input: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None
) -> Tensor:
    """Softmax along ``dim`` (the last axis) of the elements where ``mask`` is False; 0 elsewhere.

    ``mask_type``: 0 for an attention mask ``[L, L]`` of an input ``[N, H, L, L]``, 1 for a padding mask
    ``[N, L]``, 2 for a mask of the input's shape, which masks of the first two types may have too.
    """
    if mask.raw.dtype.kind != "b":
        raise ArgumentError(f"Mask should be a boolean tensor, got {mask.dtype}")
    shape = tuple(input.raw.shape)
    if mask_type not in (0, 1, 2):
        raise ArgumentError(
            "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), or 2 (default_mask), got"
            f" {mask_type}"
        )
    if tuple(mask.raw.shape) != shape:
        if len(shape) != 4 or mask_type == 2:
            raise ShapeError(f"Mask shape {list(mask.raw.shape)} should match input shape {list(shape)}")
        mask = mask[None, None] if mask_type == 0 else mask[:, None, None]
        mask = mask.expand(*shape)
    axis = axis_of(input, -1 if dim is None else dim, "masked_softmax")
    return f.softmax(input.masked_fill(mask, -float("inf")), axis=axis).masked_fill(mask, 0)


def _softmax(input: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """Softmax along ``dim``; ``half_to_float`` in float32."""
    x = input.float() if half_to_float else input
    return f.softmax(x, axis=axis_of(x, dim, "softmax"))


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtype) -> Tensor:
    """The gradient of the input of a softmax along ``dim`` that gave ``output``."""
    scaled = grad_output * output
    return (scaled - output * scaled.sum(dim, keepdim=True)).to(input_dtype)
