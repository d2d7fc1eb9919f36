"""Rows of the table: factorizations, linear systems and Fourier transforms."""

from __future__ import annotations

import numpy as np

from tenon.extend import Condition, KernelRow, KernelTable, dtype_is, requires, size_at_least
from tenon_cpu.jit.eager_ops import along_axis as eager_along_axis
from tenon_cpu.jit.eager_ops import fourier as eager_fourier
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.kernels import factoring
from tenon_cpu.table.conditions import LLVM, floats

_NO_LAPACK = "dtypes that LAPACK has no routine for, other libraries than OpenBLAS"
_COMPLEX = dtype_is(np.complex64, "x")
_FLOAT = dtype_is(FLOAT, "x")
_POWERS = "sizes are powers of 2 from 8 to 1,024, and there are many lines"


def _large(array: str) -> Condition:
    least = factoring.MIN_ROWS
    return Condition(
        f"{array}.ndim > 1 and {array}.shape[-1] >= {least}",
        f"matrices of {least} columns or more",
        {},
        f"{array}.shape",
    )


def add_to(table: KernelTable) -> None:
    """Add the rows of this file's ops to ``table``."""
    for name in ("lu_parts", "cholesky", "qr"):
        table.add(name, KernelRow("LAPACK", getattr(factoring, name), (_large("x"),), _NO_LAPACK))
    table.add("solve", KernelRow("LAPACK", factoring.solve, (_large("a"),), f"batches, {_NO_LAPACK}"))
    some = Condition("factors.size and b.size and b.ndim == 2", "a matrix with factors", {}, "factors.shape")
    table.add(
        "solve_adjoint", KernelRow("LAPACK, from the factors", factoring.solve_adjoint, (some,), _NO_LAPACK)
    )
    same = Condition("a.shape[:-2] == b.shape[:-2]", "batches of one shape", {}, "a.shape, b.shape")
    few = Condition(
        f"0 < b.shape[-2] < {factoring.MIN_ROWS}", f"fewer than {factoring.MIN_ROWS} rows", {}, "b.shape"
    )
    table.add(
        "solve_triangle",
        KernelRow(
            "compiled, of small matrices",
            eager_along_axis.solve_triangle,
            (few, size_at_least("b", MIN_ELEMENTS), same, *floats("a", "b")),
        ),
        KernelRow("LAPACK, block by block", factoring.solve_triangle, (same, _large("a")), _NO_LAPACK),
    )
    alone = Condition("not values", "singular values are not requested")
    table.add(
        "least_squares",
        KernelRow(
            "LAPACK, by QR", factoring.least_squares, (alone,), f"values that are not finite, {_NO_LAPACK}"
        ),
    )
    large = size_at_least("x", MIN_ELEMENTS)
    table.add(
        "fft_complex",
        KernelRow(
            "generated, axis by axis",
            eager_fourier.fft_complex,
            (_FLOAT | _COMPLEX, large, LLVM, requires(eager_fourier.are_powers_of_two, _POWERS)),
            "few lines",
        ),
    )
    table.add(
        "fft_half",
        KernelRow(
            "generated",
            eager_fourier.fft_half,
            (_FLOAT, large, LLVM, requires(eager_fourier.can_transform_to_half, _POWERS)),
        ),
    )
    table.add(
        "fft_real",
        KernelRow(
            "generated",
            eager_fourier.fft_real,
            (_COMPLEX, large, LLVM, requires(eager_fourier.can_transform_from_half, _POWERS)),
        ),
    )


__all__ = ["add_to"]
