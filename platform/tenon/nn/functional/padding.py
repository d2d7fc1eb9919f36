"""Padding: constant, reflecting, replicating and circular."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError, UnsupportedError
from tenon.kernels.promotion import fitted
from tenon.nn.functional.arguments import integers
from tenon.ops.spatial.axis_tables import reflected_limit
from tenon.tensors.memory_formats import contiguous
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def pad(
    input: Tensor, pad: Sequence[Tensor | int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """``input`` with ``pad = (before, after)`` per axis, **last axis first**; negative widths crop.

    ``mode`` is "constant" (filled with ``value``), "reflect", "replicate" or "circular".
    """
    widths = list(integers(tuple(pad), "pad"))
    rank = input.raw.ndim
    if len(widths) % 2:
        raise ShapeError(f"Padding length must be divisible by 2, but got {len(widths)} widths: {widths}")
    if len(widths) > 2 * rank:
        raise ShapeError(
            "Padding length should be less than or equal to two times the input dimension but got padding"
            f" length {len(widths)} and input of dimension {rank}"
        )
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if mode == "constant":
        all_pairs = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
        kind = input.raw.dtype
        fill = float(value) if isinstance(value, int) and kind.kind not in "iu" else value or 0
        return f.pad(input, widths=tuple(all_pairs), value=fitted(fill, kind))
    if mode not in ("reflect", "replicate", "circular"):
        raise UnsupportedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise ModuleValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if rank - len(pairs) not in (1, 2) or not 1 <= len(pairs) <= 3:
        raise UnsupportedError(
            f"Padding size {len(widths)} is not supported for {rank}D input tensor.\nSupported combinations"
            " for non-constant padding:\n  - 2D or 3D input: padding size = 2 (pads last dimension)\n  - 3D"
            " or 4D input: padding size = 4 (pads last 2 dimensions)\n  - 4D or 5D input: padding size = 6"
            " (pads last 3 dimensions)"
        )
    if mode != "circular" and 0 in input.raw.shape[rank - len(pairs) - 1 :]:
        raise ShapeError(
            f"Expected {len(pairs) + 1}D or {len(pairs) + 2}D (batch mode) tensor with possibly 0 batch size"
            f" and other non-zero dimensions for input, but got: {list(input.raw.shape)}"
        )
    exact = mode == "replicate" or (mode == "reflect" and len(pairs) < 3)
    result = (_pad_in_float32 if exact else _pad_axes)(input, pairs[::-1], mode)
    # PyTorch drops the memory format in circular mode.
    return contiguous(result) if mode == "circular" else result


def _pad_axes(x: Tensor, pairs: list[tuple[int, int]], mode: str) -> Tensor:
    """Pad the last axes of ``x`` by ``pairs`` of widths; the result is never a view, as in PyTorch."""
    plan: list[tuple[str, int, int] | None] = []
    lead = x.raw.ndim - len(pairs)
    for axis, (before, after) in enumerate(pairs, lead):
        size = x.raw.shape[axis]
        total = size + before + after
        if total < 0:
            raise ShapeError(
                f"Negative padding ({before}, {after}) removes more elements than there are in dimension "
                f"{axis} of input {list(x.raw.shape)}."
            )
        if mode == "replicate" and size and total and min(before, after) <= -size:
            edge = size - 1 if before < 0 else 0  # cropped to nothing: the padding still repeats the edge
            x = f.slice_axis(x, axis=axis, start=edge, stop=edge + 1)
            before, after = 0, total - 1
        if before < 0 or after < 0:
            x = f.slice_axis(x, axis=axis, start=max(-before, 0), stop=size - max(-after, 0))
            before, after = max(before, 0), max(after, 0)
        _check_width(x, axis, before, after, mode)
        plan.append((mode, before, after) if before or after else None)
    return f.resample(x, plan=tuple(plan)) if any(plan) else x.clone()


#: ``_pad_axes`` for the modes that PyTorch's autocast computes in float32.
_pad_in_float32 = runs_in("float32", cuda="given")(_pad_axes)


def _check_width(x: Tensor, axis: int, before: int, after: int, mode: str) -> None:
    """Raise ShapeError if ``x`` is too small along ``axis`` to be padded by these widths in this mode."""
    size = x.raw.shape[axis]
    if max(before, after) <= reflected_limit(mode, size):
        if size or not (before or after):
            return
        raise ShapeError(
            f"Expected a non-empty input to pad by {mode}, but dimension {axis} of {list(x.raw.shape)} is 0"
        )
    if mode == "circular":
        raise ShapeError(
            f"Padding value causes wrapping around more than once. ({before}, {after}) at size {size}"
        )
    raise ShapeError(
        "Padding size should be less than the corresponding input dimension, but got: padding "
        f"({before}, {after}) at dimension {axis} of input {list(x.raw.shape)}"
    )
