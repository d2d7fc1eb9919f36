"""Machine code as Python's built-in functions: a call costs 80 ns, through ctypes several hundred.

``function`` makes one of an address. The machine code there receives Python objects, reads an array's fields
from its struct (NumPy's documented C interface), and may call the functions that ``define_python`` defines in
LLVM. ``walk`` is such a function itself: it calls bound kernels one after the other.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon_cpu.jit.compiler import llvm

HEAD = object.__basicsize__
#: Byte offsets of an array's address, rank, shape, strides, dtype and flags, and of an object's type.
DATA, RANK, SHAPE, STRIDES, DTYPE, FLAGS = (HEAD + offset for offset in (0, 8, 16, 24, 40, 48))
TYPE = HEAD - 8

PYTHON = {
    "PyErr_Occurred": "ptr ()",
    "PyErr_SetString": "void (ptr, ptr)",
    "PyEval_RestoreThread": "void (ptr)",
    "PyEval_SaveThread": "ptr ()",
    "PyFloat_AsDouble": "double (ptr)",
    "PyLong_AsLongLong": "i64 (ptr)",
    "PyLong_FromLongLong": "ptr (i64)",
    "PyType_IsSubtype": "i32 (ptr, ptr)",
    "Py_IncRef": "void (ptr)",
}
OBJECTS = {
    "tenon_array": np.ndarray,
    "tenon_none": None,
    "tenon_TypeError": TypeError,
    "tenon_MemoryError": MemoryError,
}
DTYPES = ("float32", "float64", "int64", "uint8", "uint16", "uint32")


@functools.cache
def define_python() -> None:
    """Define Python's functions and objects as symbols in LLVM."""
    llvm.define_symbols({name: llvm.address_of(getattr(ctypes.pythonapi, name)) for name in PYTHON})
    llvm.define_symbols({name: id(value) for name, value in OBJECTS.items()})
    llvm.define_symbols({f"tenon_{name}": id(np.dtype(name)) for name in DTYPES})


class _MethodDef(ctypes.Structure):
    """Python's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


NO_ARGUMENTS, FASTCALL = 0x0004, 0x0080
#: The functions keep pointers to them, and live as long as the process.
_definitions: list[_MethodDef] = []


def define(name: str, text: str, address: int, kind: int) -> int:
    """The address of a new ``PyMethodDef`` for the machine code at ``address``."""
    definition = _MethodDef(name.encode(), address, kind, text.encode())
    _definitions.append(definition)  # the last of the list may be another thread's by now
    return ctypes.addressof(definition)


# Its signature is that of the compiled code behind ``definition``.
def function(definition: int, own: object) -> Callable[..., Any]:
    """A built-in function; ``own`` is its ``__self__``."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return make(definition, own, None)


#: ``PyObject *call(PyObject *lines, PyObject *)``: an array of address, table and threads of each entry.
_WALK = f"""
define ptr @call(ptr %lines, ptr %nothing) {{
entry:
  %at.data = getelementptr i8, ptr %lines, i64 {DATA}
  %data = load ptr, ptr %at.data
  %at.shape = getelementptr i8, ptr %lines, i64 {SHAPE}
  %shape = load ptr, ptr %at.shape
  %n = load i64, ptr %shape
  %state = call ptr @PyEval_SaveThread()
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %p = mul i64 %i, 3
  %a = getelementptr i64, ptr %data, i64 %p
  %b = getelementptr i64, ptr %a, i64 1
  %c = getelementptr i64, ptr %a, i64 2
  %function = load ptr, ptr %a
  %table = load ptr, ptr %b
  %threads = load i64, ptr %c
  call void %function(ptr %table, i64 %threads)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  call void @PyEval_RestoreThread(ptr %state)
  call void @Py_IncRef(ptr @tenon_none)
  ret ptr @tenon_none
}}
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
@tenon_none = external global i8
"""


@functools.cache
def _walker() -> int:
    define_python()
    return define("walk", "kernels", llvm.compiler().function(_WALK, "call"), NO_ARGUMENTS)


def walk(lines: np.ndarray) -> Callable[[], None]:
    """A built-in function that calls the entries of ``lines``, an int64 array ``[n, 3]`` with ``n > 0``."""
    return function(_walker(), lines)
