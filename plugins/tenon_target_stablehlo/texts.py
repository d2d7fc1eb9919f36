"""MLIR text of types, numbers, arrays and names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from tenon_target_stablehlo.sizes import Size, is_number

#: The element type of each dtype; complex numbers have no form.
ELEMENTS = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint64": "ui64", "uint32": "ui32", "uint16": "ui16", "uint8": "ui8",
    "bool": "i1",
}  # fmt: skip
#: Arrays of more elements are written as their bytes.
_READABLE = 16


def type_text(dtype: np.dtype, shape: Sequence[Size]) -> str:
    """Return ``tensor<?x4xf32>``."""
    sizes = [str(int(size)) if is_number(size) else "?" for size in shape]
    return f"tensor<{'x'.join([*sizes, ELEMENTS[dtype.name]])}>"


def number_text(value: float, dtype: np.dtype) -> str:
    """Return an element as MLIR reads it, rounded to ``dtype``."""
    if dtype.name == "bool":
        return "true" if value else "false"
    element = np.asarray(value).astype(dtype)
    if dtype.kind in "iu":
        return str(int(element))
    if not math.isfinite(float(element)):
        width = dtype.itemsize
        return f"0x{int(element.reshape(1).view(f'uint{8 * width}')[0]):0{2 * width}X}"
    text = repr(float(element)) if dtype.name == "float64" else str(np.float32(element))
    mantissa, mark, exponent = text.partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + mark + exponent


def array_text(array: np.ndarray) -> str:
    """Return the elements of a constant: nested lists, the bytes of a large one, nothing of an empty one."""
    if not array.size:
        return ""
    if array.dtype.name == "bool" or array.size <= _READABLE:
        return _nested(array, array.dtype)
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
    return f'"0x{np.ascontiguousarray(little).tobytes().hex().upper()}"'


def _nested(array: np.ndarray, dtype: np.dtype) -> str:
    if array.ndim == 0:
        return number_text(array.item() if dtype.name != "bfloat16" else float(array), dtype)
    return f"[{', '.join(_nested(each, dtype) for each in array)}]"


def list_text(values: Sequence[int]) -> str:
    """Return ``[1, 2]``."""
    return f"[{', '.join(str(int(v)) for v in values)}]"


def integers_text(values: Sequence[int]) -> str:
    """Return ``array<i64: 1, 2>``, the attribute."""
    inner = ", ".join(str(int(v)) for v in values)
    return f"array<i64: {inner}>" if inner else "array<i64>"


def symbol_text(label: str) -> str:
    """Return a label as the name of a value: ``%layers.0.weight``, ``%_0.weight``.

    Names with ``$`` are those of the arguments of regions.
    """
    name = re.sub(r"[^\w.-]", "_", label, flags=re.ASCII) or "value"
    return f"%{name}" if name[0].isalpha() or name[0] == "_" else f"%_{name}"


def string_text(text: str) -> str:
    """Return a string literal."""
    plain = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(
        plain.get(c, c) if 32 <= ord(c) < 127 else "".join(f"\\{b:02X}" for b in c.encode()) for c in text
    ) + '"'  # fmt: skip
