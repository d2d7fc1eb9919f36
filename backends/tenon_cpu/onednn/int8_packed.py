"""Packed copies of int8 weights, kept for as long as their memory lives and cannot be written.

Nothing tells a kernel that an array has changed, but NumPy tells whether it can: an array that is read-only,
with everything it is a view of, never will. The layers of ``tenon.quantization`` make theirs so. Any other
weight is packed at every call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class PackedWeights:
    """What ``make(values, scale)`` gives, by the identity of both arrays."""

    def __init__(self, make: Callable[[Array, Array], Any]) -> None:
        self._make = make
        self._kept: dict[tuple[int, int], Any] = {}

    def get(self, values: Array, scale: Array) -> Any:
        """The packed weight; the kept one if it is of these very arrays."""
        key = id(values), id(scale)
        found = self._kept.get(key)
        # An array that died and another at its place have the same id: the references tell.
        same = found is not None and found[0]() is values and found[1]() is scale
        if same and not (values.flags.writeable or scale.flags.writeable):
            return found[2]
        made = self._make(values, scale)
        if _lasting(values) and _lasting(scale):
            kept, forget = self._kept, lambda _: self._kept.pop(key, None)
            kept[key] = weakref.ref(values, forget), weakref.ref(scale, forget), made
        return made


def _lasting(array: Any) -> bool:
    """Whether nobody can write the memory of ``array`` through NumPy."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None
