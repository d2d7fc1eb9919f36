"""PyTorch's module ``autograd._functions``: custom Functions of older versions, for code that uses them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.autograd.function import Function
from tenon.errors import GradError
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.autograd.function_context import Context


class Resize(Function):
    """``Resize.apply(tensor, sizes)`` returns a copy of ``tensor`` of shape ``sizes``."""

    @staticmethod
    def forward(ctx: Context, tensor: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return a copy of ``tensor`` of shape ``sizes``; GradError if the number of elements differs."""
        if math.prod(sizes) != tensor.numel():
            raise GradError(
                f"requested resize to {tuple(sizes)} ({math.prod(sizes)} elements in total), but the given"
                f" tensor has a size of {tuple(tensor.shape)} ({tensor.numel()} elements). autograd's resize"
                " can only change the shape of a given tensor, while preserving the number of elements."
            )
        ctx.sizes = tensor.shape
        return tensor.clone().reshape(sizes)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient in the shape of the input."""
        return grads[0].reshape(ctx.sizes), None
