"""Whether tensors are equal, or nearly so: ``equal``, ``isclose``, ``allclose``."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError
from tenon.tensors.methods.function_forms import as_function


class Closeness:
    """Comparisons of whole tensors, and within tolerances."""

    __slots__ = ()
    raw: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # what the other mixins bring

    @as_function(out="none")
    def equal(self, other: Any) -> bool:
        """Same shape and same values; NaN differs from itself."""
        if tuple(self.raw.shape) != tuple(other.raw.shape):
            return False
        return bool(f.eq(self, other).all().item())

    @as_function(memory="same")
    def isclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
        """``|self - other| <= atol + rtol * |other|`` elementwise."""
        if not isinstance(other, Value):
            raise TypeError(f"isclose(): argument 'other' must be Tensor, not {type(other).__name__}")
        rtol, atol = _float("rtol", rtol, 3), _float("atol", atol, 4)
        for name, value in (("rtol", rtol), ("atol", atol)):
            if value < 0:
                raise ArgumentError(f"{name} must be greater than or equal to zero, but got {value}")
        if other.raw.dtype != self.raw.dtype:
            raise DTypeError(f"isclose: {self.dtype} did not match {other.dtype}")  # type: ignore[attr-defined]
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
    def allclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
        """Whether all elements are close (see ``isclose``)."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())


def _float(name: str, value: Any, place: int) -> float:
    """A tolerance: a number, or a tensor of one that no gradient is asked of."""
    taken = isinstance(value, numbers.Number) and not isinstance(value, complex)
    if isinstance(value, Value):
        taken = value.raw.ndim == 0 and not value.requires_grad  # type: ignore[attr-defined]
    if not taken:
        raise TypeError(
            f"isclose(): argument '{name}' (position {place}) must be float, not {type(value).__name__}"
        )
    return float(value)
