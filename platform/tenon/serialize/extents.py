"""The memory that tensors are views of: which ranges of addresses a file has to hold, and their bytes.

Views made by slicing, transposing, ``as_strided`` or the buffer protocol are in one range; ranges that
overlap are merged. Of a view of a foreign array (``from_numpy(matrix[:, 0])``) only its own elements are
written: what lies between them belongs to others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tenon.dtypes import dtype
from tenon.engine.aval import Aval
from tenon.engine.types import Array
from tenon.tensors.storage.sources import reached_in
from tenon.tensors.tensor import Tensor


@dataclass(slots=True, eq=False)
class Storage:
    """A range of memory, written to a file once. ``dtype`` is None if its views have different ones.

    ``fetch`` returns its bytes on the host, ``low`` is its address, ``key`` its name in the file.
    """

    location: str
    nbytes: int
    dtype: dtype | None
    fetch: Callable[[], np.ndarray]
    low: int = 0
    key: str = ""


@dataclass(slots=True)
class Extent:
    """The address range ``low <= address < high`` on a device of an array that owns its memory.

    ``reached`` are the parts that may be written, if there are gaps in it.
    """

    low: int
    high: int
    fetch: Callable[[], np.ndarray]
    reached: Sequence[np.ndarray] = ()


def address_of(raw: Array) -> int:
    """The address of the first element, in the address space of the array's device."""
    interface = raw.__array_interface__ if isinstance(raw, np.ndarray) else raw.__cuda_array_interface__
    return int(interface["data"][0])


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The memory of a C-contiguous array as bytes, without copying."""
    return array.reshape(-1).view(np.uint8)


def extent_of(tensor: Tensor) -> Extent | None:
    """The memory range of the array's owner, or None if the tensor must be copied to be written."""
    raw = tensor.raw
    if isinstance(raw, Aval) or raw.size == 0:
        return None
    itemsize = raw.dtype.itemsize
    if any(n > 1 and (s < 0 or s % itemsize) for n, s in zip(raw.shape, raw.strides, strict=True)):
        return None  # reversed or unaligned axes: PyTorch has no such strides
    if isinstance(raw, np.ndarray):
        if not raw.dtype.isnative:
            return None
        owner = _owner(raw)
        low, high = np.lib.array_utils.byte_bounds(owner)
        own_low, own_high = np.lib.array_utils.byte_bounds(raw)
        if own_low < low or own_high > high:
            low, high = own_low, own_high
        reached = reached_in(owner)
        return Extent(low, high, lambda: _memory(low, high), () if reached is owner else (reached, raw))
    if not hasattr(raw, "__cuda_array_interface__"):
        return None
    device_owner = raw if getattr(raw, "base", None) is None else raw.base
    if not device_owner.flags.c_contiguous:
        return None
    low = address_of(device_owner)
    to_host = tensor._backend.to_host
    return Extent(
        low, low + device_owner.nbytes, lambda: bytes_of(np.ascontiguousarray(to_host(device_owner)))
    )


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory is the storage of ``array``, below views and ``as_strided``."""
    while True:
        base: object = array.base
        if base is not None and not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)
        if not isinstance(base, np.ndarray) or base.size == 0:
            return array
        array = base


class _Window:
    """Exports the bytes between two addresses by NumPy's array interface."""

    def __init__(self, low: int, high: int) -> None:
        shape = (high - low,)
        self.__array_interface__ = {"data": (low, True), "shape": shape, "typestr": "|u1", "version": 3}


def _memory(low: int, high: int) -> np.ndarray:
    """The bytes between two addresses as an array; the caller must keep their owners alive."""
    return np.asarray(_Window(low, high))


def merged(extents: Sequence[Extent], location: str) -> list[Storage]:
    """Merge overlapping extents into storages, in order of address."""
    groups: list[list[Extent]] = []
    high = -1
    for extent in sorted(extents, key=lambda e: (e.low, -e.high)):
        if groups and extent.low < high:
            groups[-1].append(extent)
        else:
            groups.append([extent])
            high = -1
        high = max(high, extent.high)
    return [_storage_of(group, location) for group in groups]


def _storage_of(group: Sequence[Extent], location: str) -> Storage:
    """The storage of extents that overlap, the lowest first."""
    first = group[0]
    if location != "cpu":
        return Storage(location, first.high - first.low, None, first.fetch, first.low)
    low, high = first.low, max(each.high for each in group)
    whole = [each for each in group if not each.reached]
    if any(each.low == low and each.high == high for each in whole) or len(whole) == len(group):
        return Storage(location, high - low, None, lambda: _memory(low, high), low)
    return Storage(location, high - low, None, lambda: _composed(low, high, group), low)


def _composed(low: int, high: int, group: Sequence[Extent]) -> np.ndarray:
    """The bytes between two addresses, with zeros where no array of ``group`` reaches."""
    result = np.zeros(high - low, np.uint8)
    for each in group:
        if not each.reached:
            result[each.low - low : each.high - low] = each.fetch()
        else:
            for part in each.reached:
                at = address_of(part) - low
                np.ndarray(part.shape, part.dtype, result, at, part.strides)[...] = part
    return result


def storage_at(storages: list[Storage], address: int) -> Storage:
    """The last of ``storages``, sorted by address, that begins at or before ``address``."""
    first, last = 0, len(storages)
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if storages[middle].low <= address else (first, middle)
    return storages[first]
