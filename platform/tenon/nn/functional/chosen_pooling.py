"""Pooling by the largest element of uneven windows, its inverse, and power averages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import DTypeError, IndexRangeError, ModuleValueError, ShapeError
from tenon.nn.functional.arguments import per_axis, refuse_integers
from tenon.nn.functional.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    picked,
    refuse_sizes,
)
from tenon.ops.kinds import dtype_of, title_of
from tenon.tensors.alerts import may_differ
from tenon.tensors.creation.draws import rand
from tenon.tensors.formats import entering, like
from tenon.tensors.methods.titles import titled


def _batch(x: Any, rank: int, name: str) -> tuple[Any, bool]:
    if x.raw.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got: {list(x.raw.shape)}"
        )
    added = x.raw.ndim == rank + 1
    return (x.unsqueeze(0) if added else x), added


def _result(x: Any, places: Any, added: bool, indices: bool) -> Any:
    made = like(picked(entering(x), places), places)
    made, places = (made.squeeze(0), places.squeeze(0)) if added else (made, places)
    return (made, places) if indices else made


def _adaptive(input: Any, output_size: Any, indices: bool, rank: int) -> Any:
    refuse_integers(input, f"adaptive_max_pool{rank}d")
    x, added = _batch(input, rank, f"adaptive_max_pool{rank}d")
    given = tuple(output_size) if isinstance(output_size, (list, tuple)) else (output_size,) * rank
    if len(given) != rank:
        refuse_sizes("max", rank, given)
    sizes = tuple(own if s is None else int(s) for s, own in zip(given, x.raw.shape[2:], strict=True))
    made = _result(x, f.adaptive_max_pool_indices(x.detach(), sizes=sizes), added, indices)
    if 0 in sizes:
        first = made[0] if indices else made
        if first.requires_grad:
            first.register_hook(_refuse_empty(rank))
    return made


def _refuse_empty(rank: int) -> Callable[[Any], None]:
    """A hook for a result without windows: torch has no gradient of those."""

    def refuse(grad: Any) -> None:
        empty = next(axis for axis in range(-rank, 0) if not grad.shape[axis]) + grad.ndim
        raise ShapeError(
            f"adaptive_max_pool{rank}d_backward(): Expected grad_output to have non-zero size for non-batch"
            f" dimensions, but grad_output has sizes {list(grad.shape)} with dimension {empty} being empty"
        )

    return refuse


@titled("Squeeze1")
def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of each of ``output_size`` windows of ``input[N, C, L]``."""
    return _adaptive(input, output_size, return_indices, 1)


@titled("AdaptiveMaxPool2D0")
def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of windows laid out for ``output_size`` rows and columns (None keeps a size)."""
    return _adaptive(input, output_size, return_indices, 2)


@titled("AdaptiveMaxPool3D0")
def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of windows laid out for ``output_size`` (None keeps a size)."""
    return _adaptive(input, output_size, return_indices, 3)


@titled("Squeeze1")
def adaptive_max_pool1d_with_indices(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """``adaptive_max_pool1d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _adaptive(input, output_size, True, 1)


@titled("AdaptiveMaxPool2D0")
def adaptive_max_pool2d_with_indices(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """``adaptive_max_pool2d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _adaptive(input, output_size, True, 2)


@titled("AdaptiveMaxPool3D0")
def adaptive_max_pool3d_with_indices(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """``adaptive_max_pool3d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _adaptive(input, output_size, True, 3)


def _exactly(value: Any, rank: int, title: str, name: str) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)) and len(value) != rank:
        ints = "tuple of Ints" if rank == 2 else "tuple of three Ints"
        raise ShapeError(f"{name}: {title} must either be a single Int or {ints}, but got {list(value)}")
    return per_axis(value, rank, title)


def _fractional(
    input: Any, kernel_size: Any, output_size: Any, output_ratio: Any, indices: bool, samples: Any, rank: int
) -> Any:
    name = f"fractional_max_pool{rank}d"
    if output_size is None and output_ratio is None:
        raise ModuleValueError(f"{name} requires specifying either an output_size or an output_ratio")
    x, added = _batch(input, rank, name)
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
        samples = rand(*x.raw.shape[:2], rank, dtype=x.dtype, device=x.device)
    elif samples.raw.shape[:1] > x.raw.shape[:1]:
        samples = samples[: x.raw.shape[0]]  # as torch: more than one row a sample may be given
    places = f.fractional_max_pool_indices(x.detach(), samples.detach(), kernel=kernel, sizes=sizes)
    return _result(x, places, added, indices)


@titled("FractionalMaxPool2D0")
def fractional_max_pool2d(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Any = None,
) -> Any:  # fmt: skip
    """The largest elements of windows at random places that give ``output_size``, or ``output_ratio`` of the
    input's."""
    return _fractional(input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 2)


@titled("FractionalMaxPool3D0")
def fractional_max_pool3d(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Any = None,
) -> Any:  # fmt: skip
    """The largest elements of windows at random places that give ``output_size``, or ``output_ratio`` of the
    input's."""
    return _fractional(input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 3)


@titled("FractionalMaxPool2D0")
def fractional_max_pool2d_with_indices(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Any = None,
) -> Any:  # fmt: skip
    """``fractional_max_pool2d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _fractional(input, kernel_size, output_size, output_ratio, True, _random_samples, 2)


@titled("FractionalMaxPool3D0")
def fractional_max_pool3d_with_indices(
    input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Any = None,
) -> Any:  # fmt: skip
    """``fractional_max_pool3d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _fractional(input, kernel_size, output_size, output_ratio, True, _random_samples, 3)


def _unpooled_sizes(
    x: Any, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], wanted: Any
) -> tuple[int, ...]:
    rank = len(kernel)
    if x.raw.ndim < rank:
        raise IndexRangeError(f"max_unpool{rank}d: {x.raw.ndim} axes are fewer than the {rank} to unpool")
    usual = tuple(
        (n - 1) * t + k - 2 * p
        for n, t, k, p in zip(x.raw.shape[-rank:], stride, kernel, padding, strict=True)
    )
    if wanted is None:
        return usual
    given = [int(v) for v in wanted]
    if len(given) == rank + 2:
        given = given[2:]
    if len(given) != rank:
        raise ModuleValueError(
            f"output_size should be a sequence containing {rank} or {rank + 2} elements, but it has a length"
            f" of '{len(given)}'"
        )
    for axis, (n, t, size) in enumerate(zip(usual, stride, given, strict=True)):
        if not n - t < size < n + t:
            raise ModuleValueError(
                f'invalid output_size "{given}" (dim {axis} must be between {n - t} and {n + t})'
            )
    return tuple(given)


def _unpool(
    input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any, rank: int
) -> Any:
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
    may_differ(f"max_unpooling{max(rank, 2)}d_forward_out")
    x, added = _batch(entering(input), rank, f"max_unpool{rank}d")
    flat = (*x.raw.shape[:2], math.prod(x.raw.shape[2:]))
    zeros = f.new_full(x.detach(), shape=(*flat[:2], math.prod(sizes)), value=0, dtype=dtype_of(x.raw))
    try:
        made = f.scatter(zeros, f.reshape(indices, shape=flat), f.reshape(x, shape=flat), axis=2)
    except IndexRangeError as error:
        raise IndexRangeError(
            f"Found an invalid max index: {error} (output volumes are of size {'x'.join(map(str, sizes))})"
        ) from error
    made = f.reshape(made, shape=(*flat[:2], *sizes))
    if added:
        return made.squeeze(0)
    return like(made, x) if rank == 2 else made


@titled("Squeeze1")
def max_unpool1d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Zeros, and ``input[N, C, L]`` where ``max_pool1d`` found it."""
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 1)


@titled("MaxUnpool2D0")
def max_unpool2d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Zeros, and ``input[N, C, H, W]`` where ``max_pool2d`` found it."""
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 2)


@titled("MaxUnpool3D0")
def max_unpool3d(
    input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Zeros, and ``input[N, C, D, H, W]`` where ``max_pool3d`` found it."""
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 3)


def _power(
    x: Any,
    norm_type: float,
    kernel: Any,
    stride: Any,
    ceil: bool,
    rank: int,
    average: Callable[..., Any],
    largest: Callable[..., Any],
) -> Any:
    if isinstance(norm_type, (int, float)) and math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)  # the smallest is minus the largest of what is below zero
        return sign * largest(sign * x.abs(), kernel, stride, 0, 1, ceil)
    made = average(entering(x).pow(norm_type), kernel, stride, 0, ceil)
    count = math.prod(per_axis(kernel, rank, "kernel_size"))
    return like((f.sign(made) * f.relu(f.abs(made))).mul(count).pow(1.0 / norm_type), x)


def lp_pool1d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """The ``norm_type``-norm of each window of ``input[N, C, L]``."""
    return _power(input, norm_type, kernel_size, stride, ceil_mode, 1, avg_pool1d, max_pool1d)


def lp_pool2d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """The ``norm_type``-norm of each window of ``input[N, C, H, W]``."""
    return _power(input, norm_type, kernel_size, stride, ceil_mode, 2, avg_pool2d, max_pool2d)


def lp_pool3d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Any:
    """The ``norm_type``-norm of each window of ``input[N, C, D, H, W]``."""
    return _power(input, norm_type, kernel_size, stride, ceil_mode, 3, avg_pool3d, max_pool3d)
