"""Indexing: ``x[key]``, ``x[key] = v``, and methods that read or write at index tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE, UNCOUNTED
from tenon.engine.interceptor import SLOT
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from tenon.kernels.promotion import fitted
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.argument_checks import need_same_dtype
from tenon.tensors.index_parsing import (
    FULL,
    INTEGERS,
    check_index,
    drop_leading_ones,
    fills_by_mask,
    layout_of,
    least_index,
    selects_all,
    split,
)
from tenon.tensors.inplace import inplace
from tenon.tensors.masked_assignment import fill_masked
from tenon.tensors.methods.assigned_values import as_value, like_of, mismatch
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.nonzero_rows import first_nonzero
from tenon.tensors.methods.scaling import alpha_times
from tenon.tensors.precision import runs_in
from tenon.tensors.refused_writes import refuse_writing
from tenon.tensors.wrong_arguments import only_numbers, only_tensors

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.tensors.index_parsing import Key
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


class Indexing(Family):
    """Methods that read and write elements by index."""

    __slots__ = ()

    def __getitem__(self, key: Tensor | Any) -> Tensor:  # see ``index_parsing.py``
        if key.__class__ is int:  # one row: half the time of going through ``split``
            shape = self.raw.shape
            if shape and -shape[0] <= key < shape[0]:
                return f.index(self, key=(key, ...))
        basic, layout, indices = split(self, key)
        x = self if layout is not None and selects_all(basic) else f.index(self, key=basic)
        return x if layout is None else f.take(x, *indices, layout=layout)

    def __delitem__(self, key: object) -> None:
        """Raise TypeError: a tensor's shape is fixed."""
        raise TypeError(f"Tensor does not support deleting items (got {key!r}). Index the others instead.")

    # The value is a tensor, a number, or what NumPy makes an array of.
    def __setitem__(self, key: object, value: Any) -> None:
        if WATCHERS.recorder is not None and fill_masked(self, key, value):
            return
        basic, layout, indices = split(self, key)
        is_tensor = isinstance(value, Value)
        if not isinstance(value, Value):
            value = as_value(self, value)
        if layout is None:
            if isinstance(value, Value) and value.raw.ndim > 0:
                value = drop_leading_ones(value, basic, self)
            if self._backend.own is not self._backend:  # a view of a sharded axis would be a copy
                inplace(
                    f.place, self, value if isinstance(value, Value) else self.new_tensor(value), key=basic
                )
                return
            if (
                SLOT.top is None
                and not (MODE.enabled and (self._tracks() or _tracks(value)))
                and not isinstance(self.raw, Aval)
            ):
                _assign(self, basic, value)
                return
            inplace(f.copy, f.index(self, key=basic), value)
            return
        target = self if selects_all(basic) else f.index(self, key=basic)
        if not isinstance(value, Value):
            value = Value.make(self._backend.as_array(np.asarray(value, self.raw.dtype)), self._backend)
        elif value.raw.dtype != self.raw.dtype:
            if is_tensor and not fills_by_mask(key, value):
                raise mismatch(target, value, layout, indices)
            value = like_of(self, value)
        if value._backend is not self._backend:
            value = value.to(self.device)
        inplace(f.put, target, value, *indices, layout=layout)

    def _tracks(self) -> bool:
        return bool(self.requires_grad)

    @as_function()
    def select(self, dim: int, index: int) -> Tensor:
        """Return a view of the slice at ``index`` along ``dim``, without that axis."""
        axis = normalize_axis(dim, self.raw.ndim)
        return self[(FULL,) * axis + (operator.index(index),)]

    @as_function(memory="apart")
    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """Return a copy of the slices along ``dim`` at the integer vector ``index``, in its order.

        Raises IndexRangeError for a negative index, DTypeError unless ``index`` is int32 or int64.
        """
        axis = normalize_axis(dim, self.raw.ndim)
        if index.raw.ndim > 1:
            raise IndexRangeError(
                f"index_select(): Index is supposed to be a vector, but got {list(index.raw.shape)}"
            )
        if index.raw.dtype not in INTEGERS:
            raise DTypeError(
                f"index_select(): Expected dtype int32 or int64 for index, got {index.dtype}. Use .long()."
            )
        index = index.reshape(-1)
        if not self.raw.ndim:
            return self.reshape(1)[index].reshape(())
        if (least := least_index(index)) < 0:
            raise IndexRangeError(f"index out of range in self: {least} (dimension {dim})")
        return f.take(self, index, layout=layout_of(axis, self.raw.ndim))

    @as_function(out="exact", memory="apart")
    def gather(self, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
        """Return the elements at ``index`` along ``dim``, in the shape of ``index``: for ``dim`` 0 of a
        matrix, ``self[index[i, j], j]``."""
        axis = normalize_axis(operator.index(dim), self.raw.ndim)
        if not index.raw.size and index.raw.ndim != self.raw.ndim:
            return self.reshape(-1)[:0].reshape(index.raw.shape)
        return f.gather(self, index, axis=axis)

    @as_function()
    def take_along_dim(self, indices: Tensor, dim: int | None = None) -> Tensor:
        """Return the elements at ``indices`` along ``dim``, as ``gather``, after the other axes are
        broadcast.

        Without ``dim``, index the flattened tensor; the result is a vector then.
        """
        if dim is None:
            return self.reshape(-1).gather(0, indices.reshape(-1))
        if indices.raw.dtype != np.int64:
            raise DTypeError(
                "torch.take_along_dim(): dtype of indices should be Long but got "
                f"{scalar_name(FROM_NUMPY[indices.raw.dtype])}. Use .long()."
            )
        axis = normalize_axis(dim, self.raw.ndim)
        if indices.raw.ndim != self.raw.ndim:
            raise ShapeError(
                "torch.take_along_dim(): input and indices should have the same number of dimensions, but"
                f" got {self.raw.ndim} dimensions for input, and {indices.raw.ndim} dimensions for indices"
            )
        shape = [max(a, b) for a, b in zip(self.raw.shape, indices.raw.shape, strict=True)]
        own, other = list(shape), list(shape)
        own[axis], other[axis] = self.raw.shape[axis], indices.raw.shape[axis]
        indices = f.where(f.lt(indices, 0), f.add(indices, self.raw.shape[axis]), indices)
        return f.gather(f.expand(self, shape=tuple(own)), f.expand(indices, shape=tuple(other)), axis=axis)

    @as_function()
    def scatter(
        self,
        dim: int,
        index: Tensor,
        src: Tensor | Number | None = None,
        *,
        value: Number | None = None,
        reduce: str | None = None,
    ) -> Tensor:
        """Return a copy with ``src``, a tensor or number, written at ``index`` along ``dim``: for ``dim`` 0
        of a matrix ``self[index[i, j], j] = src[i, j]``. With ``reduce`` "add" or "multiply", it is combined
        with what is there."""
        if reduce not in (None, "add", "multiply"):
            raise ArgumentError(f"reduce argument must be either add or multiply, got {reduce!r}.")
        source = src if value is None else value
        only_numbers(source)
        if not isinstance(source, Value):
            source = fitted(source, self.raw.dtype)
        elif source.raw.dtype != self.raw.dtype:
            raise DTypeError("scatter(): Expected self.dtype to be equal to src.dtype")
        return f.scatter(self, index, source, axis=normalize_axis(dim, self.raw.ndim), reduce=reduce)

    @as_function()
    @runs_in("widest")
    def scatter_add(self, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """Return a copy with ``src`` added at ``index`` along ``dim``, at the positions where ``scatter``
        writes."""
        if src.raw.dtype != self.raw.dtype:
            raise DTypeError("scatter(): Expected self.dtype to be equal to src.dtype")
        return f.scatter(self, index, src, axis=normalize_axis(dim, self.raw.ndim), reduce="add")

    @as_function()
    def index_add(self, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
        """Return a copy with slice ``i`` of ``alpha * source`` along ``dim`` added to slice ``index[i]``."""
        source = self._slices(dim, source, alpha)
        return self._put_along(dim, index, source, accumulate=True)

    def index_add_(self, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
        """In-place form of ``index_add``."""
        taped = MODE.enabled and (self.requires_grad or source.requires_grad)
        if taped or not self.raw.ndim or not index.raw.ndim:
            return inplace(Indexing.index_add, self, dim, index, source, alpha=alpha)
        check_index(index)
        source = self._slices(dim, source, alpha)
        layout = layout_of(normalize_axis(dim, self.raw.ndim), self.raw.ndim)
        return inplace(f.put, self, source, index, layout=layout, accumulate=True)

    def _slices(self, dim: int, source: Tensor, alpha: Number) -> Tensor:
        """Return ``alpha * source``; ShapeError unless its shape equals this one's except along ``dim``."""
        axis = normalize_axis(dim, self.raw.ndim)
        if source.raw.ndim and (
            source.raw.ndim != self.raw.ndim or _sizes_except(self, axis) != _sizes_except(source, axis)
        ):
            raise ShapeError(
                "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                f"self.shape = {list(self.raw.shape)} source.shape = {list(source.raw.shape)}"
            )
        need_same_dtype("index_add_", self, source)
        return source if alpha == 1 else alpha_times(alpha, self, source)

    @as_function()
    @runs_in("widest")
    def index_copy(self, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """Return a copy with slice ``i`` of ``source`` along ``dim`` written to slice ``index[i]``."""
        only_tensors(source)
        need_same_dtype("index_copy_", self, source)
        if index.raw.dtype.kind == "c":
            raise DTypeError(f"index_copy_(): Expected dtype int32/int64 for index but got: {index.dtype}")
        if (least := least_index(index)) < 0:
            size = self.raw.shape[dim] if self.raw.ndim else 1
            raise IndexRangeError(
                f"index_copy_(): index {least} is out of bounds for dimension {dim} with size {size}"
            )
        return self._put_along(dim, index, source)

    @as_function()
    def index_fill(self, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
        """Return a copy with the slices along ``dim`` at the vector ``index`` set to ``value``, a number or
        0-d tensor."""
        if isinstance(value, Value) and value.raw.ndim:
            raise ShapeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.raw.ndim} dimension(s)."
            )
        if isinstance(value, complex) and self.raw.dtype.kind != "c":
            raise DTypeError(
                "index_fill_(): Converting complex Scalar to non-complex type is not supported (value"
                f" {value}, dtype {self.dtype})"
            )
        if not (isinstance(value, Value) and value.requires_grad):
            return self._put_along(dim, index, like_of(self, value))
        # An element that is written twice contributes to the gradient of the value once.
        untouched = f.new_full(self.detach(), shape=tuple(self.raw.shape), value=False, dtype=np.dtype("?"))
        return f.where(untouched.index_fill(dim, index, True), like_of(self, value), self)

    def _put_along(self, dim: int, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
        """Write (or add) ``source`` at ``index`` along ``dim`` of a copy; a 0-d tensor counts as a vector."""
        axis = normalize_axis(dim, self.raw.ndim)
        check_index(index)
        x: Tensor = self if self.raw.ndim else f.reshape(self, shape=(1,))
        index = index if index.raw.ndim else f.reshape(index, shape=(1,))
        layout = layout_of(axis, x.raw.ndim)
        result = f.put(x, source, index, layout=layout, accumulate=accumulate)
        return result if self.raw.ndim else f.reshape(result, shape=())

    @as_function()
    @runs_in("usual", cuda="widest")
    def index_put(
        self, indices: Sequence[Tensor | None], values: Tensor | Number, accumulate: bool = False
    ) -> Tensor:
        """Return a copy with ``values`` written at ``self[indices]``, or added with ``accumulate``.

        ``indices`` has an index tensor or mask for each axis, None for all of an axis. Raises DTypeError if
        the dtypes differ.
        """
        only_numbers(values)
        only_tensors(*(k for k in indices if k is not None))
        if all(k is None for k in indices):
            raise IndexRangeError("index_put needs at least one index tensor, got none.")
        if any(k is not None and not k.raw.ndim for k in indices):
            return self._put_at_numbers(indices, values, accumulate)
        key = tuple(FULL if k is None else k for k in indices)
        _, layout, index = split(self, key)
        assert layout is not None  # there is an index tensor
        if not isinstance(values, Value):
            values = like_of(self, values)
        elif values.raw.dtype != self.raw.dtype:
            if accumulate or not fills_by_mask(key, values):
                raise mismatch(self, values, layout, index)
            values = like_of(self, values)
        return f.put(self, values, *index, layout=layout, accumulate=accumulate)

    def _put_at_numbers(
        self, indices: Sequence[Tensor | None], values: Tensor | Number, accumulate: bool
    ) -> Tensor:
        """``index_put`` with index tensors without axes: numbers, and masks that select all or nothing."""
        masks = [k for k in indices if k is not None and not k.raw.ndim and k.raw.dtype.kind == "b"]
        if not all(mask.item() for mask in masks):
            return self.clone()
        kept = [k for k in indices if not any(k is mask for mask in masks)]
        if any(k is not None and k.raw.ndim for k in kept):  # which numbers are broadcast with
            rows = [k if k is None or k.raw.ndim else k.reshape(1) for k in kept]
            return self.index_put(rows, values, accumulate)
        key = tuple(FULL if k is None else k for k in kept) or Ellipsis
        result = self.clone()
        present = result[key]
        if isinstance(values, Value) and values.raw.dtype != self.raw.dtype:
            raise mismatch(present, values, (FULL,) * present.raw.ndim, [])
        result[key] = present + values if accumulate else values
        return result

    @as_function()
    def take(self, index: Tensor) -> Tensor:
        """Return the elements of the flattened tensor at ``index``, in the shape of ``index``."""
        only_tensors(index)
        return self.reshape(-1)[index]

    def nonzero(self, *, as_tuple: bool = False) -> Any:  # a tuple with ``as_tuple``
        """Return the indices of the non-zero elements as int64: a row for each element, with a column for
        each axis. With ``as_tuple``, return a tuple of the columns."""
        if not as_tuple:
            return f.nonzero(self)
        return f.nonzero(self if self.raw.ndim else self.reshape(1)).unbind(1)

    @as_function()
    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Tensor:
        """Return the first ``size`` rows of ``nonzero()``; if there are fewer, rows of ``fill_value``
        follow."""
        if size < 0:
            raise ShapeError(f"nonzero_static: 'size' must be an non-negative integer, got {size}")
        return first_nonzero(self, size, fill_value)

    @as_function()
    def argwhere(self) -> Tensor:
        """Return the indices of the non-zero elements: the same as ``nonzero()``."""
        return f.nonzero(self)

    scatter_ = through_method("scatter")
    scatter_add_ = through_method("scatter_add")
    index_copy_ = through_method("index_copy")
    index_fill_ = through_method("index_fill")
    index_put_ = as_function(out="none")(through_method("index_put"))


def _sizes_except(x: Tensor, axis: int) -> list[int]:
    """Return the sizes of ``x`` except that of ``axis``."""
    return [s for a, s in enumerate(x.raw.shape) if a != axis]


def _tracks(value: object) -> bool:
    return isinstance(value, Value) and value._track


def fill(array: Array, value: object) -> None:
    """Write ``value`` over all of ``array``."""
    array[...] = value


def _assign(x: Tensor, basic: Key, value: Tensor | Number) -> None:
    """Write ``value`` into the region ``basic`` of ``x``'s memory, untracked."""
    array: Array = value
    if isinstance(value, Value):
        array = value.raw if value._backend is x._backend else f.to_device(value, device=x.device).raw
        if array.dtype.kind == "c" and x.raw.dtype.kind != "c":
            raise DTypeError(f"can't assign a complex tensor to one of {x.dtype}; take .real first.")
    counter = x._counter()
    if counter is UNCOUNTED and not MODE.inference:
        refuse_writing()
    x._settle()
    region = x.raw[basic]
    try:
        if WATCHERS.around_kernel is None:
            region[...] = array
        else:
            WATCHERS.around_kernel(x._backend, f.copy, fill)(region, array)
    except ValueError:
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(np.shape(array))} cannot be broadcast to indexing"
            f" result of shape {list(region.shape)}"
        ) from None
    counter[0] += 1
