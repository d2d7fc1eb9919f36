"""Packed copies of int8 weights, cached while the weight's arrays are alive and read-only.

Kernels are not notified when an array changes, but one that is read-only, with bases that are all read-only,
cannot change. The layers of ``tenon.quantization`` make their weights read-only. Any other weight is packed
at every call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.primitives import packed
from tenon_cpu.onednn.runtime import Buffer

Array = np.ndarray


T = TypeVar("T")


class PackedWeight:
    """The packed copies of a weight, by layout."""

    def __init__(self) -> None:
        self._packed: list[tuple[Descriptor, Buffer]] = []
        #: By key what its ``make`` returned.
        self._custom: dict[Hashable, Any] = {}

    def custom(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result of ``make()``, a packed copy in a format identified by ``key``."""
        if key not in self._custom:
            self._custom[key] = make()
        return self._custom[key]

    def packed(self, values: Array, layout: Descriptor, window: Descriptor | None = None) -> Buffer:
        """Return ``values`` in ``layout``, cached; ``window`` describes them where the groups are an axis."""
        for descriptor, buffer in self._packed:
            if descriptor == layout:
                return buffer
        buffer = packed(np.ascontiguousarray(values), layout, window)
        self._packed.append((layout, buffer))
        return buffer


#: References to the two arrays of a weight, and their packed copies.
Kept = tuple[weakref.ref[Array], weakref.ref[Array], PackedWeight]


class PackedWeights:
    """A cache of packed weights, by the identity of the arrays of values and scales."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], Kept] = {}

    def get(self, values: Array, scale: Array) -> PackedWeight:
        """Return the packed weight of the two arrays, the cached one if they are the same objects and
        read-only."""
        key = id(values), id(scale)
        entry = self._entries.get(key)
        # A freed array and a later one may have the same id; the weak references distinguish them.
        same = entry is not None and entry[0]() is values and entry[1]() is scale
        if entry is not None and same and not (values.flags.writeable or scale.flags.writeable):
            kept_weight: PackedWeight = entry[2]
            return kept_weight
        packed_weight = PackedWeight()
        if _immutable(values) and _immutable(scale):
            entries, forget = self._entries, lambda _: self._entries.pop(key, None)
            entries[key] = weakref.ref(values, forget), weakref.ref(scale, forget), packed_weight
        return packed_weight


def _immutable(array: object) -> bool:
    """Whether nobody can write the memory of ``array`` through NumPy."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None
