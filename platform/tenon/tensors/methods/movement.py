"""Shapes and views: ``reshape``, ``permute``, ``squeeze``, ``expand``, ``narrow``, ``unfold``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ShapeError
from tenon.kernels.shapes import AxisError, infer_reshape, normalize_axes, normalize_axis
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.size import Size

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Axes, SizeLike


def sizes(args: tuple[Any, ...]) -> tuple[int, ...]:  # of SizeLike: single sizes, or one sequence
    """Return ``(2, 3)`` for the arguments of ``f(2, 3)``, ``f((2, 3))`` and ``f(Size((2, 3)))``."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    for a in args:
        if a.__class__ is not int:
            return tuple(operator.index(a) for a in args)
    return args


def _inferred(raw: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` with its -1 replaced. Sizes that do not fit are an error of the op's shape rule."""
    if WATCHERS.requested_sizes is not None:
        shape = WATCHERS.requested_sizes("shape", raw.shape, shape)
    return infer_reshape(raw.shape, shape) if shape and min(shape) < 0 else shape


def _inplace_view(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: object) -> Tensor:
        from tenon.tensors.inplace import turn_into_view

        return turn_into_view(self, name, *args)

    method.__name__, method.__doc__ = (
        f"{name}_",
        f"Turn this tensor into the view that ``{name}`` returns, and return it.",
    )
    return method


class Movement(Family):
    """Methods that return the same elements in another shape or with the axes in another order.

    A negative ``dim`` counts from the last axis, in all of them; a ``dim`` that does not exist raises
    AxisError.
    """

    __slots__ = ()

    def size(self, dim: int | None = None) -> Any:  # an int with ``dim``, else Size
        """The shape as a ``Size``; with ``dim``, the size of that axis as an int."""
        if dim is None:
            return tuple.__new__(Size, self.raw.shape)  # integers: nothing to check
        return self.raw.shape[normalize_axis(dim, self.raw.ndim)]

    def dim(self) -> int:
        """The number of axes."""
        return int(self.raw.ndim)

    ndimension = dim

    @as_function(out="none")
    def numel(self) -> int:
        """The number of elements."""
        return int(self.raw.size)

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:  # an int with ``dim``, else a tuple of them
        """The distance in memory, in elements, between neighbours along each axis, as a tuple; with ``dim``,
        along that axis, as an int."""
        itemsize = self.raw.dtype.itemsize
        steps = [s // itemsize for s in self.raw.strides]
        shape, empty = self.raw.shape, 0 in self.raw.shape
        # NumPy gives stride 0 to new axes, and to all axes of an empty array.
        for axis in reversed(range(len(steps))):
            if not steps[axis] and (empty or shape[axis] == 1):
                steps[axis] = max(shape[axis + 1], 1) * steps[axis + 1] if axis + 1 < len(steps) else 1
        return tuple(steps) if dim is None else steps[normalize_axis(dim, self.raw.ndim)]

    @as_function()
    def reshape(self, *args: SizeLike, shape: SizeLike | None = None) -> Tensor:
        """Return a tensor of the given shape with the same elements in row-major order.

        One size may be -1: it is computed from the others. The result is a view if the strides allow it,
        else a copy. Raises ShapeError if the shape has another number of elements.

        >>> import tenon
        >>> tenon.arange(6).reshape(2, -1).shape
        torch.Size([2, 3])
        """
        return f.reshape(self, shape=_inferred(self.raw, sizes(args if shape is None else (shape,))))

    def view(self, *args: Any, size: SizeLike | None = None) -> Tensor:  # sizes, or one dtype
        """Return a view of this tensor's memory in the given shape, or with elements of the given dtype.

        One size may be -1: it is computed from the others. Raises ShapeError if the shape has another number
        of elements, ViewError if the elements cannot be viewed in it without a copy: ``reshape`` copies
        them. With a dtype of another width, the size of the last axis changes in proportion; raises
        ViewError if it is not divisible.
        """
        if len(args) == 1 and not isinstance(args[0], (int, tuple, list)) and hasattr(args[0], "numpy"):
            from tenon.tensors.dtype_views import view_dtype

            return view_dtype(self, args[0])
        return f.view(self, shape=_inferred(self.raw, sizes(args if size is None else (size,))))

    def reshape_as(self, other: Tensor) -> Tensor:
        """Return ``self.reshape(other.shape)``."""
        return self.reshape(other.raw.shape)

    def view_as(self, other: Tensor) -> Tensor:
        """Return ``self.view(other.shape)``."""
        return self.view(other.raw.shape)

    @as_function()
    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Return a tensor in which the axes from ``start_dim`` to ``end_dim``, both included, are merged
        into one.

        A view where possible; a 0-d tensor becomes a vector of one element. Raises ShapeError if
        ``start_dim`` comes after ``end_dim``.
        """
        shape = self.raw.shape
        start, end = normalize_axis(start_dim, len(shape)), normalize_axis(end_dim, len(shape))
        if not shape:
            return self.reshape(1)
        if start > end:
            raise ShapeError(
                f"flatten() has invalid args: start_dim cannot come after end_dim: {start_dim} and {end_dim}"
            )
        joined = 1
        for s in shape[start : end + 1]:
            joined *= s
        return self if start == end else f.reshape(self, shape=(*shape[:start], joined, *shape[end + 1 :]))

    @as_function()
    def ravel(self) -> Tensor:
        """Return a contiguous vector of all elements in row-major order; a view if this tensor is
        contiguous."""
        return self.contiguous().reshape(-1)

    @as_function()
    def unflatten(self, dim: int, sizes: Sequence[int]) -> Tensor:
        """Return a tensor in which axis ``dim`` is split into axes of the given ``sizes``.

        One size may be -1: it is computed from the others. Raises ShapeError if the product of the sizes is
        not the size of the axis.
        """
        axis = normalize_axis(dim, self.raw.ndim)
        shape = self.raw.shape
        if WATCHERS.requested_sizes is not None:
            last = axis - len(shape) + 1
            target = WATCHERS.requested_sizes("shape", shape, (*shape[:axis], *sizes, *shape[axis + 1 :]))
            sizes = target[axis : len(target) + last]
        inner = infer_reshape((shape[axis],), sizes)
        return f.reshape(self, shape=(*shape[:axis], *inner, *shape[axis + 1 :]))

    @as_function()
    def permute(self, *args: SizeLike, dims: SizeLike | None = None) -> Tensor:
        """Return a view with the axes in the order ``dims``: axis ``i`` of the result is axis ``dims[i]`` of
        this tensor.

        Raises ShapeError unless ``dims`` names every axis exactly once.
        """
        axes = tuple(normalize_axis(d, self.raw.ndim) for d in sizes(args if dims is None else (dims,)))
        if len(axes) != self.raw.ndim or len(set(axes)) != len(axes):
            raise ShapeError(
                "permute(sparse_coo): number of dimensions in the tensor input does not match the length of"
                f" the desired ordering of dimensions i.e. input.dim() = {self.raw.ndim} is not equal to"
                f" len(dims) = {len(axes)}"
                if len(axes) != self.raw.ndim
                else f"permute(): duplicate dims are not allowed, got {axes}."
            )
        return f.permute(self, axes=axes)

    @as_function("swapdims")
    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Return a view with the axes ``dim0`` and ``dim1`` exchanged."""
        rank = self.raw.ndim
        axis0, axis1 = normalize_axis(dim0, rank), normalize_axis(dim1, rank)
        return f.transpose(self, axis0=axis0, axis1=axis1) if rank else f.alias(self)

    swapdims = transpose

    @as_function()
    def swapaxes(self, axis0: int, axis1: int) -> Tensor:
        """Return a view with two axes exchanged: NumPy's name of ``transpose``."""
        return self.transpose(axis0, axis1)

    @as_function()
    def t(self) -> Tensor:
        """Return the transposed matrix as a view; a view of the whole tensor if it has fewer than two axes.

        Raises ShapeError if it has more than two.
        """
        if self.raw.ndim > 2:
            raise ShapeError(f"t() expects a tensor with <= 2 dimensions, but self is {self.raw.ndim}D")
        return self.transpose(0, 1) if self.raw.ndim == 2 else f.alias(self)

    @property
    def T(self) -> Tensor:
        """A view with the axes in reverse order: of a matrix, its transpose."""
        return f.permute(self, axes=tuple(range(self.raw.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        """A view with the last two axes exchanged: the transpose of each matrix of a batch.

        A 0-d tensor is unchanged; raises ShapeError for a vector.
        """
        return f.alias(self) if not self.raw.ndim else self._matrices("mT").transpose(-2, -1)

    def _matrices(self, name: str) -> Tensor:
        """Return the tensor; ShapeError if it is 1-d."""
        if self.raw.ndim == 1:
            raise ShapeError(
                f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
            )
        return self

    @as_function("moveaxis")
    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """Return a view in which each axis of ``source`` is at the position in ``destination``; the others
        keep their order.

        Raises ShapeError if the two have different lengths or name an axis twice.
        """
        rank = self.raw.ndim
        moved, targets = (
            [normalize_axis(d, rank) for d in ((dims,) if isinstance(dims, int) else dims)]
            for dims in (source, destination)
        )
        if len(moved) != len(targets):
            raise ShapeError(
                f"movedim: Invalid source or destination dims: source ({moved} dims) should contain the same"
                f" number of dims as destination ({targets} dims)"
            )
        for name, dims in (("source", moved), ("destination", targets)):
            if rank and len(set(dims)) != len(dims):
                raise ShapeError(f"movedim: repeated dim in `{name}` ({dims})")
        if not rank:
            return f.alias(self)
        order = [a for a in range(rank) if a not in moved]
        for position, axis in sorted(zip(targets, moved, strict=True)):
            order.insert(position, axis)
        return f.permute(self, axes=tuple(order))

    moveaxis = movedim

    @as_function()
    def unsqueeze(self, dim: int) -> Tensor:
        """Return a view with a new axis of size 1 at position ``dim``, from ``-rank - 1`` to ``rank``."""
        axis = normalize_axis(dim, self.raw.ndim, extra=1)
        shape = self.raw.shape
        return f.unsqueeze(self, shape=(*shape[:axis], 1, *shape[axis:]))

    @as_function()
    def squeeze(self, dim: Axes = None) -> Tensor:
        """Return a view without the axes of size 1.

        ``dim``, an axis or several, limits this to those axes; any of them that has another size stays.
        """
        shape = self.raw.shape
        none = dim is not None and not isinstance(dim, int) and not len(dim)
        axes = () if none else normalize_axes(dim, len(shape))
        remaining = tuple(s for i, s in enumerate(shape) if s != 1 or i not in axes)
        return f.squeeze(self, shape=remaining, explicit=dim is not None)

    def expand(self, *args: SizeLike, size: SizeLike | None = None) -> Tensor:
        """Return a view of the given shape in which axes of size 1 are repeated without copying.

        A size of -1 leaves an axis unchanged; further sizes in front add axes. Raises ShapeError if an axis
        whose size is not 1 would change, or if there are fewer sizes than axes.
        """
        target = sizes(args if size is None else (size,))
        lead = len(target) - self.raw.ndim
        if lead < 0:
            raise ShapeError(
                f"expand(torch.FloatTensor{{{list(self.raw.shape)}}}, size={list(target)}): the number of"
                f" sizes provided ({len(target)}) must be greater or equal to the number of dimensions in the"
                f" tensor ({self.raw.ndim})"
            )
        if any(s == -1 for s in target[:lead]):
            raise ShapeError(
                "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension:"
                f" {list(target)}"
            )
        return f.expand(
            self, shape=tuple(self.raw.shape[i - lead] if s == -1 else s for i, s in enumerate(target))
        )

    def expand_as(self, other: Tensor) -> Tensor:
        """Return ``self.expand(other.shape)``."""
        return self.expand(other.raw.shape)

    @as_function()
    def broadcast_to(self, size: SizeLike) -> Tensor:
        """Return a view broadcast to the shape ``size``: the same as ``self.expand(size)``."""
        return self.expand(size)

    @as_function()
    def narrow(self, dim: int, start: Tensor | int, length: int) -> Tensor:
        """Return a view of ``length`` elements along ``dim``, beginning at ``start``.

        A negative ``start`` counts from the end; it may be a 0-d integer tensor. Raises AxisError if
        ``start`` is out of range or this tensor is 0-d, ShapeError if the part reaches beyond the end.
        """
        if not self.raw.ndim:
            raise AxisError("narrow() cannot be applied to a 0-dim tensor.")
        axis = normalize_axis(dim, self.raw.ndim)
        size = self.raw.shape[axis]
        if isinstance(start, Value) and (start.raw.ndim or start.raw.dtype.kind not in "iu"):
            raise ShapeError("start must be an 0-dim integral Tensor.")
        start = int(start) if isinstance(start, Value) else operator.index(start)
        if WATCHERS.requested_sizes is not None:
            cut = slice(start, None if start + length == 0 > start else start + length)
            changed = WATCHERS.requested_sizes("slice", (size, axis, self.raw.ndim), cut)
            if changed is not cut:
                start, length = changed.start, changed.stop - changed.start
        if not -size <= start <= size:
            raise AxisError(
                f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
            )
        start = start + size if start < 0 else start
        if length < 0 or start < 0 or start + length > size:
            raise ShapeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
        return f.slice_axis(self, axis=axis, start=start, stop=start + length)

    def unfold(self, dimension: int, size: int, step: int) -> Tensor:
        """Return a view of the windows of ``size`` elements along ``dimension``, ``step`` elements apart.

        The windows lie along a new last axis; the size of ``dimension`` becomes ``(n - size) // step + 1``.
        Raises ShapeError if ``size`` is larger than the axis or ``step`` is not positive.

        >>> import tenon
        >>> tenon.arange(5).unfold(0, 3, 2)
        tensor([[0, 1, 2],
                [2, 3, 4]])
        """
        axis = normalize_axis(dimension, self.raw.ndim)
        length = self.raw.shape[axis] if self.raw.ndim else 1
        if size > length:
            raise ShapeError(
                f"maximum size for tensor at dimension {dimension} is {length} but size is {size}"
            )
        return f.unfold_axis(self, axis=axis, size=size, step=step)

    def atleast(self, rank: int) -> Tensor:
        """Return a view with axes of size 1 in front, so that it has at least ``rank`` axes."""
        x: Tensor = self
        while x.raw.ndim < rank:
            x = x.unsqueeze(0)
        return x

    squeeze_ = _inplace_view("squeeze")
    unsqueeze_ = _inplace_view("unsqueeze")
    transpose_ = _inplace_view("transpose")
    t_ = _inplace_view("t")
    swapaxes_ = _inplace_view("swapaxes")
    swapdims_ = _inplace_view("swapdims")
