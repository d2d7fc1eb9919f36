"""Tensors by shape: ``zeros``, ``arange``, ``randn`` and their like, with torch's signatures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon import dtypes, random
from tenon.core.create import full as _full
from tenon.core.create import wrap
from tenon.core.methods.movement import sizes
from tenon.core.value import Value
from tenon.device import as_device
from tenon.errors import ArgumentError, DTypeError, ShapeError


def _kind(dtype: Any) -> dtypes.dtype:
    return dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)


def _shape(size: tuple[Any, ...], keyword: Any) -> tuple[int, ...]:
    return sizes(size if keyword is None else (keyword,))


def zeros(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
    **rest: Any,
) -> Any:
    """A tensor of zeros."""
    return _out(out, _full(_shape(size, rest.pop("size", None)), 0, _kind(dtype), device, requires_grad))


def ones(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
    **rest: Any,
) -> Any:
    """A tensor of ones."""
    return _out(out, _full(_shape(size, rest.pop("size", None)), 1, _kind(dtype), device, requires_grad))


def empty(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
    **rest: Any,
) -> Any:
    """A tensor that is not initialised."""
    return _out(out, _full(_shape(size, rest.pop("size", None)), None, _kind(dtype), device, requires_grad))


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
    kind = dtypes.as_dtype(type(fill_value) if dtype is None else dtype)
    return _out(out, _full(sizes((size,)), fill_value, kind, device, requires_grad))


def _like(x: Any, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    kind = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    return _full(x.raw.shape, value, kind, x.device if device is None else device, requires_grad)


def zeros_like(
    input: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """Zeros of ``input``'s shape, dtype and device."""
    return _like(input, 0, dtype, device, requires_grad)


def ones_like(
    input: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """Ones of ``input``'s shape, dtype and device."""
    return _like(input, 1, dtype, device, requires_grad)


def empty_like(
    input: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """An uninitialised tensor of ``input``'s shape, dtype and device."""
    return _like(input, None, dtype, device, requires_grad)


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
    return _like(input, fill_value, dtype, device, requires_grad)


def _range_dtype(dtype: Any, *numbers: Any) -> dtypes.dtype:
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    return dtypes.int64 if all(isinstance(n, int) for n in numbers) else dtypes.get_default_dtype()


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (Value, np.generic)) else value  # type: ignore[union-attr]


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
) -> Any:
    """Numbers from ``start`` (default 0) up to but without ``end``."""
    start, end = (0, start) if end is None else (start, end)
    start, end, step = _number(start), _number(end), _number(step)
    if step == 0:
        raise ArgumentError("step must be nonzero")
    if (end - start) * step < 0:
        raise ArgumentError(
            f"upper bound and lower bound inconsistent with step sign: arange({start}, {end}, {step})"
        )
    kind = _range_dtype(dtype, start, end, step)
    count = math.ceil((end - start) / step)
    if kind.is_floating_point:
        array = (start + np.arange(count) * step).astype(kind.numpy)
    else:
        array = np.arange(count, dtype=np.int64) * int(step) + int(start)
        array = array.astype(kind.numpy)
    return _out(out, wrap(array, device, requires_grad))


def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
) -> Any:
    """``steps`` numbers from ``start`` to ``end``, both included."""
    if steps < 0:
        raise ArgumentError(f"number of steps must be non-negative, got {steps}")
    array = np.linspace(_number(start), _number(end), steps).astype(_kind(dtype).numpy)
    return _out(out, wrap(array, device, requires_grad))


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """``base`` to the powers of ``linspace``."""
    array = np.logspace(_number(start), _number(end), steps, base=base).astype(_kind(dtype).numpy)
    return wrap(array, device, requires_grad)


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
    return _out(out, wrap(np.eye(n, m, dtype=_kind(dtype).numpy), device, requires_grad))


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A 0-d tensor."""
    return _full((), s, _kind(dtype), device, requires_grad)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Any:
    """Rows and columns of the lower triangle."""
    return wrap(np.stack(np.tril_indices(row, offset, col)).astype(_range_dtype(dtype, 0).numpy), device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None) -> Any:
    """Rows and columns of the upper triangle."""
    return wrap(np.stack(np.triu_indices(row, offset, col)).astype(_range_dtype(dtype, 0).numpy), device)


def _drawn(
    array_of: Any, shape: tuple[int, ...], kind: dtypes.dtype, device: Any, requires_grad: bool
) -> Any:
    if any(s < 0 for s in shape):
        raise ShapeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    if as_device(device).type == "meta":
        return _full(shape, None, kind, device, requires_grad)
    return wrap(array_of(), device, requires_grad)


def rand(
    *size: Any,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
    **rest: Any,
) -> Any:
    """Uniform numbers in [0, 1), PyTorch's for the same seed."""
    shape, kind = _shape(size, rest.pop("size", None)), _kind(dtype)
    return _out(
        out,
        _drawn(lambda: random.uniform(generator, shape, kind.numpy.type), shape, kind, device, requires_grad),
    )


def randn(
    *size: Any,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
    **rest: Any,
) -> Any:
    """Standard normal numbers, PyTorch's for the same seed."""
    shape, kind = _shape(size, rest.pop("size", None)), _kind(dtype)
    return _out(
        out,
        _drawn(lambda: random.normal(generator, shape, kind.numpy.type), shape, kind, device, requires_grad),
    )


def randint(
    low: int, high: Any = None, size: Any = None, *, generator: Any = None, dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """Integers in [low, high), PyTorch's for the same seed; ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if high is None or isinstance(high, (tuple, list)):
        low, high, size = 0, low, high if size is None else size
    kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    shape = sizes((size,))
    return _out(
        out,
        _drawn(
            lambda: random.randint(generator, low, high, shape, kind.numpy),
            shape,
            kind,
            device,
            requires_grad,
        ),
    )


def randperm(
    n: int,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Any = None,
) -> Any:
    """A random permutation of ``0..n-1``, PyTorch's for the same seed."""
    if n < 0:
        raise ArgumentError(f"n must be non-negative, got {n}")
    kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    return _out(
        out, _drawn(lambda: random.randperm(generator, n, kind.numpy), (n,), kind, device, requires_grad)
    )


def rand_like(
    input: Any,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Any,
) -> Any:
    """Uniform numbers in ``input``'s shape."""
    return rand(
        tuple(input.shape),
        generator=generator,
        dtype=dtype or input.dtype,
        device=device or input.device,
        requires_grad=requires_grad,
    )


def randn_like(
    input: Any,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **rest: Any,
) -> Any:
    """Standard normal numbers in ``input``'s shape."""
    return randn(
        tuple(input.shape),
        generator=generator,
        dtype=dtype or input.dtype,
        device=device or input.device,
        requires_grad=requires_grad,
    )


def randint_like(
    input: Any,
    low: int,
    high: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Integers in [low, high) in ``input``'s shape."""
    low, high = (0, low) if high is None else (low, high)
    return randint(
        low,
        high,
        tuple(input.shape),
        dtype=dtype or input.dtype,
        device=device or input.device,
        requires_grad=requires_grad,
    )


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
) -> Any:
    """Normal numbers with the given means and deviations (numbers or tensors)."""
    if isinstance(mean, Value) or isinstance(std, Value):
        place = mean.device if isinstance(mean, Value) else std.device  # type: ignore[attr-defined]
        parts = [v._backend.to_host(v.raw) if isinstance(v, Value) else v for v in (mean, std)]
        return _out(out, wrap(random.normal(generator, mean=parts[0], std=parts[1]), place))
    shape, kind = sizes((size,)), _kind(dtype)
    return _out(
        out,
        _drawn(
            lambda: random.normal(generator, shape, kind.numpy.type, mean, std), shape, kind, device, False
        ),
    )


def _out(out: Any, made: Any) -> Any:
    """``made``, or ``out`` holding its values."""
    if out is None:
        return made
    return write_out(out, made)


def write_out(out: Any, made: Any) -> Any:
    """torch's ``out=``: ``out`` takes the result's shape and values, in its own dtype."""
    if made._track:
        raise ArgumentError(
            "functions with out=... arguments don't support automatic differentiation; call without out=."
        )
    if not dtypes.can_cast(made.dtype, out.dtype):
        raise DTypeError(f"result type {made.dtype} can't be cast to the desired output type {out.dtype}")
    if tuple(out.raw.shape) != tuple(made.raw.shape):
        out.raw = made.raw.astype(out.raw.dtype)
        out._counter()[0] += 1
        return out
    out.raw[...] = made.raw
    out._counter()[0] += 1
    return out
