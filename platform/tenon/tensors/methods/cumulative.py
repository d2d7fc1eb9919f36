"""Cumulative sums, products and extremes along an axis: ``cumsum``, ``cumprod``, ``cummax``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.engine.op import table as f
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.reduction import accumulating
from tenon.tensors.named_results import named_result

if TYPE_CHECKING:
    from tenon import dtypes
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor


class Cumulative(Family):
    """Methods whose result at each position is the reduction of the elements up to that position along an
    axis.

    A negative ``dim`` counts from the last axis; one that does not exist raises AxisError.
    """

    __slots__ = ()

    @as_function()
    def cumsum(self, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
        """Return the cumulative sum along ``dim``, in this tensor's shape.

        Integers and booleans are summed as int64. With ``dtype``, the elements are converted first.
        """
        return f.cumsum(accumulating(self, dtype), axis=normalize_axis(dim, self.raw.ndim))

    @as_function()
    def cumprod(self, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
        """Return the cumulative product along ``dim``, in this tensor's shape.

        Integers and booleans are multiplied as int64. With ``dtype``, the elements are converted first.
        """
        return f.cumprod(accumulating(self, dtype), axis=normalize_axis(dim, self.raw.ndim))

    @as_function(out="exact", refusal="scan")
    def cummax(self, dim: int) -> NamedResult:
        """Return the named tuple ``(values, indices)`` of the cumulative maximum along ``dim``, and where it
        last occurred."""
        return self._running("cummax", dim)

    @as_function(out="exact", refusal="scan")
    def cummin(self, dim: int) -> NamedResult:
        """Return the named tuple ``(values, indices)`` of the cumulative minimum along ``dim``, and where it
        last occurred."""
        return self._running("cummin", dim)

    def _running(self, name: str, dim: int) -> NamedResult:
        axis = normalize_axis(dim, self.raw.ndim)
        indices = f.running_extreme(self, axis=axis, largest=name == "cummax")
        values = f.gather(self, indices, axis=axis) if self.raw.ndim else self.clone()
        return named_result(name, values=values, indices=indices)

    @as_function(out="exact", refusal="scan")
    def logcumsumexp(self, dim: int) -> Tensor:
        """Return the logarithm of the cumulative sum of ``exp(self)`` along ``dim``, computed without
        overflow."""
        return f.logcumsumexp(self, axis=normalize_axis(dim, self.raw.ndim))

    cumsum_ = through_method("cumsum")
    cumprod_ = through_method("cumprod")
