"""Tensors by shape: ``zeros``, ``full``, ``eye`` and their like, with torch's signatures."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.engine.grad_mode import MODE
from tenon.engine.value import Value, refuse_writing
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.order import memory_order
from tenon.tensors.creation import triangles
from tenon.tensors.creation.create import full as _full
from tenon.tensors.creation.create import wrap
from tenon.tensors.formats import laid_out
from tenon.tensors.inplace import check_overlap
from tenon.tensors.layout import plain, with_layout
from tenon.tensors.methods.movement import sizes


def kind_of(dtype: Any, out: Any = None) -> dtypes.dtype:
    """``dtype``, or ``out``'s, or the default one."""
    if dtype is None:
        return dtypes.get_default_dtype() if out is None else out.dtype
    return dtypes.as_dtype(dtype)


def shape_of(size: tuple[Any, ...], keyword: Any) -> tuple[int, ...]:
    """The shape, given as sizes, as one sequence, or by the keyword ``size``."""
    return sizes(size if keyword is None else (keyword,))


@watched_creation
def zeros(
    *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None,
    **rest: Any,
) -> Any:  # fmt: skip
    """A tensor of zeros."""
    shape = shape_of(size, rest.pop("size", None))
    if rest:
        plain("zeros", rest)
    return written(out, _full(shape, 0, kind_of(dtype, out), device, requires_grad), dtype)


@watched_creation
def ones(
    *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None,
    **rest: Any,
) -> Any:  # fmt: skip
    """A tensor of ones."""
    shape = shape_of(size, rest.pop("size", None))
    if rest:
        plain("ones", rest)
    return written(out, _full(shape, 1, kind_of(dtype, out), device, requires_grad), dtype)


@watched_creation
def empty(
    *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Any = None,
    **rest: Any,
) -> Any:  # fmt: skip
    """A tensor that is not initialised."""
    shape = shape_of(size, rest.pop("size", None))
    result = _full(shape, None, kind_of(dtype, out), device, requires_grad)
    memory_format = rest.pop("memory_format", None)
    if rest:
        plain("empty", rest)
    return written(out, laid_out(result, memory_format), dtype)


@watched_creation
def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Any,
) -> Any:
    """A tensor that is not initialised, whose neighbours along each axis lie ``stride`` elements apart."""
    shape, steps = sizes((size,)), sizes((stride,))
    plain("empty_strided", rest)
    if len(shape) != len(steps):
        raise ShapeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})"
        )
    room = 0 if 0 in shape else sum((s - 1) * step for s, step in zip(shape, steps, strict=True)) + 1
    memory = _full((room,), None, kind_of(dtype), device)
    result = memory.as_strided(shape, steps, 0).detach()
    return result.requires_grad_() if requires_grad else result


@watched_creation
def empty_permuted(
    size: Any,
    physical_layout: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Any,
) -> Any:
    """A tensor that is not initialised, whose axes lie in memory in the order ``physical_layout``."""
    shape, order = sizes((size,)), sizes((physical_layout,))
    plain("empty_permuted", rest)
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(
            "Number of dimensions in size does not match the length of the physical_layout, or it repeats or"
            f" exceeds dimensions: size {list(shape)}, physical_layout {list(order)}"
        )
    result = _full([shape[axis] for axis in order], None, kind_of(dtype), device).permute(
        [order.index(axis) for axis in range(len(order))]
    )
    return result.detach().requires_grad_(requires_grad)


@with_layout
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
) -> Any:
    """A tensor of ``fill_value``; the dtype follows the value."""
    if isinstance(fill_value, Value):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    kind = dtypes.of_number(fill_value) if dtype is None and out is None else kind_of(dtype, out)
    return written(out, _full(sizes((size,)), fill_value, kind, device, requires_grad), dtype)


def _like(x: Any, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    kind = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    place = x.device if device is None else device
    order = None if WATCHERS.recorder is not None else memory_order(x.raw)
    if order is None:
        return _full(x.raw.shape, value, kind, place, requires_grad)
    result = _full([x.raw.shape[axis] for axis in order], value, kind, place)
    return (
        result.permute([order.index(axis) for axis in range(len(order))])
        .detach()
        .requires_grad_(requires_grad)
    )


@with_layout
def zeros_like(
    input: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """Zeros of ``input``'s shape, dtype and device."""
    return laid_out(_like(input, 0, dtype, device, requires_grad), memory_format)


@with_layout
def ones_like(
    input: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """Ones of ``input``'s shape, dtype and device."""
    return laid_out(_like(input, 1, dtype, device, requires_grad), memory_format)


@with_layout
def empty_like(
    input: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """An uninitialised tensor of ``input``'s shape, dtype and device."""
    return laid_out(_like(input, None, dtype, device, requires_grad), memory_format)


@with_layout
def full_like(
    input: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """``fill_value`` in ``input``'s shape, dtype and device."""
    return laid_out(_like(input, fill_value, dtype, device, requires_grad), memory_format)


@with_layout
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
) -> Any:
    """Ones on the diagonal of an ``n x m`` matrix."""
    if n < 0 or (m is not None and m < 0):
        raise ShapeError(
            f"n must be greater or equal to 0, got {n}"
            if n < 0
            else f"m must be greater or equal to 0, got {m}"
        )
    return written(out, wrap(np.eye(n, m, dtype=kind_of(dtype, out).numpy), device, requires_grad), dtype)


@with_layout
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A 0-d tensor."""
    return _full((), s, kind_of(dtype), device, requires_grad)


@with_layout
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Any:
    """Rows and columns of the lower triangle."""
    return wrap(
        triangles.lower(row, col, offset, (dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)).numpy),
        device,
    )


@with_layout
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Any:
    """Rows and columns of the upper triangle."""
    return wrap(
        triangles.upper(row, col, offset, (dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)).numpy),
        device,
    )


def written(out: Any, result: Any, dtype: Any = None) -> Any:
    """Return ``result``, or ``out`` with its values written in; ``out`` must be of ``dtype`` where given."""
    if out is None:
        return result
    if dtype is not None and out.dtype is not result.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (result, out)]
        raise DTypeError(f"dtype {names[0]} does not match dtype of out parameter ({names[1]})")
    return _write(out, result)


def write_out(out: Any, result: Any) -> Any:
    """torch's ``out=``: ``out`` takes the result's shape and values, in its own dtype; a warning where it had
    elements in another shape."""
    have, wanted = list(out.raw.shape), list(result.raw.shape)
    if have != wanted and out.raw.size:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {have}, which does not match"
            f" the required output shape {wanted}. This behavior is deprecated, and in a future PyTorch "
            "release outputs will not be resized unless they have zero elements. t.resize_(0) empties t.",
            stacklevel=4,
        )
    return _write(out, result)


def _write(out: Any, result: Any) -> Any:
    if result._track or (out._track and MODE.enabled):
        raise ArgumentError(
            "functions with out=... arguments don't support automatic differentiation, but one of the"
            " arguments requires grad, or has a tangent, which no out= function carries on: call without"
            " out=, or within no_grad()."
        )
    if out.is_inference() and not MODE.inference:
        refuse_writing()
    if not dtypes.can_cast(result.dtype, out.dtype):
        names = [dtypes.scalar_name(t.dtype) for t in (result, out)]
        raise DTypeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    if tuple(out.raw.shape) != tuple(result.raw.shape):
        if WATCHERS.recorder is not None:
            WATCHERS.recorder.exchanged(out)
        out.raw = result.raw.astype(out.raw.dtype)
        out._counter()[0] += 1
        return out
    check_overlap(out.raw)
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.writing(out)
    out.raw[...] = result.raw
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.wrote(out, result.raw)
    out._counter()[0] += 1
    return out
