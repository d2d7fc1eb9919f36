"""Create tensors by shape: ``zeros``, ``full``, ``eye`` and others, with PyTorch's signatures."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.compat.rerouting import register
from tenon.device import Device
from tenon.engine.grad_mode import MODE
from tenon.engine.operands import wrong_type
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.order import memory_order
from tenon.tensors.creation import triangle_indices
from tenon.tensors.creation.create import full as _full
from tenon.tensors.creation.create import wrap
from tenon.tensors.inplace import check_overlap
from tenon.tensors.layout import check_layout, with_layout
from tenon.tensors.memory_formats import new_in_format
from tenon.tensors.methods.movement import sizes
from tenon.tensors.refused_writes import refuse_writing

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.memory_formats import memory_format
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number, SizeLike


def kind_of(dtype: DTypeLike | None, out: Tensor | None = None) -> dtypes.dtype:
    """Return ``dtype``, else ``out``'s dtype, else the default one."""
    if dtype is None:
        return dtypes.get_default_dtype() if out is None else out.dtype
    return dtypes.as_dtype(dtype)


def shape_of(size: tuple[Any, ...], keyword: Any) -> tuple[int, ...]:  # of SizeLike
    """Return the shape that is passed as sizes, as one sequence, or by the keyword ``size``.

    As PyTorch, refuse a bool as the first size.
    """
    if keyword is not None:
        size = (keyword,)
    first = size[0] if size else None
    if first.__class__ is bool or (isinstance(first, (tuple, list)) and first and first[0].__class__ is bool):
        raise TypeError(
            "argument 'size' (position 1) must be tuple of ints, but found element of type bool at pos 0"
        )
    return sizes(size)


@watched_creation
def zeros(
    *size: SizeLike, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool = False,
    out: Tensor | None = None, **rest: object,
) -> Tensor:  # fmt: skip
    """Return a tensor of zeros (torch.zeros); its shape is one sequence or several sizes.

    The default dtype and device are used unless others are given. With ``out``, that tensor is resized,
    filled and returned.
    """
    shape = shape_of(size, rest.pop("size", None))
    if rest:
        check_layout("zeros", rest)
    return written(out, _full(shape, 0, kind_of(dtype, out), device, requires_grad), dtype)


@watched_creation
def ones(
    *size: SizeLike, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool = False,
    out: Tensor | None = None, **rest: object,
) -> Tensor:  # fmt: skip
    """Return a tensor of ones (torch.ones), with the parameters of ``zeros``."""
    shape = shape_of(size, rest.pop("size", None))
    if rest:
        check_layout("ones", rest)
    return written(out, _full(shape, 1, kind_of(dtype, out), device, requires_grad), dtype)


@watched_creation
def empty(
    *size: SizeLike, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool = False,
    out: Tensor | None = None, **rest: object,
) -> Tensor:  # fmt: skip
    """Return an uninitialised tensor (torch.empty), with the parameters of ``zeros`` and
    ``memory_format``."""
    shape = shape_of(size, rest.pop("size", None))
    result = _full(shape, None, kind_of(dtype, out), device, requires_grad)
    memory_format: Any = rest.pop("memory_format", None)  # a memory_format or None
    if rest:
        check_layout("empty", rest)
    return written(out, new_in_format(result, memory_format), dtype)


@watched_creation
def empty_strided(
    size: SizeLike,
    stride: SizeLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **rest: object,
) -> Tensor:
    """Return an uninitialised tensor of shape ``size`` with the given strides, in elements.

    ShapeError unless there are as many strides as sizes.
    """
    shape, steps = sizes((size,)), sizes((stride,))
    check_layout("empty_strided", rest)
    if len(shape) != len(steps):
        raise ShapeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})"
        )
    count = 0 if 0 in shape else sum((s - 1) * step for s, step in zip(shape, steps, strict=True)) + 1
    memory = _full((count,), None, kind_of(dtype), device)
    result = memory.as_strided(shape, steps, 0).detach()
    return result.requires_grad_() if requires_grad else result


@watched_creation
def empty_permuted(
    size: SizeLike,
    physical_layout: SizeLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **rest: object,
) -> Tensor:
    """Return an uninitialised, dense tensor of shape ``size``.

    ``physical_layout`` lists its axes from the outermost to the innermost in memory.
    """
    shape, order = sizes((size,)), sizes((physical_layout,))
    check_layout("empty_permuted", rest)
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
    size: SizeLike,
    fill_value: Number | Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a tensor of shape ``size`` filled with ``fill_value``, a number or 0-d tensor (torch.full).

    Without ``dtype``, that of the value: bool, int64, the default dtype, or the complex one of its width.
    """
    value = fill_value.item() if isinstance(fill_value, Value) else fill_value
    kind = dtypes.of_number(value) if dtype is None and out is None else kind_of(dtype, out)
    return written(out, _full(sizes((size,)), value, kind, device, requires_grad), dtype)


def _like(
    x: Tensor,
    value: Number | None,
    dtype: DTypeLike | None,
    device: DeviceLike,
    requires_grad: bool,
    memory_format: memory_format | None,
) -> Tensor:
    """Return a tensor of one value (None: uninitialised) with ``x``'s shape, strides, dtype and device."""
    kind = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    target = x.device if device is None else device
    if x._backend.own is not x._backend:
        return _sharded_like(x, value, kind, Device(target)).requires_grad_(requires_grad)
    order = None if WATCHERS.recorder is not None else memory_order(x.raw)
    if order is None:
        return new_in_format(_full(x.raw.shape, value, kind, target, requires_grad), memory_format)
    result = _full([x.raw.shape[axis] for axis in order], value, kind, target)
    result = result.permute([order.index(axis) for axis in range(len(order))]).detach()
    return new_in_format(result.requires_grad_(requires_grad), memory_format)


def _sharded_like(x: Tensor, value: Number | None, kind: dtypes.dtype, device: Device) -> Tensor:
    """``_like`` for a sharded tensor, with the same placements."""
    backend = x._backend.on_device(device)
    result: Tensor = Value.make(backend.empty_like(x.raw, kind.numpy, device), backend)
    return result if value is None else result.fill_(value)


@with_layout
def zeros_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:
    """Return zeros with the shape, strides, dtype and device of ``input``, except where given."""
    return _like(input, 0, dtype, device, requires_grad, memory_format)


@with_layout
def ones_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:
    """Return ones with the shape, strides, dtype and device of ``input``, except where given."""
    return _like(input, 1, dtype, device, requires_grad, memory_format)


@with_layout
def empty_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:
    """Return an uninitialised tensor with the shape, strides, dtype and device of ``input``, except where
    given."""
    return _like(input, None, dtype, device, requires_grad, memory_format)


@with_layout
def full_like(
    input: Tensor,
    fill_value: Number,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:
    """Return a tensor filled with ``fill_value``, with the shape, strides, dtype and device of ``input``,
    except where given."""
    if fill_value is None:  # to ``_like``, memory as it is
        raise wrong_type("full_like", "fill_value", 2, fill_value, "Number")
    return _like(input, fill_value, dtype, device, requires_grad, memory_format)


@with_layout
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return an ``n`` by ``m`` matrix (default: square) with ones on the main diagonal and zeros elsewhere.

    ArgumentError for negative sizes.
    """
    if n < 0 or (m is not None and m < 0):
        raise ShapeError(
            f"n must be greater or equal to 0, got {n}"
            if n < 0
            else f"m must be greater or equal to 0, got {m}"
        )
    return written(out, wrap(np.eye(n, m, dtype=kind_of(dtype, out).numpy), device, requires_grad), dtype)


@with_layout
def scalar_tensor(
    s: Number, *, dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return a 0-d tensor with the value ``s``, by default of the default dtype."""
    if s is None:
        raise wrong_type("scalar_tensor", "s", 1, s, "Number")
    return _full((), s, kind_of(dtype), device, requires_grad)


def _check_sizes(row: int, col: int) -> None:
    for name, size in (("row", row), ("col", col)):
        if size < 0:
            raise ShapeError(f"{name} must be non-negative, got {size}")


@with_layout
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike = None
) -> Tensor:
    """Return the row and column indices ``[2, n]`` of the lower triangle of a ``row`` by ``col`` matrix.

    ``offset`` is the highest diagonal included: 0 is the main one, positive numbers are above it.
    """
    _check_sizes(row, col)
    return wrap(
        triangle_indices.lower(
            row, col, offset, (dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)).numpy
        ),
        device,
    )


@with_layout
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike = None
) -> Tensor:
    """Return the row and column indices ``[2, n]`` of the upper triangle of a ``row`` by ``col`` matrix.

    ``offset`` is the lowest diagonal included: 0 is the main one, positive numbers are above it.
    """
    _check_sizes(row, col)
    return wrap(
        triangle_indices.upper(
            row, col, offset, (dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)).numpy
        ),
        device,
    )


def written(out: Tensor | None, result: Tensor, dtype: DTypeLike | None = None) -> Tensor:
    """Return ``result``, or ``out`` with its values written in; ``out`` must be of ``dtype`` where given."""
    if out is None:
        return result
    if dtype is not None and out.dtype is not result.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (result, out)]
        raise DTypeError(f"dtype {names[0]} does not match dtype of out parameter ({names[1]})")
    return _write(out, result)


def write_out(out: Tensor, result: Tensor) -> Tensor:
    """Write ``result`` into ``out`` as PyTorch's ``out=`` does: ``out`` keeps its dtype and gets the result's
    shape, with a warning if it had elements in another shape."""
    shape, required = list(out.raw.shape), list(result.raw.shape)
    if shape != required and out.raw.size:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {shape}, which does not"
            f" match the required output shape {required}. This behavior is deprecated, and in a future"
            " PyTorch release outputs will not be resized unless they have zero elements. t.resize_(0)"
            " empties t.",
            stacklevel=4,
        )
    return _write(out, result)


def _write(out: Tensor, result: Tensor) -> Tensor:
    if result._track or (out._track and MODE.enabled):
        raise ArgumentError(
            "functions with out=... arguments don't support automatic differentiation, but one of the"
            " arguments requires grad or has a tangent, which out= would lose: call without out=, or within"
            " no_grad()."
        )
    if out.is_inference() and not MODE.inference:
        refuse_writing()
    if not dtypes.can_cast(result.dtype, out.dtype):
        names = [dtypes.scalar_name(t.dtype) for t in (result, out)]
        raise DTypeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    out._settle()
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


_LIKE = (empty_like, full_like, ones_like, zeros_like)
_BARE = (
    empty, empty_permuted, empty_strided, eye, full, ones, scalar_tensor, tril_indices, triu_indices, zeros,
)  # fmt: skip
register("torch", {f.__name__: f for f in (*_LIKE, *_BARE)}, bare=[f.__name__ for f in _BARE])
