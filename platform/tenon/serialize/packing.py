"""The arrays of a safetensors file, and the alias table that restores shared memory.

The format has only contiguous arrays that share no memory. Tensors of one layout in the same memory are
written as one array. Of overlapping views, the one that spans them all is written and the others are
described relative to it; if there is none, their memory is written as bytes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tenon.dtypes import dtype
from tenon.engine.aval import contiguous_strides
from tenon.serialize.extents import Storage, bytes_of
from tenon.serialize.layout import Described

_MAX_WORK = 10_000
_MAX_PAIRS = 64

#: Dtype, offset, shape and strides of a tensor in its storage.
Layout: TypeAlias = tuple[dtype, int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a view of an array of the file: byte offset, and strides in elements."""

    entry: int
    offset: int
    stride: tuple[int, ...]


@dataclass(slots=True)
class Entry:
    """An array of the file: its bytes, and the index of a tensor in it.

    If ``whole``, the array has that tensor's shape and dtype, else it is bytes.
    """

    data: np.ndarray
    owner: int
    whole: bool


class Packing:
    """The arrays for a list of described tensors, and each tensor as a view of one of them."""

    def __init__(self, described: list[Described]) -> None:
        self.entries: list[Entry] = []
        self.views: list[View | None] = [None] * len(described)
        self._described = described
        self._bytes: dict[int, np.ndarray] = {}
        by_storage: dict[int, list[int]] = {}
        for index, tensor in enumerate(described):
            if tensor.storage is not None:
                by_storage.setdefault(id(tensor.storage), []).append(index)
        for members in by_storage.values():
            for group in self._overlapping(members):
                self._pack(group)

    def _overlapping(self, members: list[int]) -> list[list[int]]:
        """Split the tensors of one storage into groups whose extents do not overlap."""
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
        """Add the arrays for tensors whose extents overlap."""
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
        """Add the array of tensor ``root``, of which all others in ``group`` are views."""
        tensor = self._described[root]
        self.entries.append(Entry(bytes_of(np.ascontiguousarray(self._array(root))), root, True))
        if tensor.stride == contiguous_strides(tensor.shape):
            self._refer(group, _extent(tensor)[0])
        else:  # made contiguous, which is only done if all members have this layout
            view = View(len(self.entries) - 1, 0, contiguous_strides(tensor.shape))
            for index in group:
                self.views[index] = view

    def _refer(self, group: list[int], low: int) -> None:
        """Make the tensors views of the last array, which begins at byte ``low`` of their storage."""
        for index in group:
            tensor = self._described[index]
            offset = tensor.offset * tensor.dtype.itemsize - low
            self.views[index] = View(len(self.entries) - 1, offset, tensor.stride)

    def _spanning(self, group: list[int]) -> int | None:
        """A contiguous tensor of ``group`` whose extent covers those of all; None if there is none."""
        low = min(_extent(self._described[i])[0] for i in group)
        high = max(_extent(self._described[i])[1] for i in group)
        for index in group:
            tensor = self._described[index]
            if _extent(tensor) == (low, high) and tensor.stride == contiguous_strides(tensor.shape):
                return index
        return None

    def _sharing(self, group: list[int]) -> list[list[int]]:
        """Split tensors into groups that share no elements, though extents overlap: columns of a matrix."""
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

    def _memory(self, index: int) -> np.ndarray:
        """The bytes of the storage of a tensor."""
        storage = self._described[index].storage
        assert isinstance(storage, Storage)
        if id(storage) not in self._bytes:
            self._bytes[id(storage)] = storage.fetch()
        return self._bytes[id(storage)]

    def _array(self, index: int) -> np.ndarray:
        """A tensor as an array, a view of the bytes of its storage."""
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
    """The range of bytes that a tensor spans in its storage."""
    itemsize = tensor.dtype.itemsize
    low = tensor.offset * itemsize
    if 0 in tensor.shape:
        return low, low
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride, strict=True)) + 1
    return low, low + reach * itemsize
