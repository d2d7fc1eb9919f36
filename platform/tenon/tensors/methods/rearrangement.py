"""Copies of the elements at other positions: ``repeat``, ``tile``, ``flip``, ``roll``, ``tril``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.engine.op import table as f
from tenon.errors import ShapeError
from tenon.kernels.shapes import normalize_axis
from tenon.kernels.whole_arrays import beside
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.movement import sizes

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Axes, SizeLike


class Rearrangement(Family):
    """Methods that copy the elements to other positions: they repeat, reverse or shift them, or zero a
    triangle.

    A negative ``dim`` counts from the last axis, in all of them; a ``dim`` that does not exist raises
    AxisError.
    """

    __slots__ = ()

    def repeat(self, *args: SizeLike, repeats: SizeLike | None = None) -> Tensor:
        """Return a copy in which this tensor is repeated ``repeats[i]`` times along axis ``i``.

        More counts than axes add axes in front; fewer are a ShapeError, and so is a negative count.
        """
        counts = sizes(args if repeats is None else (repeats,))
        if len(counts) < self.raw.ndim:
            raise ShapeError(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor "
                f"(repeats {list(counts)}, shape {list(self.raw.shape)})"
            )
        if any(c < 0 for c in counts):
            raise ShapeError(f"Trying to create tensor with negative dimension: repeats {list(counts)}")
        shape = (1,) * (len(counts) - self.raw.ndim) + tuple(self.raw.shape)
        paired = tuple(x for c, s in zip(counts, shape, strict=True) for x in (1, s))
        spread = tuple(x for c, s in zip(counts, shape, strict=True) for x in (c, s))
        final = tuple(c * s for c, s in zip(counts, shape, strict=True))
        return f.reshape(f.expand(f.reshape(self, shape=paired), shape=spread), shape=final).clone()

    @as_function()
    def tile(self, *args: SizeLike, dims: SizeLike | None = None) -> Tensor:
        """Return a copy in which this tensor is repeated ``dims[i]`` times along axis ``i``: NumPy's
        ``tile``.

        Fewer counts than axes apply to the last axes, more add axes in front.
        """
        counts = sizes(args if dims is None else (dims,))
        return self.repeat((1,) * (self.raw.ndim - len(counts)) + counts)

    @as_function()
    def repeat_interleave(
        self, repeats: Tensor | int, dim: int | None = None, *, output_size: int | None = None
    ) -> Tensor:
        """Return a copy in which each element, or slice along ``dim``, is repeated ``repeats`` times in a
        row.

        ``repeats`` is a count for all, or an integer tensor with one per slice; raises ShapeError if their
        number differs. Without ``dim``, the tensor is flattened first.

        >>> import tenon
        >>> tenon.tensor([7, 8]).repeat_interleave(tenon.tensor([1, 3]))
        tensor([7, 8, 8, 8])
        """
        from tenon.tensors.creation.repeat_indices import repeat_indices

        x: Tensor = self.reshape(-1) if dim is None else self
        axis = 0 if dim is None else normalize_axis(dim, self.raw.ndim)
        return x.index_select(axis, beside(x, repeat_indices(x, repeats, axis)))

    @as_function()
    def narrow_copy(self, dim: int, start: Tensor | int, length: int) -> Tensor:
        """Return a copy of the part that ``narrow`` returns as a view."""
        return self.narrow(dim, start, length).clone()

    @as_function()
    def flip(self, *args: SizeLike, dims: SizeLike | None = None) -> Tensor:
        """Return a copy with the order of the elements reversed along each of ``dims``.

        Raises ShapeError if an axis is named twice.
        """
        if not args and dims is None:
            raise TypeError('flip() missing 1 required positional arguments: "dims"')
        listed = sizes(args if dims is None else (dims,))
        axes = tuple(normalize_axis(d, self.raw.ndim) for d in listed)
        for axis in axes:
            if axes.count(axis) > 1:
                raise ShapeError(f"dim {axis} appears multiple times in the list of dims {list(listed)}")
        return f.flip(self, axes=axes if self.raw.ndim else ())

    @as_function()
    def fliplr(self) -> Tensor:
        """Return a copy with axis 1 reversed: the columns of a matrix, from left to right.

        Raises ShapeError if there are fewer than two axes.
        """
        if self.raw.ndim < 2:
            raise ShapeError(f"Input must be >= 2-d. (got shape {list(self.raw.shape)})")
        return self.flip(1)

    @as_function()
    def flipud(self) -> Tensor:
        """Return a copy with axis 0 reversed: the rows of a matrix, up to down. Raises ShapeError for a 0-d
        tensor."""
        if not self.raw.ndim:
            raise ShapeError("Input must be >= 1-d. (got shape [])")
        return self.flip(0)

    @as_function()
    def roll(self, shifts: int | Sequence[int], dims: Axes = None) -> Tensor:
        """Return a copy with the elements shifted by ``shifts`` along ``dims``; those that leave one end
        enter at the other.

        Without ``dims``, the flattened tensor is shifted and takes its shape again. Raises ShapeError unless
        there are as many shifts as axes.
        """
        shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        if not shifts:
            raise ShapeError("`shifts` required")
        if dims is None:
            if len(shifts) > 1:
                raise ShapeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
            return f.roll(self.reshape(-1), shifts=shifts, axes=(0,)).reshape(self.raw.shape)
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        if len(dims) != len(shifts):
            raise ShapeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
        return f.roll(self, shifts=shifts, axes=tuple(normalize_axis(d, self.raw.ndim) for d in dims))

    @as_function()
    def tril(self, diagonal: int = 0) -> Tensor:
        """Return a copy of each matrix of the last two axes with the elements above a diagonal set to 0.

        ``diagonal`` 0 is the main diagonal, positive numbers are diagonals above it. Raises ShapeError if
        there are fewer than two axes.
        """
        return f.tril(self, k=operator.index(diagonal))

    @as_function()
    def triu(self, diagonal: int = 0) -> Tensor:
        """Return a copy of each matrix of the last two axes with the elements below a diagonal set to 0.

        ``diagonal`` 0 is the main diagonal, positive numbers are diagonals above it. Raises ShapeError if
        there are fewer than two axes.
        """
        return f.triu(self, k=operator.index(diagonal))

    tril_ = through_method("tril")
    triu_ = through_method("triu")
