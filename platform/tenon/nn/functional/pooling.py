"""Pooling in one, two and three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, TypeAlias

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.dtypes import uint8
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn.functional.arguments import PerAxis, per_axis, refuse_integers, refuse_short_integers
from tenon.tensors.memory_formats import (
    channels_last_3d,
    contiguous,
    is_contiguous,
    like,
    with_gradient_in_format,
)

if TYPE_CHECKING:
    from tenon.engine.types import Attrs
    from tenon.tensors.tensor import Tensor

#: Output sizes of an adaptive pool: one for every axis, or one per axis; None keeps the input's size.
OutputSize: TypeAlias = int | list[int] | list[int | None] | tuple[int | None, ...] | None


def _batched(x: Tensor, rank: int) -> tuple[Tensor, bool]:
    """Return ``x`` with a batch axis, and whether one was added."""
    if x.raw.ndim == rank + 2:
        return x, False
    if x.raw.ndim == rank + 1:
        return x.unsqueeze(0), True
    raise ShapeError(
        f"non-empty {rank + 1}D or {rank + 2}D (batch mode) tensor expected for input, got"
        f" {list(x.raw.shape)}"
    )


def _per_axis(value: PerAxis, rank: int, name: str, kind: str) -> tuple[int, ...]:
    """Return ``value`` as ``rank`` integers.

    Raises ShapeError for a wrong number of them, with the message of PyTorch's ``{kind}_pool{rank}d``: each
    function has its own.
    """
    if not isinstance(value, (tuple, list)) or len(value) in (1, rank):
        return per_axis(value, rank, name)
    optional, count = name == "stride", ("one", "two", "three")[rank - 1]
    if rank > 1:
        either = ("", "either ")[kind == "max" or rank == 2]
        verb = f"be {either}" if name == "dilation" else f"{either}be "
        text = f"{kind}_pool{rank}d: {name} must {verb}{'omitted, ' * optional}a single int, or a tuple of"
        text = f"{text} {count} ints, but got {list(value)}"
    elif kind == "max":
        comma = "," if name in ("stride", "padding") else ""
        text = f"max_pool1d() {name} must be {'None, ' * optional}an int, list of ints{comma} or tuple of"
        text = f"{text} ints of size 1 but got size {len(value)}"
    else:
        text = f"avg_pool1d() argument '{name}' should contain one int (got {len(value)})"
    raise ShapeError(text)


def _window_attrs(
    kernel_size: PerAxis, stride: PerAxis | None, padding: PerAxis, rank: int, kind: str
) -> Attrs:
    """Return kernel, stride and padding as attributes of a pooling op; the default stride is the kernel."""
    kernel = _per_axis(kernel_size, rank, "kernel_size", kind)
    if stride is None or (isinstance(stride, (list, tuple)) and not stride):
        stride = kernel
    return {
        "kernel": kernel,
        "stride": _per_axis(stride, rank, "stride", kind),
        "padding": _per_axis(padding, rank, "padding", kind),
    }


def output_sizes(x: Tensor, output_size: OutputSize, rank: int, kind: str) -> tuple[int, ...]:
    """Return the spatial sizes of an adaptive pool of ``x[N, C, *S]``, "avg" or "max" by ``kind``.

    Raises ShapeError for a wrong number of sizes, with PyTorch's messages.
    """
    sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * rank
    if len(sizes) == rank:
        return tuple(
            input_size if s is None else index(s)
            for s, input_size in zip(sizes, x.raw.shape[2:], strict=True)
        )
    name = f"adaptive_{kind}_pool{rank}d"
    if rank == 1:
        raise ShapeError(f"{name}() argument 'output_size' should contain one int (got {len(sizes)})")
    if kind == "max":
        raise ShapeError(f"{name}(): internal error: output_size.size() must be {rank}, got {list(sizes)}")
    raise ShapeError(f"{name}: output_size must be {rank}, got {list(sizes)}")


def gather_spatial(x: Tensor, indices: Tensor) -> Tensor:
    """Gather the elements of ``x[N, C, *S]`` at flat spatial indices ``indices[N, C, *S']``."""
    lead, shape = x.raw.shape[:2], tuple(indices.raw.shape)
    flat_x = f.reshape(x, shape=(*lead, math.prod(x.raw.shape[2:])))
    flat_indices = f.reshape(indices, shape=(*lead, math.prod(shape[2:])))
    return f.reshape(f.gather(flat_x, flat_indices, axis=2), shape=shape)


def _max_pool(
    x: Tensor, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis, dilation: PerAxis, ceil: bool,
    return_indices: bool, rank: int,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Return the maxima of the windows of ``x``, with their flat spatial indices if ``return_indices``."""
    x, added = _batched(x, rank)
    attrs = _window_attrs(kernel, stride, padding, rank, "max")
    dilations = _per_axis(dilation, rank, "dilation", "max")
    is_dilated = set(dilations) != {1}
    if x.dtype is uint8 and not (ceil or return_indices or is_dilated):
        pooled = f.int8_max_pool(x, **attrs)  # int8 layers; padding with 0 is right, as it is uint8's minimum
        return pooled.squeeze(0) if added else pooled
    attrs |= {"dilation": dilations, "ceil_mode": bool(ceil)}
    indices = f.max_pool_indices(x.detach(), **attrs) if return_indices else None
    if indices is not None and not is_dilated:
        # Gather the values at the indices: so changing the indices in place makes backward raise, as in
        # PyTorch.
        pooled = like(gather_spatial(with_gradient_in_format(x), indices), indices)
    else:  # a dilated window may be in the padding alone, and has no valid index then
        pooled = f.max_pool(x, **attrs)
    if not added:
        return pooled if indices is None else (pooled, indices)
    if rank == 3 and not is_contiguous(x.raw) and is_contiguous(x.raw, channels_last_3d):
        # PyTorch keeps the memory format of one volume without a batch, but not of one image.
        pooled = contiguous(pooled, channels_last_3d)
        indices = None if indices is None else contiguous(indices, channels_last_3d)
    return pooled.squeeze(0) if indices is None else (pooled.squeeze(0), indices.squeeze(0))


@titled("Squeeze1")
def max_pool1d(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Largest element of each window of ``input[N, C, L]``."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, 1)


@titled("MaxPool2DWithIndices0")
def max_pool2d(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Largest element of each window of ``input[N, C, H, W]``."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, 2)


@titled("MaxPool3DWithIndices0")
def max_pool3d(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Largest element of each window of ``input[N, C, D, H, W]``."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, 3)


def _max_pool_with_indices(
    x: Tensor,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: PerAxis,
    dilation: PerAxis,
    ceil: bool,
    rank: int,
) -> tuple[Tensor, Tensor]:
    pooled, indices = _max_pool(x, kernel, stride, padding, dilation, ceil, True, rank)
    return pooled, indices


@titled("Squeeze1")
def max_pool1d_with_indices(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool1d`` and the flat spatial index of each maximum; ``return_indices`` has no effect, as in
    PyTorch."""
    return _max_pool_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode, 1)


@titled("MaxPool2DWithIndices0")
def max_pool2d_with_indices(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool2d`` and the flat spatial index of each maximum; ``return_indices`` has no effect, as in
    PyTorch."""
    return _max_pool_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode, 2)


@titled("MaxPool3DWithIndices0")
def max_pool3d_with_indices(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    dilation: PerAxis = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool3d`` and the flat spatial index of each maximum; ``return_indices`` has no effect, as in
    PyTorch."""
    return _max_pool_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode, 3)


def _avg_pool(
    x: Tensor, kernel: PerAxis, stride: PerAxis | None, padding: PerAxis, ceil: bool, include_pad: bool,
    divisor: int | None, rank: int,
) -> Tensor:  # fmt: skip
    """Return the means of the windows of ``x``."""
    divisor = None if divisor is None else index(divisor)
    if divisor == 0:
        raise ModuleValueError("divisor must be not zero")
    refuse_short_integers(x, "avg_pool")
    x, added = _batched(x, rank)
    attrs = _window_attrs(kernel, stride, padding, rank, "avg")
    attrs |= {"ceil_mode": bool(ceil), "include_pad": bool(include_pad), "divisor": divisor}
    pooled = f.avg_pool(x, **attrs)
    return pooled.squeeze(0) if added else pooled


@titled("Squeeze1")
def avg_pool1d(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Mean of each window of ``input[N, C, L]``."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, None, 1)


@titled("AvgPool2D0")
def avg_pool2d(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Mean of each window of ``input[N, C, H, W]``."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 2)


@titled("AvgPool3D0")
def avg_pool3d(
    input: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Mean of each window of ``input[N, C, D, H, W]``."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 3)


def _adaptive(x: Tensor, output_size: OutputSize, rank: int) -> Tensor:
    """Return the means of the windows that divide the last ``rank`` axes of ``x`` into ``output_size``."""
    refuse_integers(x, f"adaptive_avg_pool{rank}d")
    x, added = _batched(x, rank)
    sizes = output_sizes(x, output_size, rank, "avg")
    is_global = all(size == 1 for size in sizes)  # a mean in PyTorch, whose gradient is in C order
    pooled = f.adaptive_avg_pool(x if is_global else with_gradient_in_format(x), sizes=sizes)
    return pooled.squeeze(0) if added else pooled


def _gradient_name(rank: int) -> Callable[[Tensor, OutputSize], str]:
    """Return a function of the pool's arguments that gives PyTorch's name of its gradient."""

    def title(input: Tensor, output_size: OutputSize) -> str:
        sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * rank
        return f"AdaptiveAvgPool{rank}D0" if any(s != 1 for s in sizes) else "Mean1"

    return title


@titled("Squeeze1")
def adaptive_avg_pool1d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Means of ``output_size`` windows that cover ``input[N, C, L]`` evenly."""
    return _adaptive(input, output_size, 1)


@titled(_gradient_name(2))
def adaptive_avg_pool2d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Means of windows that cover ``input[N, C, H, W]`` evenly: ``output_size`` rows and columns of them
    (None keeps a size)."""
    return _adaptive(input, output_size, 2)


@titled(_gradient_name(3))
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Means of windows that cover ``input[N, C, D, H, W]`` evenly: ``output_size`` of them per axis (None
    keeps a size)."""
    return _adaptive(input, output_size, 3)
