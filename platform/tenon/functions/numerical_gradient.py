"""``gradient``: derivatives of sampled functions by second-order differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenon import ops
from tenon.dtypes import uint8
from tenon.engine.aval import refuse_kinds
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.shapes import normalize_axes

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = ["gradient"]


def gradient(
    input: Tensor,
    *,
    spacing: float | Sequence[Tensor | float] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Return the derivatives along each of ``dim`` (None: all axes), as a tuple of tensors of the same shape.

    ``spacing`` is the distance of neighbours, or for each of ``dim`` a distance or a tensor of coordinates.
    ``edge_order`` is the order of the differences at both ends, 1 or 2.
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}.")
    refuse_kinds("gradient", "b", input.raw)
    if input.dtype is uint8:
        raise DTypeError("torch.gradient does not support uint8 input: differences wrap around. Use .int().")
    axes = (dim,) if isinstance(dim, int) else range(input.raw.ndim) if dim is None else tuple(dim)
    normalize_axes(axes, input.raw.ndim)
    steps: list[Any] = (  # of numbers and tensors
        list(spacing)
        if isinstance(spacing, (tuple, list))
        else [1 if spacing is None else spacing] * len(axes)
    )
    if len(steps) != len(axes):
        raise ArgumentError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length {len(axes)},"
            f" but got a list of length {len(steps)}"
        )
    return tuple(_slopes(input, d % input.raw.ndim, s, edge_order) for d, s in zip(axes, steps, strict=True))


def _slopes(x: Tensor, axis: int, spacing: Tensor | float, edge_order: int) -> Tensor:
    """Return the derivative along ``axis``."""
    size = x.raw.shape[axis]
    if size <= edge_order:
        raise ShapeError(
            "torch.gradient expected each dimension size to be at least edge_order+1 = "
            f"{edge_order + 1}, got {size} (dim {axis})"
        )
    first, middle, last = (x.narrow(axis, start, size - 2) for start in range(3))
    ends = [[x.narrow(axis, i % size, 1) for i in order] for order in ((0, 1, 2), (-1, -2, -3))]
    if not isinstance(spacing, Value):
        inner = (last - first) / (2 * spacing)
        outer = [
            _edge(end, (sign * spacing,) * 2, edge_order) for end, sign in zip(ends, (1, -1), strict=True)
        ]
        return ops.cat(outer[0], inner, outer[1], axis=axis)
    steps = _gaps(x, axis, spacing)
    before, after = steps.narrow(axis, 0, size - 2), steps.narrow(axis, 1, size - 2)
    inner = (
        -after / (before * (before + after)) * first
        + (after - before) / (before * after) * middle
        + before / (after * (before + after)) * last
    )
    pairs = [
        [sign * steps.narrow(axis, i % (size - 1), 1) for i in order]
        for sign, order in ((1, (0, 1)), (-1, (-1, -2)))
    ]
    outer = [_edge(end, pair, edge_order) for end, pair in zip(ends, pairs, strict=True)]
    return ops.cat(outer[0], inner, outer[1], axis=axis)


def _gaps(x: Tensor, axis: int, coordinates: Tensor) -> Tensor:
    """Return the distances between neighbours along ``axis``, with as many axes as ``x``."""
    if coordinates.raw.ndim != 1 or coordinates.raw.shape[0] != x.raw.shape[axis]:
        raise ShapeError(
            f"torch.gradient expected the coordinates of dim {axis} to be a vector of {x.raw.shape[axis]} "
            f"numbers, got shape {list(coordinates.raw.shape)}"
        )
    return coordinates.diff().reshape([-1 if a == axis else 1 for a in range(x.raw.ndim)])


def _edge(values: Sequence[Tensor], gaps: Sequence[Tensor | float], edge_order: int) -> Tensor:
    """Return the derivative at an end, from its neighbouring values and their signed distances."""
    near, far = gaps[0], gaps[-1]
    if edge_order == 1:
        return (values[1] - values[0]) / near
    total = near + far
    return (
        -(near + total) / (near * total) * values[0]
        + total / (near * far) * values[1]
        - near / (far * total) * values[2]
    )
