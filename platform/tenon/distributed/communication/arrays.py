"""Convert arrays to the flat, contiguous ones that engines take, and check the arrays for results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tenon.distributed.communication.reduction import dtype_name
from tenon.errors import CommunicatorError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: The array that communicators send and receive: NumPy's, in the memory of the host.
Array: TypeAlias = np.ndarray
READ_ONLY = "out is read-only. Pass a writeable array, or none to get a new one."


def prepared(array: ArrayLike) -> np.ndarray:
    """``array`` as a C-contiguous array of native byte order, copied only if it is not one."""
    if type(array) is np.ndarray and array.flags.c_contiguous and array.dtype.isnative:
        return array
    source = np.asarray(array)
    return np.ascontiguousarray(source, dtype=source.dtype.newbyteorder("=")).reshape(source.shape)


def target_for(out: np.ndarray | None, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return ``out`` after checking its shape, dtype and writeability; a new array if it is None."""
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


def flat_of(target: np.ndarray) -> np.ndarray:
    """``target`` in one dimension: a view if it is contiguous, else a copy that ``delivered`` writes back."""
    return target.reshape(-1) if target.flags.c_contiguous else np.ascontiguousarray(target).reshape(-1)


def delivered(flat: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Write ``flat``, which is ``flat_of(target)``, into ``target`` if it is a copy; return ``target``."""
    if not target.flags.c_contiguous:
        target[...] = flat.reshape(target.shape)
    return target


def describe(array: np.ndarray) -> str:
    """The dtype and shape of ``array``, which sender and receiver of a message compare.

    >>> describe(np.zeros((2, 3)))
    'float64[2, 3]'
    """
    return f"{dtype_name(array.dtype)}{list(array.shape)}"
