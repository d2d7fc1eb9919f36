"""``torch.nn.grad``: the gradients of convolutions as differentiable functions.

>>> import tenon
>>> input, weight = tenon.ones(1, 1, 3, 3), tenon.ones(1, 1, 1, 2)
>>> conv2d_input(input.shape, weight, tenon.ones(1, 1, 3, 2))[0, 0, 0]
tensor([1., 2., 1.])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.nn.functional.arguments import per_axis

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def _attrs(
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    rank: int,
) -> dict[str, Any]:
    return {
        "stride": per_axis(stride, rank, "stride"),
        "padding": per_axis(padding, rank, "padding"),
        "dilation": per_axis(dilation, rank, "dilation"),
        "groups": groups,
    }


def _input(
    size: Sequence[int],
    weight: Tensor,
    g: Tensor,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    rank: int,
) -> Tensor:
    attrs = _attrs(stride, padding, dilation, groups, rank)
    return f.conv_input_grad(g, weight, sizes=tuple(size)[2:], **attrs)


def _weight(
    x: Tensor,
    size: Sequence[int],
    g: Tensor,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    rank: int,
) -> Tensor:
    attrs = _attrs(stride, padding, dilation, groups, rank)
    return f.conv_weight_grad(x, g, kernel=tuple(size)[2:], **attrs)


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of ``conv1d`` with respect to its input of ``input_size`` ``[N, C, L]``."""
    return _input(input_size, weight, grad_output, stride, padding, dilation, groups, 1)


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of ``conv1d`` with respect to its weight of ``weight_size``."""
    return _weight(input, weight_size, grad_output, stride, padding, dilation, groups, 1)


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of ``conv2d`` with respect to its input of ``input_size`` ``[N, C, H, W]``."""
    return _input(input_size, weight, grad_output, stride, padding, dilation, groups, 2)


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of ``conv2d`` with respect to its weight of ``weight_size``."""
    return _weight(input, weight_size, grad_output, stride, padding, dilation, groups, 2)


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of ``conv3d`` with respect to its input of ``input_size`` ``[N, C, D, H, W]``."""
    return _input(input_size, weight, grad_output, stride, padding, dilation, groups, 3)


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of ``conv3d`` with respect to its weight of ``weight_size``."""
    return _weight(input, weight_size, grad_output, stride, padding, dilation, groups, 3)
