"""Limits of dtypes (``finfo``, ``iinfo``) and mathematical constants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tenon import dtypes
from tenon.errors import UnsupportedError

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike

__all__ = ["e", "finfo", "iinfo", "inf", "nan", "newaxis", "pi"]

pi = math.pi
e = math.e
inf = math.inf
nan = math.nan
newaxis = None


def _limits(kind: dtypes.dtype) -> Any:  # NumPy's finfo or that of ml_dtypes, which is not typed
    """Return the ``finfo`` of a floating dtype; also of those that tensors cannot have (``float8_*``)."""
    narrow: Any = ml_dtypes.finfo  # which has no types
    if not isinstance(kind, dtypes.NamedDType):
        return narrow(kind.numpy) if kind is dtypes.bfloat16 else np.finfo(kind.numpy)
    if not hasattr(ml_dtypes, kind.name):
        raise UnsupportedError(f"finfo: {kind!r}, of which two fill a byte, has no known limits.")
    return narrow(getattr(ml_dtypes, kind.name))


class finfo:
    """Limits of a floating dtype (default: the default dtype); of a complex one, those of its parts.

    >>> finfo(dtypes.float16).max
    65504.0
    """

    def __init__(self, type: DTypeLike | None = None) -> None:
        kind = dtypes.get_default_dtype() if type is None else dtypes.as_dtype(type)
        if not (kind.is_floating_point or kind.is_complex):
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{kind.name}'"
            )
        kind = kind.to_real()
        limits = _limits(kind)
        self.dtype: str = kind.name
        self.bits: int = kind.itemsize * 8
        self.eps = float(limits.eps)
        self.max = float(limits.max)
        self.min = float(limits.min)
        self.tiny = self.smallest_normal = float(limits.smallest_normal)
        self.resolution = float(f"1e-{math.floor(-math.log10(self.eps))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(("finfo", self.dtype))

    def __repr__(self) -> str:
        numbers = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return "finfo(" + ", ".join(f"{n}={getattr(self, n):.6g}" for n in numbers) + f", dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype.

    >>> iinfo(dtypes.int8).max
    127
    """

    def __init__(self, type: DTypeLike) -> None:
        kind = dtypes.as_dtype(type)
        if kind.category != dtypes.INTEGER:
            raise TypeError(
                f"torch.iinfo() requires an integer input type, but got '{kind.name}'. Use torch.finfo for "
                "floats."
            )
        limits = np.iinfo(kind.numpy)
        self.dtype: str = kind.name
        self.bits: int = kind.itemsize * 8
        self.min = int(limits.min)
        self.max = int(limits.max)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(("iinfo", self.dtype))

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:.6g}, max={self.max:.6g}, dtype={self.dtype})"
