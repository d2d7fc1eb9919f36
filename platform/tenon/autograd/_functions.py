"""PyTorch's path ``autograd._functions``: old custom Functions that some code still names."""

from __future__ import annotations

import math
from typing import Any

from tenon.autograd.function import Function
from tenon.errors import GradError


class Resize(Function):
    """``apply(tensor, sizes)``: the same elements at other sizes."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, sizes: Any) -> Any:
        """``tensor`` at ``sizes``, whose product must be its number of elements."""
        if math.prod(sizes) != tensor.numel():
            raise GradError(
                f"requested resize to {tuple(sizes)} ({math.prod(sizes)} elements in total), but the given"
                f" tensor has a size of {tuple(tensor.shape)} ({tensor.numel()} elements). autograd's resize"
                " can only change the shape of a given tensor, while preserving the number of elements."
            )
        ctx.sizes = tensor.shape
        return tensor.clone().reshape(sizes)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Back at the first sizes."""
        return grads[0].reshape(ctx.sizes), None
