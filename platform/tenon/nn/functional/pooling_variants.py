"""Adaptive and fractional max pooling, max unpooling, and Lp pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, TypeAlias

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.aval import refuse_kinds
from tenon.engine.op import table as f
from tenon.engine.types import Nested
from tenon.errors import DTypeError, IndexRangeError, ModuleValueError, ShapeError
from tenon.kernels.whole_arrays import beside
from tenon.nn.functional.arguments import PerAxis, per_axis, refuse_integers, refuse_short_integers
from tenon.nn.functional.pooling import (
    OutputSize,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    gather_spatial,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    output_sizes,
)
from tenon.ops.dtype_queries import dtype_of, is_short, title_of
from tenon.tensors.alerts import alert_not_deterministic
from tenon.tensors.creation.random_factories import rand
from tenon.tensors.memory_formats import like, with_gradient_in_format

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: Output sizes as parts of the input's: one number for every axis, or one per axis.
OutputRatio: TypeAlias = float | Sequence[float] | None


def _batched(x: Tensor, rank: int, name: str) -> tuple[Tensor, bool]:
    """Return ``x`` with a batch axis, and whether one was added."""
    if x.raw.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got: {list(x.raw.shape)}"
        )
    added = x.raw.ndim == rank + 1
    return (x.unsqueeze(0) if added else x), added


def _values_at(x: Tensor, indices: Tensor, added: bool) -> tuple[Tensor, Tensor]:
    """Return the elements of ``x`` at ``indices``, and ``indices``; without the batch axis if it was
    added."""
    values = like(gather_spatial(with_gradient_in_format(x), indices), indices)
    return (values.squeeze(0), indices.squeeze(0)) if added else (values, indices)


def _adaptive(input: Tensor, output_size: OutputSize, rank: int) -> tuple[Tensor, Tensor]:
    """Return maxima and flat indices of the windows that divide the last axes into ``output_size``."""
    refuse_integers(input, f"adaptive_max_pool{rank}d")
    x, added = _batched(input, rank, f"adaptive_max_pool{rank}d")
    sizes = output_sizes(x, output_size, rank, "max")
    values, indices = _values_at(x, f.adaptive_max_pool_indices(x.detach(), sizes=sizes), added)
    if 0 in sizes and values.requires_grad:
        values.register_hook(_refuse_empty(rank))
    return values, indices


def _refuse_empty(rank: int) -> Callable[[Tensor], None]:
    """Return a tensor hook that raises ShapeError: PyTorch has no gradient of an empty output."""

    def refuse(grad: Tensor) -> None:
        empty = next(axis for axis in range(-rank, 0) if not grad.shape[axis]) + grad.ndim
        raise ShapeError(
            f"adaptive_max_pool{rank}d_backward(): Expected grad_output to have non-zero size for non-batch"
            f" dimensions, but grad_output has sizes {list(grad.shape)} with dimension {empty} being empty"
        )

    return refuse


@titled("Squeeze1")
def adaptive_max_pool1d(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima of ``output_size`` windows that cover ``input[N, C, L]`` evenly."""
    pooled, indices = _adaptive(input, output_size, 1)
    return (pooled, indices) if return_indices else pooled


@titled("AdaptiveMaxPool2D0")
def adaptive_max_pool2d(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima of windows that cover ``input[N, C, H, W]`` evenly: ``output_size`` rows and columns of them
    (None keeps a size)."""
    pooled, indices = _adaptive(input, output_size, 2)
    return (pooled, indices) if return_indices else pooled


@titled("AdaptiveMaxPool3D0")
def adaptive_max_pool3d(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Maxima of windows that cover ``input[N, C, D, H, W]`` evenly: ``output_size`` of them per axis (None
    keeps a size)."""
    pooled, indices = _adaptive(input, output_size, 3)
    return (pooled, indices) if return_indices else pooled


@titled("Squeeze1")
def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """``adaptive_max_pool1d`` and the flat spatial index of each maximum; ``return_indices`` has no effect,
    as in PyTorch."""
    return _adaptive(input, output_size, 1)


@titled("AdaptiveMaxPool2D0")
def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """``adaptive_max_pool2d`` and the flat spatial index of each maximum; ``return_indices`` has no effect,
    as in PyTorch."""
    return _adaptive(input, output_size, 2)


@titled("AdaptiveMaxPool3D0")
def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: OutputSize, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """``adaptive_max_pool3d`` and the flat spatial index of each maximum; ``return_indices`` has no effect,
    as in PyTorch."""
    return _adaptive(input, output_size, 3)


def _exactly(value: PerAxis, rank: int, title: str, name: str) -> tuple[int, ...]:
    """Return ``value`` as ``rank`` integers; a list of one is refused, as by PyTorch's function ``name``."""
    if isinstance(value, (list, tuple)) and len(value) != rank:
        ints = "tuple of Ints" if rank == 2 else "tuple of three Ints"
        raise ShapeError(f"{name}: {title} must either be a single Int or {ints}, but got {list(value)}")
    return per_axis(value, rank, title)


def _fractional(
    input: Tensor, kernel_size: PerAxis, output_size: PerAxis | None, output_ratio: OutputRatio,
    samples: Tensor | None, rank: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return maxima and flat indices of windows whose positions ``samples[N, C, rank]`` in [0, 1) decide."""
    name = f"fractional_max_pool{rank}d"
    if output_size is None and output_ratio is None:
        raise ModuleValueError(f"{name} requires specifying either an output_size or an output_ratio")
    refuse_kinds(name, "c", input.raw)
    x, added = _batched(input, rank, name)
    if 0 in x.raw.shape[1:]:
        raise ShapeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got "
            f"{list(input.raw.shape)}"
        )
    kernel = _exactly(kernel_size, rank, "kernel_size", name)
    if output_size is None:
        ratios = tuple(output_ratio) if isinstance(output_ratio, (list, tuple)) else (output_ratio,) * rank
        if len(ratios) > rank:
            raise ModuleValueError(
                f"{name} requires output_ratio to either be a single Int or tuple of Ints."
            )
        output_size = tuple(int(n * r) for n, r in zip(x.raw.shape[2:], ratios, strict=True))
    sizes = _exactly(output_size, rank, "output_size", name)
    if samples is None:
        samples = beside(x, rand(*x.raw.shape[:2], rank, dtype=x.dtype, device=x.device))
    elif samples.raw.shape[:1] > x.raw.shape[:1]:
        samples = samples[: x.raw.shape[0]]  # PyTorch accepts more rows than samples, and ignores them
    indices = f.fractional_max_pool_indices(x.detach(), samples.detach(), kernel=kernel, sizes=sizes)
    return _values_at(x, indices, added)


@titled("FractionalMaxPool2D0")
def fractional_max_pool2d(
    input: Tensor, kernel_size: PerAxis, output_size: PerAxis | None = None, output_ratio: OutputRatio = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Maxima of randomly placed windows, so many that the result has ``output_size``, or ``output_ratio``
    times the input's size (Graham, 2014)."""
    pooled, indices = _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 2)
    return (pooled, indices) if return_indices else pooled


@titled("FractionalMaxPool3D0")
def fractional_max_pool3d(
    input: Tensor, kernel_size: PerAxis, output_size: PerAxis | None = None, output_ratio: OutputRatio = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Maxima of randomly placed windows, so many that the result has ``output_size``, or ``output_ratio``
    times the input's size (Graham, 2014)."""
    pooled, indices = _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 3)
    return (pooled, indices) if return_indices else pooled


@titled("FractionalMaxPool2D0")
def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: PerAxis, output_size: PerAxis | None = None, output_ratio: OutputRatio = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``fractional_max_pool2d`` and the flat spatial index of each maximum; ``return_indices`` has no effect,
    as in PyTorch."""
    return _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 2)


@titled("FractionalMaxPool3D0")
def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: PerAxis, output_size: PerAxis | None = None, output_ratio: OutputRatio = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``fractional_max_pool3d`` and the flat spatial index of each maximum; ``return_indices`` has no effect,
    as in PyTorch."""
    return _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 3)


def _unpooled_sizes(
    x: Tensor,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    output_size: Sequence[int] | None,
) -> tuple[int, ...]:
    """Return the spatial sizes of the unpooled ``x``: ``output_size`` if a max pool of it can have given
    ``x``."""
    rank = len(kernel)
    if x.raw.ndim < rank:
        raise IndexRangeError(f"max_unpool{rank}d: {x.raw.ndim} axes are fewer than the {rank} to unpool")
    default = tuple(
        (n - 1) * t + k - 2 * p
        for n, t, k, p in zip(x.raw.shape[-rank:], stride, kernel, padding, strict=True)
    )
    if output_size is None:
        return default
    sizes = [index(v) for v in output_size]
    if len(sizes) == rank + 2:
        sizes = sizes[2:]
    if len(sizes) != rank:
        raise ModuleValueError(
            f"output_size should be a sequence containing {rank} or {rank + 2} elements, but it has a length"
            f" of '{len(sizes)}'"
        )
    for axis, (n, t, size) in enumerate(zip(default, stride, sizes, strict=True)):
        if not n - t < size < n + t:
            raise ModuleValueError(
                f'invalid output_size "{sizes}" (dim {axis} must be between {n - t} and {n + t})'
            )
    return tuple(sizes)


def _unpool(
    input: Tensor, indices: Tensor, kernel_size: PerAxis, stride: PerAxis | None, padding: PerAxis,
    output_size: Sequence[int] | None, rank: int,
) -> Tensor:  # fmt: skip
    """Return zeros with the elements of ``input`` at their flat spatial ``indices``."""
    kernel = per_axis(kernel_size, rank, "kernel_size")
    stride = kernel if stride is None else per_axis(stride, rank, "stride")
    sizes = _unpooled_sizes(input, kernel, stride, per_axis(padding, rank, "padding"), output_size)
    if dtype_of(indices.raw).name != "int64":
        raise DTypeError(f"elements in indices should be type int64 but got: {title_of(indices.raw)}")
    if tuple(indices.raw.shape) != tuple(input.raw.shape):
        raise ShapeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.raw.shape)}) but"
            f" got indices tensor with shape: {list(indices.raw.shape)}"
        )
    alert_not_deterministic(f"max_unpooling{max(rank, 2)}d_forward_out")
    x, added = _batched(with_gradient_in_format(input), rank, f"max_unpool{rank}d")
    flat = (*x.raw.shape[:2], math.prod(x.raw.shape[2:]))
    zeros = f.new_full(x.detach(), shape=(*flat[:2], math.prod(sizes)), value=0, dtype=dtype_of(x.raw))
    try:
        result = f.scatter(zeros, f.reshape(indices, shape=flat), f.reshape(x, shape=flat), axis=2)
    except IndexRangeError as error:
        raise IndexRangeError(
            f"Found an invalid max index: {error} (output volumes are of size {'x'.join(map(str, sizes))})"
        ) from error
    result = f.reshape(result, shape=(*flat[:2], *sizes))
    if added:
        return result.squeeze(0)
    return like(result, x) if rank == 2 else result


@titled("Squeeze1")
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Partial inverse of ``max_pool1d``: zeros, with the elements of ``input[N, C, L]`` at their
    ``indices``."""
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 1)


@titled("MaxUnpool2D0")
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Partial inverse of ``max_pool2d``: zeros, with the elements of ``input[N, C, H, W]`` at their
    ``indices``."""
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 2)


@titled("MaxUnpool3D0")
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Partial inverse of ``max_pool3d``: zeros, with the elements of ``input[N, C, D, H, W]`` at their
    ``indices``."""
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 3)


def _lp_pool(
    x: Tensor, norm_type: float, kernel: PerAxis, stride: PerAxis | None, ceil: bool, rank: int,
    average: Callable[..., Tensor], maximum: Callable[..., Nested],
) -> Tensor:  # fmt: skip
    """Return the norms of the windows of ``x``; ``average`` and ``maximum`` pool over ``rank`` axes."""
    if isinstance(norm_type, (int, float)) and math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)  # the minimum of |x| is minus the maximum of -|x|
        return sign * maximum(sign * x.abs(), kernel, stride, 0, 1, ceil)
    refuse_short_integers(x, "lp_pool")
    wide = x.float() if is_short(x) else x  # powers in 16 bits would be infinite, and their gradients NaN
    mean = average(with_gradient_in_format(wide).pow(norm_type), kernel, stride, 0, ceil)
    count = math.prod(per_axis(kernel, rank, "kernel_size"))
    norms = (f.sign(mean) * f.relu(f.abs(mean))).mul(count).pow(1.0 / norm_type)
    return like(norms if wide is x else norms.to(x.dtype), x)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The ``norm_type``-norm of each window of ``input[N, C, L]``."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 1, avg_pool1d, max_pool1d)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The ``norm_type``-norm of each window of ``input[N, C, H, W]``."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 2, avg_pool2d, max_pool2d)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The ``norm_type``-norm of each window of ``input[N, C, D, H, W]``."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 3, avg_pool3d, max_pool3d)
