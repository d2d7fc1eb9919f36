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
    """Methods whose result at each position reduces the elements along an axis up to that position."""

    __slots__ = ()

    @as_function()
    def cumsum(self, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
        """Running sum along ``dim``."""
        return f.cumsum(accumulating(self, dtype), axis=normalize_axis(dim, self.raw.ndim))

    @as_function()
    def cumprod(self, dim: int, *, dtype: dtypes.dtype | None = None) -> Tensor:
        """Running product along ``dim``."""
        return f.cumprod(accumulating(self, dtype), axis=normalize_axis(dim, self.raw.ndim))

    @as_function(out="exact", refusal="scan")
    def cummax(self, dim: int) -> NamedResult:
        """Running maximum along ``dim``, and the index where it last occurred."""
        return self._running("cummax", dim)

    @as_function(out="exact", refusal="scan")
    def cummin(self, dim: int) -> NamedResult:
        """Running minimum along ``dim``, and the index where it last occurred."""
        return self._running("cummin", dim)

    def _running(self, name: str, dim: int) -> NamedResult:
        axis = normalize_axis(dim, self.raw.ndim)
        indices = f.running_extreme(self, axis=axis, largest=name == "cummax")
        values = f.gather(self, indices, axis=axis) if self.raw.ndim else self.clone()
        return named_result(name, values=values, indices=indices)

    @as_function(out="exact", refusal="scan")
    def logcumsumexp(self, dim: int) -> Tensor:
        """Logarithm of the running sum of exponentials along ``dim``, without overflow."""
        return f.logcumsumexp(self, axis=normalize_axis(dim, self.raw.ndim))

    cumsum_ = through_method("cumsum")
    cumprod_ = through_method("cumprod")
