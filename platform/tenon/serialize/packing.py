"""The arrays of a safetensors file, and the alias table that restores shared memory.

The format has only contiguous arrays without shared memory. Tensors with the same layout in the same memory
become one array with several names. Where views overlap, the one that spans them all is written and the
others are described relative to it; if there is none, their memory is written as bytes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.engine.aval import contiguous_strides
from tenon.serialize.layout import Described, Storage, bytes_of

_MAX_WORK = 10_000
_MAX_PAIRS = 64

Layout = tuple[Any, int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a view of an array of the file: byte offset, and strides in elements."""

    entry: int
    offset: int
    stride: tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """An array of the file: ``owner`` is the first tensor in it, ``whole`` says if it is just that one."""

    data: Any
    owner: int
    whole: bool


class Packing:
    """The arrays for a list of described tensors, and where each tensor lies in them."""

    def __init__(self, described: list[Described]) -> None:
        self.entries: list[Entry] = []
        self.views: list[View | None] = [None] * len(described)
        self._described = described
        self._bytes: dict[int, Any] = {}
        by_storage: dict[int, list[int]] = {}
        for index, tensor in enumerate(described):
            if tensor.storage is not None:
                by_storage.setdefault(id(tensor.storage), []).append(index)
        for members in by_storage.values():
            for group in self._overlapping(members):
                self._pack(group)

    def _overlapping(self, members: list[int]) -> list[list[int]]:
        """Split the tensors of one storage where their extents do not overlap."""
        groups: list[list[int]] = []
        high = -1
        for index in sorted(members, key=lambda i: (*_extent(self._described[i]), i)):
            low, end = _extent(self._described[index])
            if groups and (low < high or (low == end and self._same(index, groups[-1][0]))):
                groups[-1].append(index)
                high = max(high, end)
            else:
                groups.append([index])
                high = end
        return [sorted(group) for group in groups]

    def _same(self, first: int, second: int) -> bool:
        return _layout(self._described[first]) == _layout(self._described[second])

    def _pack(self, group: list[int]) -> None:
        layouts = dict.fromkeys(_layout(self._described[i]) for i in group)
        if len(layouts) == 1:
            self._write_whole(group[0], group)
            return
        root = self._spanning(group)
        if root is not None:
            self._write_whole(root, group)
            return
        parts = self._sharing(group)
        if len(parts) > 1:
            for part in parts:
                self._pack(part)
            return
        low = min(_extent(self._described[i])[0] for i in group)
        high = max(_extent(self._described[i])[1] for i in group)
        self.entries.append(Entry(self._memory(group[0])[low:high], group[0], False))
        self._refer(group, low)

    def _write_whole(self, root: int, group: list[int]) -> None:
        tensor = self._described[root]
        self.entries.append(Entry(bytes_of(np.ascontiguousarray(self._array(root))), root, True))
        if tensor.stride == contiguous_strides(tensor.shape):
            self._refer(group, _extent(tensor)[0])
        else:  # packed on the way, so all members have this one layout
            view = View(len(self.entries) - 1, 0, contiguous_strides(tensor.shape))
            for index in group:
                self.views[index] = view

    def _refer(self, group: list[int], low: int) -> None:
        for index in group:
            tensor = self._described[index]
            offset = tensor.offset * tensor.dtype.itemsize - low
            self.views[index] = View(len(self.entries) - 1, offset, tensor.stride)

    def _spanning(self, group: list[int]) -> int | None:
        """A contiguous tensor that covers the whole group."""
        low = min(_extent(self._described[i])[0] for i in group)
        high = max(_extent(self._described[i])[1] for i in group)
        for index in group:
            tensor = self._described[index]
            if _extent(tensor) == (low, high) and tensor.stride == contiguous_strides(tensor.shape):
                return index
        return None

    def _sharing(self, group: list[int]) -> list[list[int]]:
        """Split tensors whose extents overlap but whose elements do not, as the columns of a matrix."""
        if len(group) > _MAX_PAIRS:
            return [group]
        part = {index: {index} for index in group}
        for first, second in itertools.combinations(group, 2):
            if part[first] is not part[second] and self._share(first, second):
                joined = part[first] | part[second]
                for index in joined:
                    part[index] = joined
        unique = {id(members): sorted(members) for members in part.values()}
        return sorted(unique.values())

    def _share(self, first: int, second: int) -> bool:
        try:
            return np.shares_memory(self._array(first), self._array(second), max_work=_MAX_WORK)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True

    def _memory(self, index: int) -> Any:
        storage = self._described[index].storage
        assert isinstance(storage, Storage)
        if id(storage) not in self._bytes:
            self._bytes[id(storage)] = storage.fetch()
        return self._bytes[id(storage)]

    def _array(self, index: int) -> Any:
        tensor = self._described[index]
        itemsize = tensor.dtype.itemsize
        if 0 in tensor.shape:
            return np.empty(tensor.shape, tensor.dtype.numpy)
        strides = tuple(s * itemsize for s in tensor.stride)
        return np.ndarray(
            tensor.shape, tensor.dtype.numpy, self._memory(index), tensor.offset * itemsize, strides
        )


def _layout(tensor: Described) -> Layout:
    return (tensor.dtype, tensor.offset, tensor.shape, tensor.stride)


def _extent(tensor: Described) -> tuple[int, int]:
    """The bytes of its storage that a tensor spans."""
    itemsize = tensor.dtype.itemsize
    low = tensor.offset * itemsize
    if 0 in tensor.shape:
        return low, low
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride, strict=True)) + 1
    return low, low + reach * itemsize
