"""``torch.nn.grad``: the gradients of convolutions as differentiable functions.

>>> import tenon
>>> input, weight = tenon.ones(1, 1, 3, 3), tenon.ones(1, 1, 1, 2)
>>> conv2d_input(input.shape, weight, tenon.ones(1, 1, 3, 2))[0, 0, 0]
tensor([1., 2., 1.])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.nn.functional.arguments import PerAxis, per_axis

if TYPE_CHECKING:
    from tenon.engine.types import Attrs
    from tenon.tensors.tensor import Tensor


def _attrs(stride: PerAxis, padding: PerAxis, dilation: PerAxis, groups: int, rank: int) -> Attrs:
    """Return the attributes of a convolution over ``rank`` axes, as its ops take them."""
    return {
        "stride": per_axis(stride, rank, "stride"),
        "padding": per_axis(padding, rank, "padding"),
        "dilation": per_axis(dilation, rank, "dilation"),
        "groups": groups,
    }


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: PerAxis = 1, padding: PerAxis = 0,
    dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``conv1d`` with respect to its input of ``input_size`` ``[N, C, L]``."""
    attrs = _attrs(stride, padding, dilation, groups, 1)
    return f.conv_input_grad(grad_output, weight, sizes=tuple(input_size)[2:], **attrs)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: PerAxis = 1, padding: PerAxis = 0,
    dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``conv1d`` with respect to its weight of ``weight_size``."""
    attrs = _attrs(stride, padding, dilation, groups, 1)
    return f.conv_weight_grad(input, grad_output, kernel=tuple(weight_size)[2:], **attrs)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: PerAxis = 1, padding: PerAxis = 0,
    dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``conv2d`` with respect to its input of ``input_size`` ``[N, C, H, W]``."""
    attrs = _attrs(stride, padding, dilation, groups, 2)
    return f.conv_input_grad(grad_output, weight, sizes=tuple(input_size)[2:], **attrs)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: PerAxis = 1, padding: PerAxis = 0,
    dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``conv2d`` with respect to its weight of ``weight_size``."""
    attrs = _attrs(stride, padding, dilation, groups, 2)
    return f.conv_weight_grad(input, grad_output, kernel=tuple(weight_size)[2:], **attrs)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: PerAxis = 1, padding: PerAxis = 0,
    dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``conv3d`` with respect to its input of ``input_size`` ``[N, C, D, H, W]``."""
    attrs = _attrs(stride, padding, dilation, groups, 3)
    return f.conv_input_grad(grad_output, weight, sizes=tuple(input_size)[2:], **attrs)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: PerAxis = 1, padding: PerAxis = 0,
    dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the gradient of ``conv3d`` with respect to its weight of ``weight_size``."""
    attrs = _attrs(stride, padding, dilation, groups, 3)
    return f.conv_weight_grad(input, grad_output, kernel=tuple(weight_size)[2:], **attrs)
