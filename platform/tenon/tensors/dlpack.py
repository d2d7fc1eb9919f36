"""DLPack capsules of bfloat16, a type that DLPack has and NumPy's capsules do not.

The same bits go through NumPy as uint16, and the capsule's element type is written over: one byte at a place
that DLPack's ABI fixes, in a structure that belongs to this one capsule.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tenon.dtypes import bfloat16

_UINT, _BFLOAT = 1, 4
#: The byte of the type's code: after the pointer, the device and the rank; and after the newer header.
_PLACES = {b"dltensor": 20, b"dltensor_versioned": 52}

_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Capsule:
    """A bare capsule as the object that gives it, once; it holds memory of the CPU."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class _Writable:
    """An array's memory, declared writable: capsules of the older kind cannot say that theirs is, and NumPy
    then takes it for read-only."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        place = array.__array_interface__
        self.__array_interface__ = place | {"data": (place["data"][0], False)}


def capsule_of(raw: Any, options: dict[str, Any]) -> Any:
    """The capsule of an array."""
    if raw.dtype.kind != "V":
        return raw.__dlpack__(**options)
    capsule = raw.view(np.uint16).__dlpack__(**options)
    _code(capsule).value = _BFLOAT
    return capsule


def array_of(capsule: Any) -> np.ndarray[Any, Any]:
    """The array over a capsule's memory, which NumPy takes over."""
    code = _code(capsule)
    halved = code.value == _BFLOAT
    if halved:
        code.value = _UINT
    array = np.asarray(_Writable(np.from_dlpack(Capsule(capsule))))
    return array.view(bfloat16.numpy) if halved else array


def _code(capsule: Any) -> Any:
    name = _name_of(capsule)
    return ctypes.c_uint8.from_address(_pointer_of(capsule, name) + _PLACES.get(name, 20))
