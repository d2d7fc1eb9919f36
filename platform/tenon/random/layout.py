"""Store drawn numbers into a new array, or into an existing one in memory order.

PyTorch fills a non-contiguous tensor in memory order (its iterator sorts dimensions by stride), so a
transposed view receives the numbers along its rows in memory and not along its logical rows. ``deliver``
does the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tenon.errors import UnsupportedError, ViewError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: Fills a flat, contiguous array.
Fill: TypeAlias = Callable[[np.ndarray], None]

#: Elements handled at once, so that temporaries stay in the second-level cache.
CHUNK = 1 << 15


def chunks(flat: np.ndarray) -> Iterator[np.ndarray]:
    """Yield views of ``CHUNK`` elements of a flat array; the last may have fewer."""
    for begin in range(0, flat.size, CHUNK):
        yield flat[begin : begin + CHUNK]


_NAMES = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble", "float16": "Half", "bfloat16": "BFloat16", "float32": "Float",
    "float64": "Double",
}  # fmt: skip

FLOATING = ("float32", "float64", "float16", "bfloat16")
#: Largest finite number by dtype name.
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
INTEGRAL = ("int64", "int32", "int16", "int8", "uint8")


_name_of: dict[np.dtype, str] = {}


def name_of(dtype: np.dtype) -> str:
    """Return ``dtype.name``, cached, as NumPy builds it at every access (2 us)."""
    name = _name_of.get(dtype)
    if name is None:
        name = _name_of[dtype] = dtype.name
    return name


def require(dtype: DTypeLike, allowed: Sequence[str], operation: str) -> np.dtype:
    """Return ``np.dtype(dtype)``; raise PyTorch's error unless it is one of ``allowed``."""
    checked: np.dtype = np.dtype(dtype)
    if name_of(checked) not in allowed:
        raise UnsupportedError(
            f'"{operation}" not implemented for {_NAMES.get(checked.name, checked.name)!r}. '
            f"Use one of {', '.join(allowed)}, or draw in one of them and convert."
        )
    return checked


def memory_order(out: np.ndarray) -> np.ndarray:
    """Return a view of ``out`` whose C order is its memory order; an error if elements share memory."""
    if any(stride == 0 and size > 1 for stride, size in zip(out.strides, out.shape, strict=True)):
        raise ViewError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            f"location (shape {out.shape}, strides {out.strides}). Please clone() the tensor before "
            "performing the operation."
        )
    return out.transpose(sorted(range(out.ndim), key=lambda axis: -abs(out.strides[axis])))


def deliver(fill: Fill, shape: Sequence[int] | None, dtype: DTypeLike, out: np.ndarray | None) -> np.ndarray:
    """Call ``fill`` with a flat contiguous array; return it with ``shape``, or ``out`` with its numbers."""
    if out is None:
        flat = np.empty(math.prod(shape or ()), dtype)
        fill(flat)
        return flat.reshape(shape or ())
    view = out if out.flags.c_contiguous else memory_order(out)
    if view.flags.c_contiguous:
        fill(view.reshape(-1))
    else:
        flat = np.empty(view.size, out.dtype)
        fill(flat)
        view[...] = flat.reshape(view.shape)
    return out


def as_real(out: np.ndarray) -> np.ndarray:
    """A complex array as a view of its real and imaginary parts, in a last axis of 2."""
    return out[..., None].view(out.real.dtype)


def store(flat: np.ndarray, values: np.ndarray) -> None:
    """Write float64 ``values`` to ``flat`` with C's conversions: half types round by way of float32."""
    if flat.dtype.itemsize == 2 and name_of(flat.dtype) in FLOATING:
        flat[...] = values.astype(np.float32)
    elif flat.dtype.kind in "iub":
        flat[...] = values.astype(np.int64)
    else:
        flat[...] = values


def as_double(values: np.ndarray) -> np.ndarray:
    """``values`` as float64, exactly, for every floating dtype including bfloat16."""
    return values if values.dtype == np.float64 else values.astype(np.float32).astype(np.float64)
