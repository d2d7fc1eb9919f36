"""Rows of the table: matrix products and attention."""

from __future__ import annotations

import numpy as np

from tenon.extend import Condition, KernelRow, KernelTable, requires
from tenon_cpu.jit import attention
from tenon_cpu.jit.eager_ops import filling as eager_filling
from tenon_cpu.jit.eager_ops import sparse as eager_sparse
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.kernels import contraction
from tenon_cpu.kernels.contraction import LARGE, SHARED
from tenon_cpu.onednn import available as onednn
from tenon_cpu.onednn import eager
from tenon_cpu.table.conditions import LLVM

_STRIDES = "where oneDNN cannot read the strides, rows or columns are few, or it has no fast kernel"
_SMALL = Condition(
    f"x.size * y.size < {LARGE}",
    f"elements of x times those of y are fewer than {LARGE:,}: nothing to share among threads",
    {},
    "x.size, y.size",
)
_VECTORS = Condition(
    "0 < x.ndim < 3 and 0 < y.ndim < 3 and x.dtype.char in 'fd'",
    "vectors or matrices, x of float32 or float64",
    {},
    "x.ndim, y.ndim, x.dtype",
)
#: ``_VECTORS`` with dtypes compared by identity, which is cheaper; calls that it misses reach the last row.
_QUICK_VECTORS = Condition(
    "0 < x.ndim < 3 and 0 < y.ndim < 3 and (x.dtype is float32 or x.dtype is float64)",
    _VECTORS.says,
    {"float32": FLOAT, "float64": np.dtype(np.float64)},
    _VECTORS.shown,
)
_MATRICES = Condition(
    "x.ndim == 2 == y.ndim and x.dtype is y.dtype and x.dtype.char in 'fd' and x.shape[1] == y.shape[0]",
    "matrices that fit, both of float32 or both of float64",
    {},
    "x.shape, y.shape",
)


def _batches(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(
        x.ndim >= 3
        and y.ndim == x.ndim
        and x.dtype is y.dtype
        and x.dtype.char in "fd"
        and x.shape[:-2] == y.shape[:-2]
        and x.shape[-1] == y.shape[-2]
        and x.size * y.shape[-1] >= SHARED
    )


_FITS = (
    "and (bias is None or (bias.dtype is x.dtype and bias.shape == weight.shape[:1])) "
    "and x.shape[-1] == weight.shape[1]"
)
_AFFINE = Condition(
    f"x.dtype is weight.dtype and x.dtype.char in 'fd' and weight.ndim == 2 and x.ndim {_FITS}",
    "arrays that fit, all of float32 or all of float64",
    {},
    "x.dtype, x.shape, weight.dtype, weight.shape",
)
_SHORT_AFFINE = Condition(
    "x.dtype is weight.dtype and x.dtype.itemsize == 2 and x.dtype.kind in 'fV' "
    f"and weight.ndim == 2 and x.ndim {_FITS}",
    "arrays that fit, all of float16 or all of bfloat16",
    {},
    "x.dtype, x.shape, weight.dtype, weight.shape",
)
#: Excludes products too small for oneDNN; cheaper to test than ``eager.linear_is_faster``.
_NOT_TINY = Condition(
    f"x.size * weight.size >= {eager.LEAST_BFLOAT}",
    f"elements of x times those of weight are {eager.LEAST_BFLOAT:,} or more",
    {},
    "x.size, weight.size",
)
_OUTER = Condition(
    f"x.size * y.size >= {MIN_ELEMENTS}",
    f"a result of {MIN_ELEMENTS:,} elements or more",
    {},
    "x.size, y.size",
)
_OUTER_FLOAT = Condition(
    "x.dtype is y.dtype is float32 and x.flags.carray and y.flags.carray",
    "float32 in C order",
    {"float32": FLOAT},
    "x.dtype, y.dtype",
)


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    table.add(
        "matmul",
        # The BLAS call of matmul with a third of its overhead (0.3 against 0.9 us).
        KernelRow("NumPy, dot", np.ndarray.dot, (_SMALL, _QUICK_VECTORS)),
        KernelRow(
            "oneDNN",
            eager.matmul,
            (requires(eager.matmul_is_faster, "float32 or bfloat16, and enough work for oneDNN"),),
            _STRIDES,
            onednn,
        ),
        KernelRow("NumPy, split among threads", contraction.matrices, (_MATRICES,)),
        KernelRow(
            "NumPy, batches shared among threads",
            contraction.batches,
            (requires(_batches, f"batches that fit, with {SHARED:,} multiplications or more"),),
        ),
        KernelRow("NumPy, dot without threads", np.ndarray.dot, (_VECTORS,)),
    )
    table.add(
        "linear",
        KernelRow(
            "oneDNN, bias included",
            eager.linear,
            (
                _NOT_TINY,
                requires(eager.linear_is_faster, "float32 or bfloat16, and enough work for oneDNN"),
            ),
            _STRIDES,
            onednn,
        ),
        KernelRow("NumPy, split among threads", contraction.linear, (_AFFINE,)),
        KernelRow("float32, rounded once", contraction.linear_of_short, (_SHORT_AFFINE,)),
    )
    table.add("outer", KernelRow("generated", eager_filling.outer, (_OUTER, LLVM, _OUTER_FLOAT)))
    table.add(
        "sparse_linear",
        KernelRow(
            "compiled",
            eager_sparse.sparse_linear,
            (
                requires(
                    eager_sparse.is_supported, "float32 values, uint16 columns within bounds, enough work"
                ),
            ),
        ),
    )
    is_supported = requires(
        attention.is_supported, "float32 heads of whole vectors, and enough work; llvmlite"
    )
    finite = "numbers that are not finite"
    table.add("attention", KernelRow("generated", attention.attention, (is_supported,), finite))
    table.add("attention_grad", KernelRow("generated", attention.attention_grad, (is_supported,), finite))


__all__ = ["add_to"]
