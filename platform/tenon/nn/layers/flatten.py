"""``Flatten`` and ``Unflatten``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import ModuleTypeError
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Joins the axes from ``start_dim`` to ``end_dim`` into one."""

    __constants__ = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """``input.flatten(start_dim, end_dim)``."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits axis ``dim`` into axes of ``unflattened_size``."""

    def __init__(self, dim: int, unflattened_size: list[int] | tuple[int, ...]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise ModuleTypeError(
                f"Unflatten takes an int as dim, not {type(dim).__name__}; axes have no names."
            )
        if not isinstance(unflattened_size, (tuple, list)):
            raise ModuleTypeError(
                f"unflattened_size must be tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        for position, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise ModuleTypeError(
                    f"unflattened_size must be tuple of ints, but found element of type {type(size).__name__}"
                    f" at pos {position}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """``input.unflatten(dim, unflattened_size)``."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Axis and sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
