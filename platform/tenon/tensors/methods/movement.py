"""Shapes and orders: ``reshape``, ``permute``, ``squeeze``, ``expand``, ``split``, ``flip``."""

from __future__ import annotations

import operator
from typing import Any

from tenon.engine.aval import AxisError, infer_reshape, normalize_axes, normalize_axis
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ShapeError
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.size import Size


def sizes(args: tuple[Any, ...]) -> tuple[int, ...]:
    """``(2, 3)`` from ``f(2, 3)``, ``f((2, 3))`` or ``f(Size)``."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    for a in args:
        if a.__class__ is not int:
            return tuple(operator.index(a) for a in args)
    return args


def _known(raw: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` without its -1. Sizes that do not fit are left to the op, whose shape rule explains them."""
    if WATCHERS.requested_sizes is not None:
        shape = WATCHERS.requested_sizes("shape", raw.shape, shape)
    return infer_reshape(raw.shape, shape) if shape and min(shape) < 0 else shape


def _inplace_view(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        from tenon.tensors.inplace import become

        return become(self, name, *args)

    method.__name__, method.__doc__ = (
        f"{name}_",
        f"In-place form of ``{name}``: this tensor becomes that view.",
    )
    return method


class Movement:
    """The same elements under another shape or order."""

    __slots__ = ()
    raw: Any

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or one."""
        if dim is None:
            return tuple.__new__(Size, self.raw.shape)  # integers: nothing to check
        return self.raw.shape[normalize_axis(dim, self.raw.ndim)]

    def dim(self) -> int:
        """Number of axes."""
        return int(self.raw.ndim)

    ndimension = dim

    @as_function(out="none")
    def numel(self) -> int:
        """Number of elements."""
        return int(self.raw.size)

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours along each axis (or one), in elements."""
        itemsize = self.raw.dtype.itemsize
        steps = [s // itemsize for s in self.raw.strides]
        shape, empty = self.raw.shape, 0 in self.raw.shape
        for axis in reversed(
            range(len(steps))
        ):  # NumPy gives a new axis, and each of an empty array, the step 0
            if not steps[axis] and (empty or shape[axis] == 1):
                steps[axis] = max(shape[axis + 1], 1) * steps[axis + 1] if axis + 1 < len(steps) else 1
        return tuple(steps) if dim is None else steps[normalize_axis(dim, self.raw.ndim)]

    @as_function()
    def reshape(self, *args: Any, shape: Any = None) -> Any:
        """The elements under another shape; a view where possible."""
        return f.reshape(self, shape=_known(self.raw, sizes(args if shape is None else (shape,))))

    def view(self, *args: Any, size: Any = None) -> Any:
        """The same memory under another shape (error if it needs a copy) or dtype."""
        if len(args) == 1 and not isinstance(args[0], (int, tuple, list)) and hasattr(args[0], "numpy"):
            from tenon.tensors.reread import view_dtype

            return view_dtype(self, args[0])
        return f.view(self, shape=_known(self.raw, sizes(args if size is None else (size,))))

    def reshape_as(self, other: Any) -> Any:
        """Reshaped to ``other``'s shape."""
        return self.reshape(other.raw.shape)

    def view_as(self, other: Any) -> Any:
        """Viewed in ``other``'s shape."""
        return self.view(other.raw.shape)

    @as_function()
    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Axes ``start_dim..end_dim`` joined into one."""
        shape = self.raw.shape
        start, end = normalize_axis(start_dim, len(shape)), normalize_axis(end_dim, len(shape))
        if not shape:
            return self.reshape(1)
        if start > end:
            raise ShapeError("flatten() has invalid args: start_dim cannot come after end_dim")
        joined = 1
        for s in shape[start : end + 1]:
            joined *= s
        return self if start == end else f.reshape(self, shape=(*shape[:start], joined, *shape[end + 1 :]))

    @as_function()
    def ravel(self) -> Any:
        """All axes joined into one, whose elements lie side by side."""
        return self.contiguous().reshape(-1)  # type: ignore[attr-defined]

    @as_function()
    def unflatten(self, dim: int, sizes: Any) -> Any:
        """Axis ``dim`` split into ``sizes`` (one may be -1)."""
        axis = normalize_axis(dim, self.raw.ndim)
        shape = self.raw.shape
        if WATCHERS.requested_sizes is not None:
            last = axis - len(shape) + 1
            whole = WATCHERS.requested_sizes("shape", shape, (*shape[:axis], *sizes, *shape[axis + 1 :]))
            sizes = whole[axis : len(whole) + last]
        inner = infer_reshape((shape[axis],), sizes)
        return f.reshape(self, shape=(*shape[:axis], *inner, *shape[axis + 1 :]))

    @as_function()
    def permute(self, *args: Any, dims: Any = None) -> Any:
        """Axes in the given order."""
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
    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two axes exchanged."""
        rank = self.raw.ndim
        axis0, axis1 = normalize_axis(dim0, rank), normalize_axis(dim1, rank)
        return f.transpose(self, axis0=axis0, axis1=axis1) if rank else f.alias(self)

    swapdims = transpose

    @as_function()
    def swapaxes(self, axis0: int, axis1: int) -> Any:
        """As ``transpose``."""
        return self.transpose(axis0, axis1)

    @as_function()
    def t(self) -> Any:
        """A matrix transposed; 0-d and 1-d tensors as they are."""
        if self.raw.ndim > 2:
            raise ShapeError(f"t() expects a tensor with <= 2 dimensions, but self is {self.raw.ndim}D")
        return self.transpose(0, 1) if self.raw.ndim == 2 else f.alias(self)

    @property
    def T(self) -> Any:
        """All axes reversed."""
        return f.permute(self, axes=tuple(range(self.raw.ndim))[::-1])

    @property
    def mT(self) -> Any:
        """The last two axes exchanged; a 0-d tensor as it is."""
        return f.alias(self) if not self.raw.ndim else self._matrices("mT").transpose(-2, -1)

    def _matrices(self, name: str) -> Any:
        """Itself, if it has two axes or none."""
        if self.raw.ndim == 1:
            raise ShapeError(
                f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
            )
        return self

    @as_function("moveaxis")
    def movedim(self, source: Any, destination: Any) -> Any:
        """Axes moved to new places."""
        rank = self.raw.ndim
        source, destination = (
            [normalize_axis(d, rank) for d in ((dims,) if isinstance(dims, int) else dims)]
            for dims in (source, destination)
        )
        if len(source) != len(destination):
            raise ShapeError(
                f"movedim: Invalid source or destination dims: source ({source} dims) should contain the same"
                f" number of dims as destination ({destination} dims)"
            )
        for name, dims in (("source", source), ("destination", destination)):
            if rank and len(set(dims)) != len(dims):
                raise ShapeError(f"movedim: repeated dim in `{name}` ({dims})")
        if not rank:
            return f.alias(self)
        order = [a for a in range(rank) if a not in source]
        for place, axis in sorted(zip(destination, source, strict=True)):
            order.insert(place, axis)
        return f.permute(self, axes=tuple(order))

    moveaxis = movedim

    @as_function()
    def unsqueeze(self, dim: int) -> Any:
        """A new axis of size 1 at ``dim``."""
        axis = normalize_axis(dim, self.raw.ndim, extra=1)
        shape = self.raw.shape
        return f.unsqueeze(self, shape=(*shape[:axis], 1, *shape[axis:]))

    @as_function()
    def squeeze(self, dim: Any = None) -> Any:
        """Axes of size 1 removed: all, or those named (others are left)."""
        shape = self.raw.shape
        none = dim is not None and not isinstance(dim, int) and not len(dim)
        axes = () if none else normalize_axes(dim, len(shape))
        kept = tuple(s for i, s in enumerate(shape) if s != 1 or i not in axes)
        return f.squeeze(self, shape=kept, given=dim is not None)

    def expand(self, *args: Any, size: Any = None) -> Any:
        """Size-1 axes repeated without copying; -1 keeps a size."""
        wanted = sizes(args if size is None else (size,))
        lead = len(wanted) - self.raw.ndim
        if lead < 0:
            raise ShapeError(
                f"expand(torch.FloatTensor{{{list(self.raw.shape)}}}, size={list(wanted)}): the number of"
                f" sizes provided ({len(wanted)}) must be greater or equal to the number of dimensions in the"
                f" tensor ({self.raw.ndim})"
            )
        if any(s == -1 for s in wanted[:lead]):
            raise ShapeError(
                "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension:"
                f" {list(wanted)}"
            )
        return f.expand(
            self, shape=tuple(self.raw.shape[i - lead] if s == -1 else s for i, s in enumerate(wanted))
        )

    def expand_as(self, other: Any) -> Any:
        """Expanded to ``other``'s shape."""
        return self.expand(other.raw.shape)

    @as_function()
    def broadcast_to(self, size: Any) -> Any:
        """Expanded to ``size``."""
        return self.expand(size)

    def repeat(self, *args: Any, repeats: Any = None) -> Any:
        """Copied ``repeats`` times along each axis (leading axes are added)."""
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
    def tile(self, *args: Any, dims: Any = None) -> Any:
        """As NumPy's tile."""
        counts = sizes(args if dims is None else (dims,))
        return self.repeat((1,) * (self.raw.ndim - len(counts)) + counts)

    @as_function()
    def repeat_interleave(
        self, repeats: Any, dim: int | None = None, *, output_size: int | None = None
    ) -> Any:
        """Each element repeated ``repeats`` times along ``dim`` (flattened if None)."""
        from tenon.tensors.creation.repeats import repeat_indices

        x: Any = self.reshape(-1) if dim is None else self
        axis = 0 if dim is None else normalize_axis(dim, self.raw.ndim)
        return x.index_select(axis, repeat_indices(x, repeats, axis))

    @as_function()
    def narrow(self, dim: int, start: Any, length: int) -> Any:
        """``length`` elements from ``start`` along ``dim``: a view."""
        if not self.raw.ndim:
            raise AxisError("narrow() cannot be applied to a 0-dim tensor.")
        axis = normalize_axis(dim, self.raw.ndim)
        size = self.raw.shape[axis]
        if isinstance(start, Value) and (start.raw.ndim or start.raw.dtype.kind not in "iu"):
            raise ShapeError("start must be an 0-dim integral Tensor.")
        start = int(start)
        if WATCHERS.requested_sizes is not None:
            cut = slice(start, None if start + length == 0 > start else start + length)
            found = WATCHERS.requested_sizes("slice", (size, axis, self.raw.ndim), cut)
            if found is not cut:
                start, length = found.start, found.stop - found.start
        if not -size <= start <= size:
            raise AxisError(
                f"start out of range (expected to be in range of [{-size}, {size}], but got {start})"
            )
        start = start + size if start < 0 else start
        if length < 0 or start < 0 or start + length > size:
            raise ShapeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
        return f.slice_axis(self, axis=axis, start=start, stop=start + length)

    @as_function()
    def narrow_copy(self, dim: int, start: Any, length: int) -> Any:
        """As ``narrow``, but a copy."""
        return self.narrow(dim, start, length).clone()

    @as_function()
    def flip(self, *args: Any, dims: Any = None) -> Any:
        """Order reversed along ``dims``: a copy."""
        if not args and dims is None:
            raise TypeError('flip() missing 1 required positional arguments: "dims"')
        given = sizes(args if dims is None else (dims,))
        axes = tuple(normalize_axis(d, self.raw.ndim) for d in given)
        for axis in axes:
            if axes.count(axis) > 1:
                raise ShapeError(f"dim {axis} appears multiple times in the list of dims {list(given)}")
        return f.flip(self, axes=axes if self.raw.ndim else ())

    @as_function()
    def fliplr(self) -> Any:
        """Reversed along axis 1."""
        if self.raw.ndim < 2:
            raise ShapeError(f"Input must be >= 2-d. (got shape {list(self.raw.shape)})")
        return self.flip(1)

    @as_function()
    def flipud(self) -> Any:
        """Reversed along axis 0."""
        if not self.raw.ndim:
            raise ShapeError("Input must be >= 1-d. (got shape [])")
        return self.flip(0)

    @as_function()
    def roll(self, shifts: Any, dims: Any = None) -> Any:
        """Shifted cyclically along ``dims`` (over the flattened tensor if None)."""
        shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
        if not shifts:
            raise ShapeError("`shifts` required")
        if dims is None:
            return f.roll(self.reshape(-1), shifts=shifts, axes=(0,)).reshape(self.raw.shape)
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        if len(dims) != len(shifts):
            raise ShapeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
        return f.roll(self, shifts=shifts, axes=tuple(normalize_axis(d, self.raw.ndim) for d in dims))

    @as_function()
    def tril(self, diagonal: int = 0) -> Any:
        """Lower triangle."""
        return f.tril(self, k=diagonal)

    @as_function()
    def triu(self, diagonal: int = 0) -> Any:
        """Upper triangle."""
        return f.triu(self, k=diagonal)

    def unfold(self, dimension: int, size: int, step: int) -> Any:
        """Sliding windows of ``size`` along ``dimension``, as a new last axis."""
        axis = normalize_axis(dimension, self.raw.ndim)
        length = self.raw.shape[axis] if self.raw.ndim else 1
        if size > length:
            raise ShapeError(
                f"maximum size for tensor at dimension {dimension} is {length} but size is {size}"
            )
        return f.unfold_axis(self, axis=axis, size=size, step=step)

    def atleast(self, rank: int) -> Any:
        """At least ``rank`` axes."""
        x: Any = self
        while x.raw.ndim < rank:
            x = x.unsqueeze(0)
        return x

    squeeze_ = _inplace_view("squeeze")
    unsqueeze_ = _inplace_view("unsqueeze")
    transpose_ = _inplace_view("transpose")
    t_ = _inplace_view("t")
    swapaxes_ = _inplace_view("swapaxes")
    swapdims_ = _inplace_view("swapdims")
    tril_ = through_method("tril")
    triu_ = through_method("triu")
