"""The values in a graph as Python text: numbers, shapes, dtypes, index keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.extend import Attr

#: The dtypes that runners support: NumPy's without ml_dtypes, except complex ones.
DTYPES = frozenset({
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32",
    "float64",
})  # fmt: skip


def dtype_text(dtype: np.dtype) -> str:
    """Return a dtype as text, such as ``np.float32``."""
    return "np.bool_" if dtype.name == "bool" else f"np.{dtype.name}"


def number_text(value: Any) -> str:  # a number of Python or NumPy
    """Return a number as an operand of any operator."""
    if isinstance(value, float | np.floating):
        number = float(value)
        if math.isnan(number):
            return "np.nan"
        if math.isinf(number):
            return "np.inf" if number > 0 else "(-np.inf)"
        return repr(number) if number >= 0 else f"({number!r})"
    if isinstance(value, bool | np.bool_):
        return repr(bool(value))
    whole = int(value)
    return repr(whole) if whole >= 0 else f"({whole!r})"


def is_symbolic(size: object) -> bool:
    """Whether a size is an expression of the inputs' sizes, not a number."""
    return not isinstance(size, int | np.integer) or str(size) != str(int(size))


def value_text(value: Attr) -> str:
    """Return an attr of a call: a number, a shape, a dtype, a key, or these nested."""
    if value is None or isinstance(value, str):
        return repr(value)
    if isinstance(value, bool | float | np.number | np.bool_) or type(value) is int:
        return number_text(value)
    if value is Ellipsis:
        return "..."
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return f"slice({', '.join(value_text(p) for p in (parts if value.step is not None else parts[:2]))})"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(value_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    dtype = getattr(value, "numpy", value)
    if isinstance(dtype, np.dtype):
        return dtype_text(dtype)
    return str(value) if is_symbolic(value) else str(int(value))  # an expression of the inputs' sizes


def _is_plain(part: Attr) -> bool:
    """Whether a part of a key is not the placeholder of an index array."""
    known = (slice, type(None), type(Ellipsis), int, np.integer)
    return isinstance(part, known) or hasattr(part, "symbols")


def key_text(key: Sequence[Attr], arrays: Sequence[str] = ()) -> str:
    """Return the text between the brackets of ``x[...]``; ``arrays`` replace the placeholders of index
    arrays."""
    rest = iter(arrays)
    parts = []
    for part in key:
        if isinstance(part, slice):
            first, last = ("" if p is None else value_text(p) for p in (part.start, part.stop))
            step = "" if part.step is None else f":{value_text(part.step)}"
            parts.append(f"{first}:{last}{step}")
        elif _is_plain(part):
            parts.append(value_text(part))
        else:
            parts.append(next(rest))
    return ", ".join(parts)


def key_tuple_text(key: Sequence[Attr], arrays: Sequence[str] = ()) -> str:
    """Return a key as a tuple; ``arrays`` replace the placeholders of index arrays."""
    rest = iter(arrays)
    parts = [value_text(p) if _is_plain(p) else next(rest) for p in key]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
