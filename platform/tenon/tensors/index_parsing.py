"""Parse indexing keys: split them into a basic part (a view) and an advanced part (index arrays).

``split`` returns ``(basic, layout, indices)``: first apply ``basic`` (integers, slices, None, always with
an Ellipsis so that NumPy returns an array), then, if ``layout`` is not None, index with arrays at the
``INDEX`` entries. Masks become the index arrays of their non-zero elements. Doing integers first is what
makes the axis order PyTorch's: NumPy would count them as index arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.aval import Aval
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import IndexRangeError

if TYPE_CHECKING:
    from tenon.engine.types import Array, Operand
    from tenon.tensors.tensor import Tensor

FULL = slice(None)
_BYTE = np.dtype(np.uint8)
#: The dtypes of index arrays.
INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))


class _Index:
    def __repr__(self) -> str:
        return "INDEX"

    def __reduce__(self) -> str:
        return "INDEX"


#: The placeholder of an index array in a layout.
INDEX = _Index()
#: A key as NumPy takes it: integers, slices, None and Ellipsis, or in a layout slices and ``INDEX``.
Key: TypeAlias = tuple[Any, ...]
#: An element of a basic key.
BasicKey: TypeAlias = int | slice | EllipsisType | None


def filled(layout: Key, indices: Iterable[Operand]) -> Key:
    """Substitute the index arrays for the placeholders of ``layout``."""
    arrays = iter(indices)
    return tuple(next(arrays) if k is INDEX else k for k in layout)


def split(tensor: Tensor, key: object) -> tuple[Key, Key | None, list[Value]]:
    """Return the basic key, the advanced layout (or None), and its index tensors on ``tensor``'s backend.

    A tensor in ``key`` is returned itself, so that the tape can check its version in the backward pass.
    """
    keys: Key = key if type(key) is tuple else _listed(key)
    shape = tensor.raw.shape
    consumed = sum(_consumes(k) for k in keys)
    if consumed > len(shape):
        if not shape:
            raise _scalar_error(keys)
        raise IndexRangeError(
            f"too many indices for tensor of dimension {len(shape)} (shape {list(shape)}, {consumed} indices)"
        )
    basic: list[BasicKey] = []
    advanced: list[Operand] = []  # parallel to the axes that remain after the basic step
    axis = 0
    seen = False
    for k in keys:
        if k is Ellipsis:
            if seen:
                raise IndexRangeError("an index can only have a single ellipsis ('...')")
            seen = True
            width = len(shape) - consumed
            basic += [FULL] * width
            advanced += [FULL] * width
            axis += width
        elif k is None:
            basic.append(None)
            advanced.append(FULL)
        elif isinstance(k, slice):
            k = _checked_slice(k)
            if WATCHERS.requested_sizes is not None and k != FULL:
                k = WATCHERS.requested_sizes("slice", (shape[axis], axis, len(shape)), k)
            basic.append(k)
            advanced.append(FULL)
            axis += 1
        elif k.__class__ is int or _is_integer(k):
            position = int(k)
            if not -shape[axis] <= position < shape[axis]:
                raise IndexRangeError(
                    f"index {position} is out of bounds for dimension {axis} with size {shape[axis]} (shape"
                    f" {list(shape)})"
                )
            basic.append(position)
            axis += 1
        else:
            axis += _advance(tensor, k, axis, shape, basic, advanced)
    basic.append(Ellipsis)
    backend = tensor._backend
    indices = [a if isinstance(a, Value) else Value.make(a, backend) for a in advanced if a is not FULL]
    if not indices:
        return tuple(basic), None, []
    layout = tuple(FULL if a is FULL else INDEX for a in advanced)
    return tuple(basic), layout, indices


def _scalar_error(keys: Key) -> IndexRangeError:
    """Create the error for indexing a 0-d tensor with ``keys``."""
    first = next(k for k in keys if _consumes(k))
    if isinstance(first, slice):
        return IndexRangeError("slice() cannot be applied to a 0-dim tensor.")
    if _is_integer(first):
        return IndexRangeError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a"
            " number"
        )
    return IndexRangeError(f"too many indices for tensor of dimension 0 (shape [], {len(keys)} indices)")


def _listed(key: object) -> Key:
    """Return ``key`` as a tuple of keys: the items of a short sequence that are not all numbers, as in
    PyTorch and old NumPy; else ``key`` alone."""
    if (
        isinstance(key, Sequence)
        and not isinstance(key, (str, range))
        and len(key) < 32
        and any(
            isinstance(k, (Sequence, slice, Value, np.ndarray)) or k is None or k is Ellipsis for k in key
        )
    ):
        warnings.warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)], or"
            " x[torch.tensor(seq)] for one array of indices.",
            stacklevel=4,
        )
        return tuple(key)
    return (key,)


def _is_integer(k: object) -> bool:
    if isinstance(k, (bool, np.bool_)):
        return False
    if isinstance(k, (int, np.integer)):
        return True
    if isinstance(k, Value):
        return k.raw.ndim == 0 and k.raw.dtype.kind in "iu" and k.raw.dtype != _BYTE
    return hasattr(k, "__index__") and not hasattr(k, "shape")


def _consumes(k: object) -> int:
    """Return how many axes one key indexes."""
    if k is None or k is Ellipsis or isinstance(k, (bool, np.bool_)):
        return 0
    array: Array = k.raw if isinstance(k, Value) else k
    if getattr(array, "dtype", None) is not None and (array.dtype.kind == "b" or array.dtype == _BYTE):
        return int(array.ndim)
    if isinstance(k, (list, tuple)) and np.asarray(_plain(k)).dtype.kind == "b":
        return int(np.asarray(_plain(k)).ndim)
    return 1


def fills_by_mask(key: object, value: Value) -> bool:
    """Whether ``x[key] = value`` is a masked fill, which casts the value: ``value`` has one element and
    ``key`` one mask, or is True or False."""
    keys = key if isinstance(key, tuple) else (key,)
    rest = [k for k in keys if not (k is None or k is Ellipsis or isinstance(k, slice))]
    if not all(isinstance(k, Value) for k in rest):
        return all(isinstance(k, (bool, np.bool_)) for k in rest)
    masks = [k.raw for k in rest if k.raw.ndim and (k.raw.dtype.kind == "b" or k.raw.dtype == _BYTE)]
    return len(masks) == len(rest) == 1 and value.raw.size == 1


def check_index(index: Value) -> None:
    """Raise IndexRangeError unless ``index`` is a vector or scalar of integers."""
    if index.raw.dtype not in INTEGERS:
        kind = scalar_name(FROM_NUMPY[index.raw.dtype])
        raise IndexRangeError(
            f"Expected dtype int32/int64 for index but got: {kind}. Expected a long tensor for index, but got"
            f" {kind}."
        )
    if index.raw.ndim > 1:
        raise IndexRangeError(f"Index is supposed to be a vector, but got {list(index.raw.shape)}")


def result_shape(shape: Sequence[int], layout: Key, indices: Iterable[Operand]) -> tuple[int, ...]:
    """Return the shape of indexing a tensor of ``shape`` with the index arrays."""
    x = np.broadcast_to(np.empty((), np.bool_), tuple(shape))
    zeros = [np.zeros(tuple(i.shape), np.intp) for i in indices]
    result: np.ndarray = x[filled(layout, zeros)]
    return result.shape


def _plain(k: Any) -> Any:  # nested sequences of any depth
    """Replace tensors in nested sequences by numbers."""
    if isinstance(k, (list, tuple)):
        return [_plain(e) for e in k]
    return k._backend.to_host(k.raw).item() if isinstance(k, Value) else k


def _checked_slice(k: slice) -> slice:
    parts = (k.start, k.stop, k.step)
    if not all(p is None or p.__class__ is int for p in parts):
        try:
            k = slice(*(None if p is None else p.__index__() for p in parts))
        except AttributeError:
            raise TypeError(
                f"slice indices must be integers or None or have an __index__ method, got {k}"
            ) from None
    if k.step is not None and k.step <= 0:
        if not k.step:
            raise ValueError("slice step cannot be zero")
        raise ValueError(f"step must be greater than zero, got {k.step}. Use flip() to reverse.")
    return k


def _advance(
    tensor: Tensor, k: object, axis: int, shape: Sequence[int], basic: list[BasicKey], advanced: list[Operand]
) -> int:
    """Append one index array or mask to the keys; return how many axes it consumes."""
    backend = tensor._backend
    if isinstance(k, Value):
        array = (
            k.raw if k._backend is backend else backend.from_host(k._backend.to_host(k.raw), tensor.device)
        )
    else:
        host = np.asarray(_plain(k) if isinstance(k, (list, tuple)) else k)
        if host.size == 0 and host.dtype.kind == "f":
            host = host.astype(np.int64)
        array = backend.from_host(host, tensor.device)
    if array.dtype == _BYTE:
        if array.ndim:
            warnings.warn(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead: it"
                " is read as a mask. For indices use .long().",
                stacklevel=4,
            )
        array = array != 0
    if array.dtype.kind == "b":
        return _mask(tensor, array, axis, shape, basic, advanced)
    if array.dtype not in INTEGERS:
        if not hasattr(k, "dtype") and not isinstance(k, (list, tuple)):
            raise IndexRangeError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid"
                f" indices (got {type(k).__name__})"
            )
        raise IndexRangeError(
            f"tensors used as indices must be long, int, byte or bool tensors, got {array.dtype}. Use"
            " .long()."
        )
    basic.append(FULL)
    advanced.append(k if isinstance(k, Value) and k.raw is array else array)
    return 1


def _mask(
    tensor: Tensor,
    mask: Array,
    axis: int,
    shape: Sequence[int],
    basic: list[BasicKey],
    advanced: list[Operand],
) -> int:
    """Append the index arrays of a mask's non-zero elements to the keys; return how many axes it consumes."""
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.reading(mask, "indexing with a mask")
    if mask.ndim == 0:  # a new axis of size 0 or 1
        basic.append(None)
        advanced.append(tensor._backend.from_host(np.zeros(int(mask), np.int64), tensor.device))
        return 0
    for offset, size in enumerate(mask.shape):
        if size != shape[axis + offset]:
            raise IndexRangeError(
                f"The shape of the mask {list(mask.shape)} at index {offset} does not match the shape of the"
                f" indexed tensor {list(shape)} at index {axis + offset}"
            )
    flags = mask if tensor._backend.own is tensor._backend else tensor._backend.to_host(mask)
    for each in flags.nonzero():
        basic.append(FULL)
        advanced.append(each)
    return int(mask.ndim)


def selects_all(basic: Key) -> bool:
    """Whether the basic key ``basic`` selects the entire tensor."""
    return all(k is Ellipsis or (isinstance(k, slice) and k == FULL) for k in basic)


def layout_of(axis: int, rank: int) -> Key:
    """Return the layout of one index array on ``axis`` of ``rank`` axes."""
    return (FULL,) * axis + (INDEX,) + (FULL,) * (rank - axis - 1)


def drop_leading_ones(value: Value, basic: Key, x: Tensor) -> Value:
    """Drop the leading axes of size 1 that PyTorch allows ``value`` to have in ``x[basic] = value``."""
    shape = value.raw.shape
    rank = np.broadcast_to(np.empty((), np.bool_), tuple(x.raw.shape))[basic].ndim
    while len(shape) > rank and shape[0] == 1:
        value = f.reshape(value, shape=shape[1:])
        shape = value.raw.shape
    return value


def least_index(index: Tensor) -> int:
    """The smallest element of ``index``; 0 of none, without data, or of parts, whose kernels check them."""
    raw = index.raw
    if isinstance(raw, Aval) or not raw.size or index._backend.own is not index._backend:
        return 0
    return int(raw.min())
