"""The NumPy dtype of whatever a rule is given: an array, an aval or a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine import rounding
from tenon.errors import DivisionByZeroError

_FLOAT32 = np.dtype(np.float32)


def dtype_of(x: Any) -> np.dtype[Any]:
    """``x.dtype`` as NumPy's, also of a tensor."""
    found = x.dtype
    dtype: np.dtype[Any] = getattr(found, "numpy", found)
    return dtype


def is_complex(x: Any) -> bool:
    """Whether ``x`` holds complex numbers."""
    return dtype_of(x).kind == "c"


def is_floating(x: Any) -> bool:
    """Whether ``x`` holds real floating numbers."""
    return dtype_of(x).kind in "fV"


def is_short(x: Any) -> bool:
    """Whether ``x`` holds floating numbers of 16 bits."""
    return rounding.is_short(dtype_of(x))


def title_of(x: Any) -> str:
    """The dtype as torch's error messages call it: ``Float``, ``Long``."""
    return scalar_name(FROM_NUMPY[dtype_of(x)])


def widened(f: Any, *values: Any) -> tuple[Any, ...]:
    """``values`` with those of 16 bits in float32."""
    return tuple(f.cast(v, dtype=_FLOAT32) if v is not None and is_short(v) else v for v in values)


def matching(f: Any, made: Any, x: Any) -> Any:
    """``made`` in the dtype of ``x``."""
    return made if dtype_of(made) == dtype_of(x) else f.cast(made, dtype=dtype_of(x))


def refuse_zero(xp: Any, x: Any, y: Any) -> None:
    """DivisionByZeroError for integers of which some are to be divided by 0."""
    kind = getattr(y, "dtype", getattr(x, "dtype", None))
    if kind is not None and kind.kind in "iu" and bool(xp.any(xp.equal(y, 0))):
        raise DivisionByZeroError("ZeroDivisionError: integer division by zero; check the divisor.")
