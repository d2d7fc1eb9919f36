"""Bytes of storages over a mapped file, over memory shared with forked processes, or copied from a buffer."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from typing import TYPE_CHECKING

import numpy as np

from tenon.dtypes import dtype
from tenon.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tenon.engine.types import Array


class FileMapping(mmap.mmap):
    """The mapped bytes of a file, with its name if writes go to the file."""

    filename: str | None = None


def filename_of(raw: Array) -> str | None:
    """The name of the file that ``raw`` maps with ``shared=True``, else None."""
    owner = memory_owner(raw)
    return owner.filename if isinstance(owner, FileMapping) else None


def memory_owner(raw: object) -> object:
    """Return the object, at the end of the ``base`` references, that owns the memory of ``raw``; None for an
    array that owns it itself."""
    owner = raw
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner


def own_extent(array: np.ndarray) -> np.ndarray:
    """Return a view of ``array`` whose storage begins and ends with it, though ``array`` may be part of more.

    The storage of a tensor is the array at the end of its ``base`` references (``untyped.py``). A buffer
    between that of the view and that of the larger array ends these references early.
    """
    if array.base is None and type(array) is np.ndarray:
        return array.view()
    if not array.size:
        return np.empty(array.shape, array.dtype)
    array, size = array.view(np.ndarray), array.dtype.itemsize  # subclasses reshape in other ways
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
    else:
        last = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
        flat = np.lib.stride_tricks.as_strided(array, (last // size + 1,), (size,))
    block = np.frombuffer(flat.view(np.uint8).data, array.dtype)
    if not _is_dense(array):
        key = id(block)
        _REACHED[key] = weakref.ref(block, lambda _: _REACHED.pop(key, None)), array.shape, array.strides
    return np.ndarray(array.shape, array.dtype, block, 0, array.strides)


def _is_dense(array: np.ndarray) -> bool:
    """Whether the elements of ``array`` lie one behind the other, in any order of its axes, or repeated."""
    step = array.dtype.itemsize
    for stride, count in sorted(zip(array.strides, array.shape, strict=True)):
        if stride and count > 1:
            if stride != step:
                return False
            step *= count
    return True


#: The shape and strides of the views with gaps that ``own_extent`` has made, by the id of their block.
_REACHED: dict[int, tuple[weakref.ref[np.ndarray], tuple[int, ...], tuple[int, ...]]] = {}


def reached_in(block: np.ndarray) -> np.ndarray:
    """What a tensor may show of the storage ``block``: all of it, but for the gaps of a foreign view.

    Between the elements of such a view lie numbers of the array that it was made of.
    """
    known = _REACHED.get(id(block))
    if known is None or known[0]() is not block:
        return block
    return np.lib.stride_tricks.as_strided(block, known[1], known[2])


def file_bytes(filename: str | os.PathLike[str], shared: bool, count: int) -> np.ndarray:
    """Map the first ``count`` bytes of a file; with ``shared`` writes change the file, which is extended if
    needed."""
    name = os.fsdecode(filename)
    if count < 0:
        raise ArgumentError(f"unable to mmap {count} bytes from file <{name}>: give a size of 0 or more.")
    if count == 0:
        return np.empty(0, np.uint8)
    mode, flags = ("read-write", os.O_RDWR | os.O_CREAT) if shared else ("read-only", os.O_RDONLY)
    try:
        handle = os.open(name, flags | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise ArgumentError(
            f"unable to open file <{name}> in {mode} mode: {error.strerror} ({error.errno})"
        ) from error
    try:
        size = os.fstat(handle).st_size
        if size < count and not shared:
            raise ArgumentError(
                f"file <{name}> size <{size}> is smaller than the required mapping size <{count}>"
            )
        if size < count:
            os.ftruncate(handle, count)
        mapped = FileMapping(handle, count, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
    finally:
        os.close(handle)
    mapped.filename = name if shared else None
    return np.ndarray((count,), np.uint8, mapped)


def shared_bytes(count: int) -> np.ndarray:
    """Allocate zero bytes that processes forked from now on share."""
    return np.ndarray((count,), np.uint8, mmap.mmap(-1, count)) if count else np.empty(0, np.uint8)


def buffer_bytes(
    buffer: Buffer, byte_order: str | None, count: int, offset: int, kind: dtype | None
) -> np.ndarray:
    """Copy ``count`` numbers (-1: all) of an object with a buffer, in this machine's byte order."""
    if kind is None:
        raise ArgumentError("argument 'dtype' cannot be None")
    if not isinstance(kind, dtype):
        raise DTypeError(f"argument 'dtype' must be of type torch.dtype, not {type(kind).__name__}")
    if kind.name not in ("uint8", "int8") and byte_order is None:
        raise ArgumentError("function missing required argument 'byte_order' (pos 2)")
    if byte_order not in (None, "big", "little", "native"):
        raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
    data = memoryview(buffer).cast("B")
    size, length = kind.numpy.itemsize, len(data)
    if not 0 <= offset <= length:
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({length}), but got {offset}"
        )
    if count < 0:
        if (length - offset) % size:
            raise ValueError(f"buffer size ({length}) must be a multiple of element size ({size})")
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(
            f"buffer has only {length - offset} bytes after offset {offset}, but specified a size of {count}"
            f" ({count * size} bytes)"
        )
    result = np.frombuffer(data, np.uint8, count * size, offset).copy()
    if kind.name == "bool":
        return (result != 0).view(np.uint8)
    if byte_order not in (None, "native", sys.byteorder):
        swap_bytes(result, kind)
    return result


def swap_bytes(raw: Array, kind: dtype) -> None:
    """Reverse the bytes of every number of ``raw`` (of both parts of complex ones) in place."""
    size = kind.itemsize // 2 if kind.is_complex else kind.itemsize
    numbers = raw[: raw.size // size * size].reshape(-1, size)
    numbers[...] = numbers[:, ::-1].copy()
