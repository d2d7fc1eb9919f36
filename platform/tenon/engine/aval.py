"""Abstract values (avals, as in JAX): shape and dtype without data.

Every op computes its result's ``Aval`` in ``infer``; the meta device, shape errors and graphs use nothing
else. ``Aval`` has the attributes of an array (``shape``, ``dtype``, ``ndim``, ``size``), so a rule that
reads only those works on it unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.types import NumpyDType, Operand
from tenon.errors import UnsupportedDTypeError

Shape = tuple[int, ...]


class Aval:
    """Shape and NumPy dtype of a value without data."""

    __slots__ = ("dtype", "shape")

    #: None, as of an array that owns its memory.
    base = None

    def __init__(self, shape: Shape, dtype: NumpyDType) -> None:
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the data would take."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> Shape:
        """Byte strides of a contiguous array of this shape."""
        return tuple(s * self.dtype.itemsize for s in contiguous_strides(self.shape))

    def with_shape(self, shape: Sequence[int]) -> Aval:
        """The same dtype with another shape."""
        return Aval(tuple(shape), self.dtype)

    def with_dtype(self, dtype: npt.DTypeLike) -> Aval:
        """The same shape with another dtype."""
        return Aval(self.shape, np.dtype(dtype))

    # Array methods that a backward pass calls outside of ops: copies and sums.

    def copy(self, order: str = "C") -> Aval:
        """Return itself: there is no data to copy."""
        return self

    def astype(self, dtype: npt.DTypeLike) -> Aval:
        """The same shape in ``dtype``."""
        return self.with_dtype(dtype)

    def __add__(self, other: object) -> Aval:
        return self

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Aval) and self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


def aval_of(value: Operand) -> Operand:
    """The aval of ``value`` if it is an array; Python numbers and avals unchanged."""
    if isinstance(value, Aval) or not hasattr(value, "shape"):
        return value
    return Aval(tuple(value.shape), value.dtype)


def shape_of(value: Operand) -> Shape:
    """Shape of an array or Aval; ``()`` of a Python number."""
    return getattr(value, "shape", ())


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Element strides of a C-contiguous array.

    >>> contiguous_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def no_loop(name: str, kind: NumpyDType, arguments: str) -> UnsupportedDTypeError:
    """The error for op ``name`` if NumPy has no inner loop for dtype ``kind``, in PyTorch's words."""
    known = FROM_NUMPY.get(kind)
    title = scalar_name(known) if known else kind
    return UnsupportedDTypeError(f"\"{name}_cpu\" not implemented for '{title}': {name}({arguments})")


def refuse_kinds(name: str, kinds: str, *operands: Operand) -> None:
    """Raise UnsupportedDTypeError if an operand's dtype is of one of NumPy's ``kinds``: "b", bool, or "c"."""
    for x in operands:
        dtype = getattr(x, "dtype", None)
        if dtype is not None and dtype.kind in kinds:
            raise no_loop(name, dtype, ", ".join(str(aval_of(each)) for each in operands))
