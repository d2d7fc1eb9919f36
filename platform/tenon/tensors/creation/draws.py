"""Random tensors by shape: ``rand``, ``randn``, ``randint``, ``randperm`` and ``normal``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon import dtypes, random
from tenon.device import as_device
from tenon.engine.aval import broadcast_shapes
from tenon.engine.grad_mode import MODE
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, ShapeError
from tenon.kernels.backend import backend_for
from tenon.kernels.order import memory_order
from tenon.tensors.creation.create import full as _full
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.factories import kind_of, shape_of, write_out, written
from tenon.tensors.formats import axes_of, preserve_format
from tenon.tensors.layout import plain, with_layout
from tenon.tensors.methods.movement import sizes
from tenon.tensors.methods.titles import titled


def _drawn(
    array_of: Any,
    shape: tuple[int, ...],
    kind: dtypes.dtype,
    device: Any,
    requires_grad: bool,
    name: str = "",
) -> Any:
    """A tensor of what ``array_of()`` draws; ``name`` is what a profile shows, if nobody has shown it yet."""
    if name and WATCHERS.around_creation is not None:
        return WATCHERS.around_creation(name, _drawn, (array_of, shape, kind, device, requires_grad), {})
    if shape and min(shape) < 0:
        raise ShapeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    place = as_device(device)
    if place.type == "meta":
        return _full(shape, None, kind, place, requires_grad)
    if WATCHERS.recorder is not None:
        result = WATCHERS.recorder.host_draw(array_of)
        return result.requires_grad_() if requires_grad else result
    backend = backend_for(place)  # as ``wrap`` does, which asks for the place again: 0.6 us more
    result = Value.make(backend.from_host(array_of(), place), backend)
    return result.requires_grad_() if requires_grad else result


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
    shape, kind = shape_of(size, rest.pop("size", None) if rest else None), kind_of(dtype, out)
    if rest:
        plain("rand", rest)
    draw = lambda: random.uniform(generator, shape, kind.numpy.type)  # noqa: E731
    result = _drawn(draw, shape, kind, device, requires_grad, "rand")
    return result if out is None else written(out, result, dtype)


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
    shape, kind = shape_of(size, rest.pop("size", None) if rest else None), kind_of(dtype, out)
    if rest:
        plain("randn", rest)
    draw = lambda: random.normal(generator, shape, kind.numpy.type)  # noqa: E731
    result = _drawn(draw, shape, kind, device, requires_grad, "randn")
    return result if out is None else written(out, result, dtype)


@with_layout
def randint(
    low: Any = None, high: Any = None, size: Any = None, *, generator: Any = None, dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """Integers in [low, high), PyTorch's for the same seed; ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if high is None or isinstance(high, (tuple, list)):
        low, high, size = 0, low, high if size is None else size
    if high is None:
        raise TypeError('randint() missing 1 required positional arguments: "high"')
    low = 0 if low is None else low
    kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    shape = sizes((size,))
    return written(
        out,
        _drawn(
            lambda: random.randint(generator, low, high, shape, kind.numpy),
            shape,
            kind,
            device,
            requires_grad,
        ),
    )


@with_layout
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
    kind = dtypes.int64 if dtype is None and out is None else kind_of(dtype, out)
    result = _drawn(lambda: random.randperm(generator, n, kind.numpy), (n,), kind, device, requires_grad)
    return written(out, result, dtype)


def _laid_out_as(input: Any, kind: dtypes.dtype, memory_format: Any) -> Any:
    """A host array whose elements lie as ``input``'s, or in ``memory_format``: they are drawn in the order of
    memory."""
    shape = tuple(input.raw.shape)
    if memory_format is None or memory_format is preserve_format:
        axes = memory_order(input.raw)
    else:
        axes = axes_of(memory_format, len(shape))
    if axes is None:
        return np.empty(shape, kind.numpy)
    return np.empty([shape[axis] for axis in axes], kind.numpy).transpose(np.argsort(axes))


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
    kind = dtypes.as_dtype(dtype or input.dtype)
    memory_format = rest.pop("memory_format", None)
    plain("rand_like", rest)
    draw = lambda: random.uniform(generator, out=_laid_out_as(input, kind, memory_format))  # noqa: E731
    return _drawn(draw, tuple(input.shape), kind, device or input.device, requires_grad, "rand_like")


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
    kind = dtypes.as_dtype(dtype or input.dtype)
    memory_format = rest.pop("memory_format", None)
    plain("randn_like", rest)
    draw = lambda: random.normal(generator, out=_laid_out_as(input, kind, memory_format))  # noqa: E731
    return _drawn(draw, tuple(input.shape), kind, device or input.device, requires_grad, "randn_like")


@with_layout
def randint_like(
    input: Any,
    low: int,
    high: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:
    """Integers in [low, high) in ``input``'s shape."""
    low, high = (0, low) if high is None else (low, high)
    kind = dtypes.as_dtype(dtype or input.dtype)
    draw = lambda: random.randint(None, low, high, out=_laid_out_as(input, kind, memory_format))  # noqa: E731
    return _drawn(draw, tuple(input.shape), kind, device or input.device, requires_grad)


@watched_creation
@titled(lambda mean, std=1.0, *a, **k: f"Normal{2 * isinstance(std, Value) + isinstance(mean, Value)}")
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    out: Any = None,
    **rest: Any,
) -> Any:
    """Normal numbers with the given means and deviations (numbers or tensors)."""
    requires_grad = bool(rest.pop("requires_grad", False))
    plain("normal", rest)
    if isinstance(mean, Value) or isinstance(std, Value):
        place = mean.device if isinstance(mean, Value) else std.device  # type: ignore[attr-defined]
        broadcast_shapes(*(v.raw.shape for v in (mean, std) if isinstance(v, Value)))  # or ShapeError
        parts = [v._backend.to_host(v.raw) if isinstance(v, Value) else v for v in (mean, std)]
        result = wrap(random.normal(generator, mean=parts[0], std=parts[1]), place)
        tracked: Any = [v for v in (mean, std) if isinstance(v, Value) and v.requires_grad]  # type: ignore[attr-defined]
        if tracked and MODE.enabled:  # a gradient of zeros, as torch has it
            result = tracked[0].expand(result.raw.shape).clone().copy_(result)
        return result if out is None else write_out(out, result)
    if size is None:
        raise TypeError("normal(): argument 'size' is missing: numbers say no shape; pass size=.")
    shape, kind = sizes((size,)), kind_of(dtype)
    return written(
        out,
        _drawn(
            lambda: random.normal(generator, shape, kind.numpy.type, mean, std),
            shape,
            kind,
            device,
            requires_grad,
        ),
    )
