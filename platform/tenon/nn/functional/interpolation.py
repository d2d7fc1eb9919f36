"""Resizing by interpolation: ``interpolate`` and its older names."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.engine.operands import need_flags
from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleTypeError, ModuleValueError, ShapeError, TenonWarning, UnsupportedError
from tenon.nn.functional.arguments import PerAxis, per_axis
from tenon.nn.functional.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from tenon.ops.dtype_queries import dtype_of
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

#: For each axis from the third on, how the op ``resample`` maps it: kind of table, output size, align_corners
#: and scale (None: the ratio of the sizes). None leaves the axis unchanged.
_Plan: TypeAlias = tuple[tuple[str, int, bool, float | None] | None, ...]

_AREA = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)
#: Mode -> kind of table, and the number of axes it is for (None: any).
_MODES = {
    "nearest": ("nearest", None),
    "nearest-exact": ("nearest-exact", None),
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "trilinear": ("linear", 3),
    "bicubic": ("cubic", 2),
    "lanczos": ("lanczos", 2),
}
_FILTERED = ("bilinear", "bicubic", "lanczos")
#: The largest denominator of a scale factor that is taken for a fraction.
_LARGEST_DENOMINATOR = 1000


def interpolate(
    input: Tensor,
    size: Tensor | PerAxis | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """``input[N, C, *S]`` resized to ``size`` or by ``scale_factor``, along one, two or three axes.

    ``mode``: "nearest", "nearest-exact", "linear" (one axis), "bilinear", "bicubic", "lanczos" (two),
    "trilinear" (three) or "area".
    """
    if align_corners is not None and mode in ("nearest", "area", "nearest-exact"):
        raise ModuleValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear |"
            " bicubic | trilinear"
        )
    if align_corners is not None:
        need_flags("interpolate", align_corners=align_corners)
    align = bool(align_corners)
    rank = input.raw.ndim - 2
    sizes, scales = _sizes(input, size, scale_factor, recompute_scale_factor, rank)
    if antialias and not (mode in _FILTERED and rank == 2):
        raise ModuleValueError(
            "Anti-alias option is restricted to bilinear, bicubic and lanczos modes and requires a 4-D tensor"
            " as input"
        )
    if mode == "lanczos" and not antialias:
        raise ModuleValueError("Lanczos mode requires antialias=True")
    if mode == "area" and 1 <= rank <= 3:
        return _AREA[rank - 1](input, sizes)
    if mode not in _MODES or not 1 <= rank <= 3 or _MODES[mode][1] not in (None, rank):
        raise _unsupported(mode, rank)
    if 0 in input.raw.shape[1:] or min(sizes) < 1:
        raise ShapeError(
            "Input and output sizes should be greater than 0, but got input (H, W, ...) of"
            f" {list(input.raw.shape)} and output of {list(sizes)}"
        )
    kind = f"antialias-{_MODES[mode][0]}" if antialias else _MODES[mode][0]
    plan = tuple((kind, n, align, s) for n, s in zip(sizes, scales, strict=True))
    run = _resample_in_float32 if mode != "lanczos" else f.resample
    dtype = dtype_of(input.raw)
    if dtype.name == "uint8" and mode in ("bilinear", "bicubic"):
        return _resize_bytes(run, input, plan)
    if dtype.kind not in "fV" and not (dtype.name == "uint8" and kind in ("nearest", "nearest-exact")):
        raise UnsupportedError(
            f"interpolate: mode {mode!r} is not implemented for {input.dtype}; convert with .float() first."
        )
    return run(input, plan=plan)


@runs_in("float32", cuda="float32")
def _resample_in_float32(input: Tensor, plan: _Plan) -> Tensor:
    return f.resample(input, plan=plan)


def _sizes(
    x: Tensor,
    size: Tensor | PerAxis | None,
    factor: float | Sequence[float] | None,
    recompute: bool | None,
    rank: int,
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the output's sizes, and the scales to use (None: the ratio of the sizes), one per spatial
    axis."""
    if size is not None and factor is not None:
        raise ModuleValueError("only one of size or scale_factor should be defined")
    if size is None and factor is None:
        raise ModuleValueError("either size or scale_factor should be defined")
    argument: Any = size if size is not None else factor  # one number, or one for each axis
    is_per_axis = isinstance(argument, (list, tuple))
    if is_per_axis and len(argument) != rank:
        name = "output" if size is not None else "scale_factor"
        raise ModuleValueError(
            f"Input and {name} must have the same number of spatial dimensions, but got input with spatial"
            f" dimensions of {list(x.raw.shape[2:])} and {name} of {list(argument)}. Please provide input"
            " tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, ...,oK) format."
        )
    if size is not None:
        if recompute:
            raise ModuleValueError("recompute_scale_factor is not meaningful with an explicit size.")
        try:
            return per_axis(argument, rank, "size"), (None,) * rank
        except ModuleTypeError as error:
            kinds = [type(n).__name__ for n in (argument if is_per_axis else [argument])]
            raise ModuleTypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but"
                f" got size with types {kinds}. Round with int() first."
            ) from error
    factors = tuple(float(s) for s in argument) if is_per_axis else (float(argument),) * rank
    sizes = tuple(math.floor(n * s) for n, s in zip(x.raw.shape[2:], factors, strict=True))
    if WATCHERS.recorder is not None and WATCHERS.recorder.any_size:
        sizes = tuple(map(_from_fraction, sizes, x.shape[2:], factors))
    return sizes, (None,) * rank if recompute else factors


def _from_fraction(scaled: int, size: int, factor: float) -> int:
    """Return ``scaled``, ``size`` times ``factor``, as computed from ``size`` by integers if it can be.

    A recorder of programs of all sizes sees integers only: 3 * size // 10 for the factor 0.3.
    """
    for denominator in range(1, _LARGEST_DENOMINATOR + 1):
        numerator = round(factor * denominator)
        if numerator / denominator == factor:
            exact = size * numerator // denominator
            return exact if int(exact) == scaled else scaled
    return scaled


def _resize_bytes(run: Callable[..., Tensor], x: Tensor, plan: _Plan) -> Tensor:
    """Resample columns, then rows, and round to bytes after each, as imaging libraries and PyTorch do."""
    result = x.float()
    for steps in ((None, plan[1]), (plan[0], None)):
        result = run(result, plan=steps).round().clamp(0, 255)
    return result.to(x.dtype)


def _unsupported(mode: str, rank: int) -> UnsupportedError:
    """Return the error for a mode that does not exist for ``rank`` spatial axes."""
    expected = _MODES.get(mode, (None, None))[1]
    if expected is not None and 1 <= rank <= 3:
        return UnsupportedError(f"Got {rank + 2}D input, but {mode} mode needs {expected + 2}D input")
    return UnsupportedError(
        "Input Error: Only 3D, 4D and 5D input Tensors supported (got"
        f" {rank + 2}D) for the modes: nearest | linear | bilinear | bicubic | lanczos | trilinear | area |"
        f" nearest-exact (got {mode})"
    )


def _warn(name: str) -> None:
    warnings.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        TenonWarning,
        stacklevel=3,
    )


def upsample(
    input: Tensor,
    size: Tensor | PerAxis | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """``interpolate`` by its former name."""
    _warn("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: PerAxis | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """``interpolate`` by the nearest element, by its former name."""
    _warn("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: PerAxis | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """``interpolate`` by two or three linear axes with aligned corners, by its former name."""
    _warn("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)
