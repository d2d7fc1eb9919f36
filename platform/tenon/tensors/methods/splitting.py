"""Cutting into parts, most of them views: ``split``, ``chunk``, ``tensor_split``, ``unbind``, ``hsplit``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, ShapeError
from tenon.kernels.shapes import AxisError, normalize_axis
from tenon.kernels.whole_arrays import gathered
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: Parts that a call may ask for: their list alone takes tens of gigabytes.
_MOST_PARTS = 1 << 32


class Splitting(Family):
    """Methods that return a tuple of parts along an axis, most of them views.

    A negative ``dim`` counts from the last axis; one that does not exist raises AxisError.
    """

    __slots__ = ()

    def _cut(self, name: str, dim: int) -> int:
        """Return the axis ``dim``; ShapeError for a 0-d tensor."""
        if not self.raw.ndim:
            raise ShapeError(f"{name} expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
        return normalize_axis(dim, self.raw.ndim)

    def split(self, split_size: int | list[int] | tuple[int, ...], dim: int = 0) -> tuple[Tensor, ...]:
        """Return views of consecutive parts along ``dim``.

        ``split_size`` is the size of each part (the last may be smaller), or a list with the size of each.
        Raises ShapeError if sizes are negative or do not add up to the size of the axis.
        """
        axis = self._cut("split", dim)
        total = self.raw.shape[axis]
        if WATCHERS.requested_sizes is not None:
            split_size = WATCHERS.requested_sizes("cut", (self.shape[axis],), split_size)
        if isinstance(split_size, (list, tuple)):
            parts = tuple(s if s.__class__ is int else index(s) for s in split_size)
            if sum(parts) != total or min(parts, default=0) < 0:
                raise ShapeError(
                    f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at"
                    f" dimension {dim}), but got split_sizes={list(parts)}"
                )
        else:
            step = index(split_size)
            if step < 0 or (step == 0 and total):
                raise ShapeError(f"split expects split_size be non-negative, but got split_size={step}")
            parts = tuple(min(step, total - i) for i in range(0, total, step)) if total else (0,)
        return f.split(self, sizes=parts, axis=axis)

    @as_function(out="none")
    def split_with_sizes(self, split_sizes: Iterable[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Return views of consecutive parts along ``dim``, of the sizes ``split_sizes``; see ``split``."""
        return self.split(list(split_sizes), dim)

    @as_function()
    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """Return views of at most ``chunks`` parts along ``dim``, of equal size except for the last, which
        may be smaller.

        There are fewer where rounding up the size leaves none: 5 elements in 4 chunks are 2, 2 and 1. Raises
        ShapeError if ``chunks`` is not positive.
        """
        if chunks <= 0:
            raise ShapeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
        axis = self._cut("chunk", dim)
        total = self.raw.shape[axis]
        if total == 0:
            return f.split(self, sizes=(0,) * chunks, axis=axis)
        if WATCHERS.requested_sizes is not None:
            sizes = WATCHERS.requested_sizes("chunks", (self.shape[axis],), chunks)
            return f.split(self, sizes=tuple(sizes), axis=axis)
        return self.split(-(-total // chunks), axis)

    @as_function()
    def unsafe_split(self, split_size: int | list[int] | tuple[int, ...], dim: int = 0) -> tuple[Tensor, ...]:
        """Return copies of the parts that ``split`` returns as views, so that each may be modified in
        place."""
        return tuple(part.clone() for part in self.split(split_size, dim))

    @as_function()
    def unsafe_split_with_sizes(self, split_sizes: Iterable[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Return copies of the parts that ``split_with_sizes`` returns as views."""
        return self.unsafe_split(list(split_sizes), dim)

    @as_function()
    def unsafe_chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """Return copies of the parts that ``chunk`` returns as views."""
        return tuple(part.clone() for part in self.chunk(chunks, dim))

    @as_function()
    def tensor_split(
        self, indices_or_sections: Tensor | int | Sequence[int], dim: int = 0
    ) -> tuple[Tensor, ...]:
        """Return views of parts along ``dim``: an integer is their number, indices are where each but the
        first begins.

        The sizes of a given number of parts differ by one at most, the larger first. Integer and indices may
        be int64 tensors of at most one axis (other tensors raise DTypeError or ShapeError). Raises ShapeError
        if the integer is not positive.

        >>> import tenon
        >>> [len(part) for part in tenon.arange(5).tensor_split([1, 3])]
        [1, 2, 2]
        """
        axis = self._cut("tensor_split", dim)
        total = self.raw.shape[axis]
        if isinstance(indices_or_sections, Value):
            if indices_or_sections.raw.dtype != np.int64:
                raise DTypeError(
                    "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                    f"{scalar_name(FROM_NUMPY[indices_or_sections.raw.dtype])}. Use .long()."
                )
            if indices_or_sections.raw.ndim > 1:
                raise ShapeError(
                    "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or"
                    f" one-dimensional tensor, but got a tensor with {indices_or_sections.raw.ndim} dims"
                )
            indices_or_sections = gathered(indices_or_sections).tolist()
        if isinstance(indices_or_sections, int):
            if indices_or_sections <= 0:
                raise ShapeError(f"number of sections must be larger than 0, got {indices_or_sections}")
            if indices_or_sections > _MOST_PARTS:
                raise ShapeError(f"number of sections must be at most 2**32, got {indices_or_sections}")
            size, count = self.shape[axis], indices_or_sections
            return self.split([(size + count - 1 - i) // count for i in range(count)], axis)
        cuts = [0, *(min(max(i + total if i < 0 else i, 0), total) for i in indices_or_sections), total]
        return tuple(self.narrow(axis, a, max(b - a, 0)) for a, b in itertools.pairwise(cuts))

    @as_function()
    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """Return views of the slices along ``dim``, without that axis. Raises AxisError for a 0-d tensor."""
        if not self.raw.ndim:
            raise AxisError("Dimension specified as 0 but tensor has no dimensions")
        return f.unbind(self, axis=normalize_axis(dim, self.raw.ndim))

    @as_function()
    def hsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
        """Return views of parts along axis 1, or axis 0 of a vector: equal ones, or split at the given
        indices.

        Raises ShapeError for a 0-d tensor, and if the axis is not divisible by the number of parts.
        """
        if not self.raw.ndim:
            raise ShapeError(
                "torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 "
                "dimensions!"
            )
        return _even(self, "hsplit", indices_or_sections, 0 if self.raw.ndim == 1 else 1)

    @as_function()
    def vsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
        """Return views of parts along axis 0: equal ones, or split at the given indices.

        Raises ShapeError for fewer than two axes, and if the axis is not divisible by the number of parts.
        """
        if self.raw.ndim < 2:
            raise ShapeError(
                "torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with "
                f"{self.raw.ndim} dimensions!"
            )
        return _even(self, "vsplit", indices_or_sections, 0)

    @as_function()
    def dsplit(self, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
        """Return views of parts along axis 2: equal ones, or split at the given indices.

        Raises ShapeError for fewer than three axes, and if the axis is not divisible by the number of parts.
        """
        if self.raw.ndim < 3:
            raise ShapeError(
                "torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with "
                f"{self.raw.ndim} dimensions!"
            )
        return _even(self, "dsplit", indices_or_sections, 2)


def _even(x: Tensor, name: str, indices_or_sections: int | Sequence[int], axis: int) -> tuple[Tensor, ...]:
    """Split ``axis`` at the given indices, or into as many equal parts; ShapeError if the size is not
    divisible."""
    size = x.raw.shape[axis]
    if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or size % indices_or_sections):
        raise ShapeError(
            f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension {size} "
            "is not divisible by "
            f"the split_size {indices_or_sections}!"
        )
    return x.tensor_split(indices_or_sections, axis)
