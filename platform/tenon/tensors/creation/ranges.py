"""Create evenly spaced numbers: ``arange``, ``linspace`` and ``logspace``.

An ``out`` with the right number of elements keeps its shape.
"""

from __future__ import annotations

import math
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.compat.rerouting import register
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.promotion import fitted, need_64_bits, need_fit
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.factories import kind_of, written
from tenon.tensors.layout import with_layout

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


def _written(out: Tensor | None, result: Tensor, dtype: DTypeLike | None) -> Tensor:
    if out is not None and out.raw.size == result.raw.size:
        result = result.reshape(out.raw.shape)
    return written(out, result, dtype)


def _range_dtype(dtype: DTypeLike | None, *numbers: object) -> dtypes.dtype:
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    return dtypes.int64 if all(isinstance(n, int) for n in numbers) else dtypes.get_default_dtype()


def _number(value: Any) -> Any:  # int, float or complex
    """Return the Python number of ``value``, a number or a tensor of one element."""
    return value.item() if isinstance(value, (Value, np.generic)) else value


@with_layout
def arange(
    start: Number | Tensor | EllipsisType = ...,
    end: Number | Tensor | EllipsisType = ...,
    step: Number | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a vector of the numbers from ``start`` in steps of ``step``, without ``end`` (torch.arange).

    ``arange(end)`` and ``arange(end=end)`` start at 0. The dtype is int64 if all numbers are integers, else
    the default one. ArgumentError if ``step`` is 0 or leads away from ``end``.
    """
    if start is ... and end is ...:
        raise TypeError('arange() missing 1 required positional argument: "end"')
    first = 0 if start is ... or end is ... else _number(start)
    last = _number(start if end is ... else end)
    gap = _number(step)
    kind = out.dtype if dtype is None and out is not None else _range_dtype(dtype, first, last, gap)
    for number in (first, last, gap):
        need_64_bits(number)
    if not (math.isfinite(first) and math.isfinite(last)):
        raise ArgumentError(f"unsupported range: {first} -> {last}")
    # PyTorch counts in integers here, in floats for all others.
    first, last, gap = (_counted(number, kind) for number in (first, last, gap))
    if gap == 0:
        raise ArgumentError("step must be nonzero")
    if (last - first) * gap < 0:
        raise ArgumentError(
            f"upper bound and lower bound inconsistent with step sign: arange({first}, {last}, {gap})"
        )
    count = math.ceil((last - first) / gap)
    if kind.is_floating_point:
        array = (first + np.arange(count) * gap).astype(kind.numpy)
    else:
        array = np.arange(count, dtype=np.int64)
        if count and (gap != 1 or first != 0):
            array = array * int(gap) + int(first)
        array = array.astype(kind.numpy, copy=False)
    return _written(out, wrap(array, device, requires_grad), dtype)


def _counted(number: Any, kind: dtypes.dtype) -> Any:  # int, or float unless ``kind`` is int64
    if kind != dtypes.int64:
        return float(number)
    need_fit(number, kind.numpy)
    return int(number)


def _end(name: str, end: str, value: Any) -> Any:  # int, float or complex
    """Return the Python number of ``value``, a number or 0-d tensor, the start or ``end`` of a range."""
    if isinstance(value, Value) and value.raw.ndim:
        raise ShapeError(
            f"{name} only supports 0-dimensional start and end tensors, but got {end} with"
            f" {value.raw.ndim} dimension(s)."
        )
    number = _number(value)
    need_64_bits(number)
    return number


def _ends_dtype(
    name: str, dtype: DTypeLike | None, out: Tensor | None, start: complex, end: complex
) -> dtypes.dtype:
    """Return ``dtype``, else ``out``'s, else the default one; a complex one if an end is complex."""
    kind = kind_of(dtype, out)
    if not (isinstance(start, complex) or isinstance(end, complex)):
        return kind
    inferred = dtypes.get_default_dtype().to_complex()
    if (dtype is None and out is None) or kind.is_complex:
        return inferred if dtype is None and out is None else kind
    raise DTypeError(
        f"torch.{name}(): inferred dtype {inferred} can't be safely cast to "
        f"{'passed' if dtype else 'out'} dtype {kind}. Give real ends, or a complex dtype."
    )


@with_layout
def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a vector of ``steps`` evenly spaced numbers from ``start`` to ``end``, both included."""
    if steps < 0:
        raise ArgumentError(f"number of steps must be non-negative, got {steps}")
    first, last = _end("linspace", "start", start), _end("linspace", "end", end)
    kind = _ends_dtype("linspace", dtype, out, first, last)
    if kind.numpy.kind in "iu":
        first, last = (int(fitted(end, kind.numpy)) for end in (first, last))
    array = np.linspace(first, last, steps).astype(kind.numpy)
    return _written(out, wrap(array, device, requires_grad), dtype)


@with_layout
def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return ``base`` to the powers ``linspace(start, end, steps)``."""
    if steps < 0:
        raise ArgumentError(f"number of steps must be non-negative, got {steps}")
    first, last = _end("logspace", "start", start), _end("logspace", "end", end)
    array = np.logspace(first, last, steps, base=base).astype(
        _ends_dtype("logspace", dtype, out, first, last).numpy
    )
    return _written(out, wrap(array, device, requires_grad), dtype)


_BARE = (arange, linspace, logspace)
register("torch", {f.__name__: f for f in _BARE}, bare=[f.__name__ for f in _BARE])
