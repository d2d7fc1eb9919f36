"""Whether tensors are equal, or nearly so: ``equal``, ``isclose``, ``allclose``."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


class Closeness(Family):
    """Comparisons of tensors, exact and within tolerances."""

    __slots__ = ()

    @as_function(out="none")
    def equal(self, other: Tensor) -> bool:
        """Return whether shapes and all values are the same; NaN differs from itself."""
        if tuple(self.raw.shape) != tuple(other.raw.shape):
            return False
        return not f.ne(self, other).any().item()  # true on ranks that have nothing of a DTensor

    @as_function(memory="same")
    def isclose(
        self, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Tensor:
        """Return ``|self - other| <= atol + rtol * |other|``, elementwise, as booleans.

        With ``equal_nan``, NaN is close to NaN. ArgumentError for negative tolerances, DTypeError unless the
        dtypes are equal.
        """
        if not isinstance(other, Value):
            raise TypeError(f"isclose(): argument 'other' must be Tensor, not {type(other).__name__}")
        rtol, atol = _float("rtol", rtol, 3), _float("atol", atol, 4)
        for name, value in (("rtol", rtol), ("atol", atol)):
            if not value >= 0:
                raise ArgumentError(f"{name} must be greater than or equal to zero, but got {value}")
        if other.raw.dtype != self.raw.dtype:
            raise DTypeError(f"isclose: {self.dtype} did not match {other.dtype}")
        close = f.eq(self, other)
        if self.raw.dtype.kind in "fcV":
            gap = f.le(f.abs(f.sub(self, other)), f.add(f.mul(f.abs(other), rtol), atol))
            close = f.logical_or(
                close, f.logical_and(gap, f.logical_and(f.isfinite(self), f.isfinite(other)))
            )
            if equal_nan:
                close = f.logical_or(close, f.logical_and(f.isnan(self), f.isnan(other)))
        return close

    @as_function(out="none")
    def allclose(
        self, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Return whether all elements are close, with the parameters of ``isclose``."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())


def _float(name: str, value: Any, position: int) -> float:  # of any type; anything but a number is an error
    """Return a tolerance as a float: a number, or a 0-d tensor that requires no grad; else TypeError."""
    accepted = isinstance(value, numbers.Number) and not isinstance(value, complex)
    if isinstance(value, Value):
        accepted = value.raw.ndim == 0 and not value._track
    if not accepted:
        raise TypeError(
            f"isclose(): argument '{name}' (position {position}) must be float, not {type(value).__name__}"
        )
    return float(value)
