"""The memory of a program: ``Buffer``, a range of memory, and ``View``, a value in one.

A view is described by a NumPy array over memory that is reserved but never accessed: an op that only moves
elements (transpose, slice, expand) runs on that array, and its offset and strides are those of the C
program. Next: ``program.py`` creates them, ``memory.py`` assigns offsets to arena buffers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tenon.extend import Aval

#: The C type of each dtype that programs can have. Booleans are bytes that are 0 or 1.
CTYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}

#: The suffix of each dtype in names of kernels.
SUFFIXES = {
    "float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint8": "u8", "bool": "u8",
}  # fmt: skip


class Buffer:
    """A range of memory of one C type.

    ``kind`` is "arena" (intermediates), "weight" (constants), "state" (parameters and optimizer state that a
    run writes), "input" or "output" (the caller's).
    """

    __slots__ = ("ctype", "first", "kind", "last", "memory", "offset")

    def __init__(self, kind: str, memory: np.ndarray) -> None:
        self.kind = kind
        #: The flat array that represents the memory; of weights and state it has the values.
        self.memory = memory
        self.ctype = CTYPES[memory.dtype.name]
        #: Offset in the arena or among the weights of its type, in elements; the position of an argument.
        self.offset = 0
        #: The first and the last step that uses it.
        self.first, self.last = -1, -1

    @property
    def count(self) -> int:
        """The number of elements."""
        return int(self.memory.size)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A value: shape, dtype and strides (those of ``array``) in ``buffer``."""

    buffer: Buffer
    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype."""
        return self.array.dtype

    @property
    def ctype(self) -> str:
        """The C type of an element."""
        return CTYPES[self.array.dtype.name]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance of neighbours along each axis, in elements."""
        return tuple(s // self.array.itemsize for s in self.array.strides)

    @property
    def offset(self) -> int:
        """The distance of the first element from the buffer's start, in elements."""
        if not self.array.size:
            return 0
        start = int(self.buffer.memory.__array_interface__["data"][0])
        return (int(self.array.__array_interface__["data"][0]) - start) // self.array.itemsize

    @property
    def dense(self) -> bool:
        """Whether the elements are contiguous in C order."""
        return bool(self.array.flags.c_contiguous)

    @property
    def fills_buffer(self) -> bool:
        """Whether the view covers all of its buffer, in C order."""
        return self.dense and self.size == self.buffer.count

    def moved(self, array: np.ndarray) -> View:
        """Return another view of the same buffer."""
        return View(self.buffer, array)

    def reshaped(self, *shape: int) -> View:
        """Return a dense view in another shape."""
        return View(self.buffer, self.array.reshape(shape))


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """The address of a view's first element, as an argument of a step that reads or writes there.

    ``offset`` is C text of its distance from the buffer's start, where that changes with sizes.
    """

    view: View
    writes: bool = False
    offset: str = ""


def reserve(kind: str, shape: tuple[int, ...], dtype: np.dtype) -> View:
    """Return a view that fills a new buffer. Its pages are never accessed, so they take no physical
    memory."""
    memory = np.empty(math.prod(shape), dtype)
    return View(Buffer(kind, memory), memory.reshape(shape))


def buffer_of(kind: str, array: np.ndarray) -> View:
    """Return a view of a new buffer that holds the values of ``array``."""
    memory = np.ascontiguousarray(array).reshape(-1)
    return View(Buffer(kind, memory), memory.reshape(array.shape))


def supported(aval: Aval) -> bool:
    """Whether C programs support the dtype."""
    return aval.dtype.name in CTYPES
