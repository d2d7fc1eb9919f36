"""``sparse_linear``: an affine map by a sparse weight, of which only the nonzero elements are stored."""

from __future__ import annotations

import math
from typing import ClassVar

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind
from tenon.engine.types import Operand, OpNamespace
from tenon.errors import ShapeError
from tenon.tensors.index_parsing import INDEX


def _flat_transposed(f: OpNamespace, x: Operand) -> Operand:
    """Return ``x[..., K]`` as ``[K, N]``."""
    flat = f.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))
    return f.transpose(flat, axis0=0, axis1=1)


def _gathered(f: OpNamespace, x: Operand, columns: Operand) -> Operand:
    """Return the elements of ``x`` that each stored value is multiplied by: ``[values, N]``."""
    return f.embedding(_flat_transposed(f, x), f.cast(columns, dtype="int64"))


def _offsets(f: OpNamespace, starts: Operand) -> Operand:
    return f.slice_axis(starts, axis=0, start=0, stop=starts.shape[0] - 1)


def _row_gradients(f: OpNamespace, g: Operand, starts: Operand, count: int) -> Operand:
    """Return the row of the gradient to which each stored value contributes: ``[values, N]``."""
    return f.segment_spread(_flat_transposed(f, g), _offsets(f, starts), end=count, rows=count)


class SparseLinear(Composite):
    """``x @ W.T + bias`` over the last axis of ``x``, for ``W`` in compressed sparse rows.

    Row ``r`` of ``W`` has ``values[starts[r]:starts[r + 1]]`` at the ``columns`` of the same indices.
    ``bias`` may be None.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "values", "columns", "starts", "bias")
    saves = ("x", "values", "columns", "starts")
    reads: ClassVar[dict[str, tuple[str, ...]]] = {
        "x": ("values", "columns", "starts"),
        "values": ("x", "columns", "starts"),
        "bias": (),
    }

    def decompose(self, f, x, values, columns, starts, bias):
        count, rows = values.shape[0], starts.shape[0] - 1
        if columns.shape != values.shape or rows < 0:
            raise ShapeError(
                f"sparse_linear: {count} values have {columns.shape[0]} columns and {rows} rows. Give one"
                " column to each value, and starts of one element more than there are rows."
            )
        scaled = f.mul(_gathered(f, x, columns), f.reshape(values, shape=(count, 1)))
        summed = f.segment_sum(scaled, _offsets(f, starts), end=count)
        result = f.reshape(f.transpose(summed, axis0=0, axis1=1), shape=(*x.shape[:-1], rows))
        return result if bias is None else f.add(result, bias)

    # d(x @ W.T) = dx @ W.T + x @ dW.T, with dW where W has values
    def vjp_x(self, f, g, out, x, values, columns, starts, bias):
        count = values.shape[0]
        scaled = f.mul(_row_gradients(f, g, starts, count), f.reshape(values, shape=(count, 1)))
        blank = f.new_full(scaled, shape=(x.shape[-1], scaled.shape[1]), value=0)
        result = f.put(blank, scaled, f.cast(columns, dtype="int64"), layout=(INDEX,), accumulate=True)
        return f.reshape(f.transpose(result, axis0=0, axis1=1), shape=tuple(x.shape))

    def vjp_values(self, f, g, out, x, values, columns, starts, bias):
        return f.sum(
            f.mul(_row_gradients(f, g, starts, columns.shape[0]), _gathered(f, x, columns)), axes=(1,)
        )

    def vjp_bias(self, f, g, out, x, values, columns, starts, bias):
        return f.sum_to(g, shape=tuple(bias.shape))

    def infer(self, x, values, columns, starts, bias):
        """One element per row of the weight."""
        result = super().infer(x, values, columns, starts, bias)
        return Aval((*x.shape[:-1], starts.shape[0] - 1), result.dtype)

    def cost(self, x, values, columns, starts, bias):
        """One multiplication and one addition for every stored value and row of ``x``."""
        return 2.0 * math.prod(x.shape[:-1]) * values.size


sparse_linear = SparseLinear()
