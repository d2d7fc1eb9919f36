"""``nonzero_static``: indices of non-zero elements, as many as are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.engine.op import table as f

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def first_nonzero(x: Tensor, size: int, fill_value: int) -> Tensor:
    """Return the first ``size`` rows of ``x.nonzero()``, then rows of ``fill_value``.

    No shape depends on values, so that it can be captured.
    """
    shape = x.raw.shape
    flat = f.ne(x, 0).reshape(-1)
    kept = min(size, flat.raw.size)
    positions = f.argsort(f.logical_not(flat), axis=0)[:kept]  # stable: the non-zero elements in order
    if not shape:
        return f.new_full(positions, shape=(size, 0), value=fill_value)
    rows = f.stack(*_coordinates(positions, shape), axis=1)
    is_valid = f.le(f.new_full(positions, shape=(kept,), value=1).cumsum(0), flat.sum())
    rows = f.where(is_valid.reshape(kept, 1), rows, fill_value)
    return f.pad(rows, widths=((0, size - kept), (0, 0)), value=fill_value)


def _coordinates(positions: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Return the index on each axis of ``shape`` of flat ``positions``."""
    result: list[Tensor] = []
    for size in reversed(shape):
        result.append(f.remainder(positions, max(size, 1)))
        positions = f.floor_divide(positions, max(size, 1))
    return result[::-1]
