"""Memory descriptors: the shape, dtype and layout of an operand.

There are three kinds: strided, of an array; ``any``, which lets a primitive choose; and the layout that it
chose, which is opaque: only its size in bytes is known, and its memory is a ``Buffer`` that ``reorder`` fills
and reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tenon_cpu.onednn.runtime import Buffer, runtime
from tenon_cpu.onednn.signatures import DTYPES, FORMAT_ANY, MAX_NDIMS

Query = TypeVar("Query", bound="ctypes._SimpleCData[int] | ctypes._Pointer[ctypes.c_int64]")
Dims = ctypes.c_int64 * MAX_NDIMS
_QUERY_NDIMS, _QUERY_DIMS, _QUERY_DTYPE, _QUERY_STRIDES, _QUERY_FORMAT_KIND = 256, 257, 258, 14, 262
_BLOCKED = 2
_NAMES = {number: name for name, number in DTYPES.items()}


def dims(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Return ``values`` as a ``dnnl_dims_t``, the type of shapes, strides and padding."""
    return Dims(*values)


class Descriptor:
    """A ``dnnl_memory_desc_t``, destroyed with the object. Equal descriptors describe one layout, to the
    byte."""

    __slots__ = ("__weakref__", "_destroy", "handle", "size", "words")

    def __init__(self, handle: ctypes.c_void_p, words: str = "") -> None:
        library = runtime().library
        self.handle, self.words = handle, words
        self.size = int(library.quick["dnnl_memory_desc_get_size"](handle))
        self._destroy = library.quick["dnnl_memory_desc_destroy"]

    @classmethod
    def strided(cls, shape: Sequence[int], strides: Sequence[int], dtype: npt.DTypeLike) -> Descriptor:
        """Return the descriptor of a strided array; ``strides`` are in elements and not negative."""
        handle = ctypes.c_void_p()
        name = str(np.dtype(dtype))
        runtime().call(
            "dnnl_memory_desc_create_with_strides",
            ctypes.byref(handle), len(shape), dims(shape), DTYPES[name], dims(strides),
        )  # fmt: skip
        return cls(handle, f"{name}{list(shape)} strides {list(strides)}")

    @classmethod
    def of(cls, array: np.ndarray) -> Descriptor:
        """Return the descriptor of an array with its own strides; see ``representable``."""
        return cls.strided(array.shape, element_strides(array), array.dtype)

    @classmethod
    def rows(cls, shape: Sequence[int], dtype: npt.DTypeLike) -> Descriptor:
        """Return the descriptor of an array in C order."""
        return cls.strided(shape, contiguous_strides(shape), dtype)

    @classmethod
    def any(cls, shape: Sequence[int], dtype: npt.DTypeLike) -> Descriptor:
        """Return a descriptor whose layout the primitive chooses; ``Primitive.layout`` returns the choice."""
        handle = ctypes.c_void_p()
        name = str(np.dtype(dtype))
        runtime().call(
            "dnnl_memory_desc_create_with_tag",
            ctypes.byref(handle), len(shape), dims(shape), DTYPES[name], FORMAT_ANY,
        )  # fmt: skip
        return cls(handle, f"{name}{list(shape)} any layout")

    @classmethod
    def copy(cls, handle_of_primitive: int) -> Descriptor:
        """Return an owned copy of a descriptor that belongs to a primitive."""
        handle = ctypes.c_void_p()
        runtime().call("dnnl_memory_desc_clone", ctypes.byref(handle), handle_of_primitive)
        return cls(handle)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Descriptor):
            return NotImplemented
        return bool(runtime().library.quick["dnnl_memory_desc_equal"](self.handle, other.handle))

    __hash__ = None  # type: ignore[assignment]

    def __del__(self) -> None:
        self._destroy(self.handle)

    def __repr__(self) -> str:
        return f"<{self.words or f'layout of {self.size} bytes'}>"

    def _query(self, query: int, result: Query) -> Query:
        runtime().call("dnnl_memory_desc_query", self.handle, query, ctypes.byref(result))
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        count = self._query(_QUERY_NDIMS, ctypes.c_int()).value
        pointer = self._query(_QUERY_DIMS, ctypes.POINTER(ctypes.c_int64)())
        return tuple(pointer[:count])

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The outer strides, in elements, of a strided or blocked layout; None for an opaque one."""
        if self._query(_QUERY_FORMAT_KIND, ctypes.c_int()).value != _BLOCKED:
            return None
        count = self._query(_QUERY_NDIMS, ctypes.c_int()).value
        pointer = self._query(_QUERY_STRIDES, ctypes.POINTER(ctypes.c_int64)())
        return tuple(pointer[:count])

    @property
    def dtype(self) -> np.dtype:
        """The elements' NumPy dtype."""
        return np.dtype(_NAMES[self._query(_QUERY_DTYPE, ctypes.c_int()).value])

    def buffer(self) -> Buffer:
        """Allocate uninitialised memory for one operand of this layout."""
        return Buffer(self.size)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array of ``shape`` in C order."""
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def element_strides(array: np.ndarray) -> tuple[int, ...]:
    """Return the strides of ``array`` in elements; an axis of length 1 gets the stride that C order has."""
    strides, width, contiguous = [], array.itemsize, 1
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        elements = contiguous if size == 1 else stride // width
        strides.append(elements)
        contiguous = max(contiguous, elements * size)
    return tuple(reversed(strides))


def representable(array: np.ndarray) -> bool:
    """Whether oneDNN can read the array in place: its strides are positive multiples of the item size and no
    axis is empty or broadcast."""
    if not array.size or not 0 < array.ndim <= MAX_NDIMS or str(array.dtype) not in DTYPES:
        return False
    width = array.itemsize
    return all(s > 0 and s % width == 0 for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
