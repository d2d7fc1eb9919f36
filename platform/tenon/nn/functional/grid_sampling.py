"""Sampling images at any coordinates: ``grid_sample``, and grids of affine maps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.aval import refuse_kinds
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError, TenonWarning, UnsupportedError
from tenon.ops.dtype_queries import dtype_of
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.tensors.tensor import Tensor

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
#: The numbers of the modes in ``torch.grid_sampler``.
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


@titled(lambda input, *a, **k: f"GridSampler{input.raw.ndim - 2}D0")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """``input[N, C, H, W]`` read at ``grid[N, H', W', 2]``, or ``[N, C, D, H, W]`` at ``[N, D', H', W', 3]``.

    Grid values are between -1 and 1, the last axis of the input first.
    """
    if mode not in _MODES:
        raise ModuleValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got:"
            f" '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ModuleValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but"
            f" got: '{padding_mode}'"
        )
    if align_corners is None:
        _warn("grid_sample")
    return _grid_sample(input, grid, _MODES[mode], padding_mode, bool(align_corners))


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``grid_sample`` with the modes as numbers, those of ``GRID_SAMPLE_INTERPOLATION_MODES`` and
    ``GRID_SAMPLE_PADDING_MODES``: what ``torch.grid_sampler`` takes."""
    modes, paddings = list(GRID_SAMPLE_INTERPOLATION_MODES), list(GRID_SAMPLE_PADDING_MODES)
    for name, number in (("interpolation_mode", interpolation_mode), ("padding_mode", padding_mode)):
        if number not in (0, 1, 2):
            raise ModuleValueError(f"grid_sampler: {name} should be 0, 1 or 2, but got {number}.")
    return grid_sample(input, grid, modes[interpolation_mode], paddings[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler
_grid_sampler_2d_cpu_fallback = grid_sampler  # PyTorch's reference implementation


def _warn(name: str) -> None:
    """Warn that ``align_corners`` was left to its default."""
    warnings.warn(
        f"Default {name} and affine_grid behavior has changed to align_corners=False since 1.3.0. Please"
        " specify align_corners=True if the old behavior is desired. See the documentation of grid_sample"
        " for details.",
        TenonWarning,
        stacklevel=3,
    )


@runs_in("widest", cuda="widest")
def _grid_sample(x: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """Return ``x`` sampled at ``grid``; ``mode`` is a value of ``_MODES``.

    Of 16-bit floats it is computed in float32: a coordinate that is rounded may fall on another element.
    """
    _check(x.raw, grid.raw, mode)
    if x.raw.dtype.itemsize == 2 and x.is_floating_point():
        return _sampled(x.float(), grid.float(), mode, padding, align).to(x.dtype)
    return _sampled(x, grid, mode, padding, align)


def _sampled(x: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    shape = tuple(x.raw.shape)
    sizes, outs = shape[2:], tuple(grid.raw.shape[1:-1])
    points = f.reshape(grid, shape=(shape[0], math.prod(outs), len(sizes)))
    attrs = {"sizes": sizes, "mode": mode, "padding": padding, "align": align}
    indices = f.grid_places(points.detach(), **attrs)
    weights = f.grid_weights(points, **attrs)
    result = f.tap_sum(f.reshape(x, shape=(*shape[:2], math.prod(sizes))), weights, indices)
    return f.reshape(result, shape=(*shape[:2], *outs))


def _check(x: Array, grid: Array, mode: str) -> None:
    """Raise ShapeError, with PyTorch's messages, unless ``grid`` fits ``x``."""
    sizes = f"input with sizes {list(x.shape)} and grid with sizes {list(grid.shape)}"
    if dtype_of(x) != dtype_of(grid):
        raise ShapeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {dtype_of(x)} and"
            f" grid has {dtype_of(grid)}"
        )
    refuse_kinds("grid_sampler", "c", grid)
    if x.shape[0] != grid.shape[0]:
        raise ShapeError(f"grid_sampler(): expected grid and input to have same batch size, but got {sizes}")
    if grid.shape[-1] != x.ndim - 2:
        raise ShapeError(
            f"grid_sampler(): expected grid to have size {x.ndim - 2} in last dimension, but got grid with"
            f" sizes {list(grid.shape)}"
        )
    if 0 in x.shape[2:]:
        raise ShapeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes"
            f" {list(x.shape)} with dimension {x.shape.index(0, 2)} being empty"
        )
    if x.ndim not in (4, 5) or x.ndim != grid.ndim:
        raise ShapeError(
            f"grid_sampler(): expected {4 if x.ndim == 4 else 5}D input and grid with same number of"
            f" dimensions, but got {sizes}"
        )
    if mode == "cubic" and x.ndim == 5:
        raise ShapeError("grid_sampler(): bicubic interpolation only supports 4D input")


@titled("AffineGridGenerator0")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for ``grid_sample`` that maps outputs of ``size`` by ``theta[N, 2, 3]`` or ``[N, 3, 4]``."""
    if align_corners is None:
        _warn("affine_grid")
    sizes = tuple(index(s) for s in size)
    if dtype_of(theta.raw).kind not in "fV":
        raise ModuleValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(sizes) not in (4, 5):
        raise UnsupportedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got"
            f" size {list(sizes)}."
        )
    rank = len(sizes) - 2
    if tuple(theta.raw.shape[-2:]) != (rank, rank + 1) or theta.raw.ndim != 3:
        raise ModuleValueError(
            f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size"
            f" {list(sizes)}. Got {list(theta.raw.shape)}."
        )
    if min(sizes) <= 0:
        raise ModuleValueError(f"Expected non-zero, positive output size. Got {list(sizes)}")
    if align_corners and 1 in sizes[2:]:
        warnings.warn(
            "affine_grid of a unit-size axis with align_corners=True gives 0 there, the middle, since torch"
            " 1.3 (before it was -1). See the documentation of affine_grid for details.",
            TenonWarning,
            stacklevel=2,
        )
    result = f.affine_grid(theta, sizes=sizes[2:], align=bool(align_corners))
    return f.reshape(result, shape=(sizes[0], *sizes[2:], rank))
