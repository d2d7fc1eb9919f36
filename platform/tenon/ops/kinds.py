"""The NumPy dtype of whatever a rule is given: an array, an aval or a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name


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
    dtype = dtype_of(x)
    return dtype.itemsize == 2 and dtype.kind in "fV"


def title_of(x: Any) -> str:
    """The dtype as torch's error messages call it: ``Float``, ``Long``."""
    return scalar_name(FROM_NUMPY[dtype_of(x)])
