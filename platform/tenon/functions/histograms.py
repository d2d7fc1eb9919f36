"""Histograms of one and several dimensions, and ``unravel_index``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon import ops
from tenon.engine.value import Value
from tenon.engine.watchers import watched_creation
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.functions.derived import write_into
from tenon.tensors.creation.create import from_backend_array
from tenon.tensors.methods.movement import sizes
from tenon.tensors.named_results import named_result

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor

__all__ = ["histogram", "histogramdd", "unravel_index"]


def _host(x: Tensor) -> np.ndarray:
    host: np.ndarray = x._backend.to_host(x.raw)
    return host


def _check(name: str, input: Tensor, weight: Tensor | None, shape: tuple[int, ...]) -> None:
    if input.raw.dtype.kind != "f":
        raise DTypeError(f"{name}(): expected a tensor of floating point values, got {input.dtype}")
    if weight is not None and tuple(weight.raw.shape) != shape:
        raise ShapeError(
            f"{name}(): if weight tensor is provided it should have the same shape as the input tensor"
            f" excluding its innermost dimension, got {list(weight.raw.shape)} for {list(input.raw.shape)}"
        )
    if weight is not None and weight.raw.dtype != input.raw.dtype:
        raise DTypeError(
            f"{name}(): if weight tensor is provided, it should have {input.dtype}, got {weight.dtype}"
        )


def _edges(name: str, values: np.ndarray, bins: Tensor | int, limits: Sequence[float] | None) -> np.ndarray:
    """Return the edges of the bins along one axis."""
    if isinstance(bins, Value):
        return _host(bins)
    if bins <= 0:
        raise ArgumentError(f"{name}(): bins must be > 0, but got {bins}")
    low, high = limits if limits is not None else (values.min(), values.max()) if values.size else (0.0, 1.0)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ArgumentError(f"{name}(): range of [{low}, {high}] is not finite")
    if low > high:
        raise ArgumentError(f"{name}(): min should not exceed max, but got [{low}, {high}]")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1).astype(values.dtype)


@watched_creation
def histogram(
    input: Tensor,
    bins: Tensor | int,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Sequence[Tensor] | None = None,
) -> NamedResult:
    """Return the named tuple ``(hist, bin_edges)``: the number, or total ``weight``, of elements in each bin.

    ``bins`` is the number of bins, of equal width over ``range`` (by default from the smallest to the largest
    element), or a tensor of edges. With ``density`` the histogram is scaled to the integral 1. DTypeError
    unless the dtype is floating-point.
    """
    _check("histogram", input, weight, tuple(input.raw.shape))
    values = _host(input).reshape(-1)
    edges = _edges("histogram", values, bins, range)
    weights = None if weight is None else _host(weight).reshape(-1)
    hist, _ = np.histogram(values, edges, weights=weights, density=density)
    result = named_result(
        "histogram",
        hist=from_backend_array(input, hist.astype(values.dtype)),
        bin_edges=from_backend_array(input, edges),
    )
    return write_into(out, result)


@watched_creation
def histogramdd(
    input: Tensor,
    bins: int | Sequence[Tensor | int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Sequence[Tensor] | None = None,
) -> NamedResult:
    """Return the named tuple ``(hist, bin_edges)`` of the rows of ``input``, with one axis for each column.

    ``bins`` is one number of bins for all columns, or for each column a number or a tensor of edges;
    ``range`` lists the low and the high end of every column.
    """
    if input.raw.ndim < 2:
        raise ShapeError(
            f"histogramdd(): input tensor should have at least 2 dimensions, got {input.raw.ndim}"
        )
    count = input.raw.shape[-1]
    _check("histogramdd", input, weight, tuple(input.raw.shape[:-1]))
    values = _host(input).reshape(-1, count)
    each = [bins] * count if isinstance(bins, int) else list(bins)
    if len(each) != count:
        raise ShapeError(
            f"histogramdd(): expected {count} sequences of bin edges or counts, but got {len(each)}"
        )
    if range is not None and len(range) != 2 * count:
        raise ShapeError(
            f"histogramdd(): for a {count}-dimensional histogram range should have {2 * count} elements"
        )
    limits = [None if range is None else (range[2 * i], range[2 * i + 1]) for i, _ in enumerate(each)]
    edges = [_edges("histogramdd", values[:, i], b, limits[i]) for i, b in enumerate(each)]
    weights = None if weight is None else _host(weight).reshape(-1)
    hist, _ = np.histogramdd(values, edges, weights=weights, density=density)
    return named_result(
        "histogramdd",
        hist=from_backend_array(input, hist.astype(values.dtype)),
        bin_edges=tuple(from_backend_array(input, e) for e in edges),
    )


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Convert indices of the flattened elements of an array of ``shape`` to indices along each axis.

    Return a tuple with one tensor for each axis. TypeError unless ``indices`` are integers.
    """
    if not isinstance(indices, Value) or indices.raw.dtype.kind not in "iu":
        kind = getattr(indices, "dtype", type(indices).__name__)
        raise TypeError(f"expected 'indices' to be integer dtype, but got {kind}")
    if not isinstance(shape, (int, tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    odd = [s for s in (shape if not isinstance(shape, int) else ()) if not isinstance(s, (int, np.integer))]
    if odd:
        raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(odd[0])}")
    lengths = (shape,) if isinstance(shape, int) else sizes((shape,))
    if any(s < 0 for s in lengths):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(lengths)}")
    coordinates = []
    rest: Tensor = ops.cast(indices, dtype=np.dtype(np.int64))
    for size in lengths[::-1]:
        coordinates.append(rest % size)
        rest = rest // size
    return tuple(coordinates[::-1])
