"""Kernels that replace reference forwards on CUDA, as rows of the backend's table.

Most ops run the shared forwards over ``Namespace``. The exceptions are indexing, because CuPy takes indices
modulo the size where NumPy and PyTorch raise an error, and products of 16-bit floats, which the hardware
multiplies without a conversion to float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.extend import Array, ArrayNamespace, Condition, KernelRow, KernelTable
from tenon.ops import put as _put
from tenon.ops import take as _take
from tenon_cuda.kernels.bounds import check_indices

_HALF_MATRICES = Condition(
    "x.dtype.itemsize == 2 and x.dtype.kind in 'fV' and x.ndim == 2 and y.ndim == 2",
    "matrices, x of 16-bit floats",
    {},
    "x.dtype, x.ndim, y.ndim",
)


def kernel_table() -> KernelTable:
    """All rows; the kernels get the array namespace first."""
    table = KernelTable()
    table.add("take", KernelRow("reference, after a check of the indices", take))
    table.add("put", KernelRow("reference, after a check of the indices", put))
    table.add(
        "matmul", KernelRow("CuPy, products of 16-bit floats summed in float32", matmul, (_HALF_MATRICES,))
    )
    return table


def take(xp: ArrayNamespace, x: Array, *indices: Array, layout: Sequence[object]) -> Array:
    """Advanced indexing, after a check of the indices."""
    check_indices(xp, x, indices, layout)
    return _take.forward(xp, x, *indices, layout=layout)


def put(
    xp: ArrayNamespace,
    x: Array,
    y: Array,
    *indices: Array,
    layout: Sequence[object],
    accumulate: bool = False,
    out: Array | None = None,
) -> Array:
    """Advanced assignment, after a check of the indices; accumulation is deterministic."""
    check_indices(xp, x, indices, layout)
    return _put.forward(xp, x, y, *indices, layout=layout, accumulate=accumulate, out=out)


def matmul(xp: ArrayNamespace, x: Array, y: Array) -> Array:
    """Multiply matrices of 16-bit floats without the reference's conversion to float32."""
    return xp.matmul(x, y)


__all__ = ["kernel_table"]
