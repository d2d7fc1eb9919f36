"""DLPack capsules of bfloat16, a type that DLPack has and NumPy's capsules do not.

NumPy exports and imports the same bits as uint16, and the capsule's type code is overwritten: one byte at an
offset that DLPack's ABI fixes, in a structure that belongs to this capsule alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.dtypes import bfloat16

if TYPE_CHECKING:
    from tenon.engine.types import Array

_UINT, _BFLOAT = 1, 4
#: Capsule name -> offset of the type code: after pointer, device and rank; and after the newer header.
_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}

_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Capsule:
    """An object that exports a bare capsule, of CPU memory, through ``__dlpack__``."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **kwargs: object) -> Any:  # a capsule, which has no type in Python
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class _Writable:
    """An array's memory, declared writable: NumPy imports unversioned capsules, which have no such flag, as
    read-only."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        interface = array.__array_interface__
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


def capsule_of(raw: Array, options: Mapping[str, object]) -> object:
    """Export an array as a capsule; ``options`` are those of ``__dlpack__``."""
    if raw.dtype.kind != "V":
        capsule: object = raw.__dlpack__(**options)
        return capsule
    capsule = raw.view(np.uint16).__dlpack__(**options)
    _code(capsule).value = _BFLOAT
    return capsule


def array_of(capsule: object) -> np.ndarray:
    """Consume a capsule: return an array over its memory."""
    code = _code(capsule)
    is_bfloat16 = code.value == _BFLOAT
    if is_bfloat16:
        code.value = _UINT
    array = np.asarray(_Writable(np.from_dlpack(Capsule(capsule))))
    return array.view(bfloat16.numpy) if is_bfloat16 else array


def _code(capsule: object) -> ctypes.c_uint8:
    """Return the type code of a capsule, which can be assigned."""
    name = _name_of(capsule)
    return ctypes.c_uint8.from_address(_pointer_of(capsule, name) + _OFFSETS.get(name, 20))
