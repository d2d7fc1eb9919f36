"""Arrays as engines want them, flat and contiguous, and where the results go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.errors import CommunicatorError, ShapeError

Array = np.ndarray[Any, Any]
READ_ONLY = "out is read-only. Pass a writeable array, or none to get a new one."


def prepared(array: Any) -> Array:
    """``array`` as a C-contiguous array of native byte order; no copy where it already is."""
    if type(array) is np.ndarray and array.flags.c_contiguous and array.dtype.isnative:
        return array
    source = np.asarray(array)
    return np.ascontiguousarray(source, dtype=source.dtype.newbyteorder("=")).reshape(source.shape)


def target_for(out: Array | None, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """``out`` after checking that the result fits it, or a new array."""
    if out is None:
        return np.empty(tuple(shape), dtype)
    if out.shape != tuple(shape) or out.dtype != dtype:
        raise ShapeError(
            f"out is {out.dtype}{list(out.shape)}, but the result is {dtype}{list(shape)}. "
            "Pass an array of exactly that shape and dtype, or none."
        )
    if not out.flags.writeable:
        raise CommunicatorError(READ_ONLY)
    return out


def flat_of(target: Array) -> Array:
    """``target`` as one row: a view if it is contiguous, else a copy that ``delivered`` writes back."""
    return target.reshape(-1) if target.flags.c_contiguous else np.ascontiguousarray(target).reshape(-1)


def delivered(flat: Array, target: Array) -> Array:
    """``target``, with what was put into ``flat``."""
    if not target.flags.c_contiguous:
        target[...] = flat.reshape(target.shape)
    return target
