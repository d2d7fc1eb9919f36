"""Factorizations of general matrices: LU with partial pivoting, eigenvalues and eigenvectors."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.ops.dtype_queries import dtype_of, is_complex
from tenon.ops.matrices.linalg import Factorization, adjoint, has_residuals, with_residuals


class LuParts(Factorization):
    """``L`` (below the diagonal) and ``U`` in one matrix, LAPACK's pivots, and ``P`` of ``A = P L U``."""

    grad_name = "LinalgLuFactorExBackward0"
    saves = ("x",)
    square = False
    outputs = residuals = 3

    def infer(self, x):
        """The packed factors, ``min(rows, columns)`` pivots, a square matrix of ``rows``."""
        *batch, rows, columns = self.checked(x).shape
        pivots = Aval((*batch, min(rows, columns)), np.dtype(np.int32))
        return Aval((*batch, rows, columns), x.dtype), pivots, Aval((*batch, rows, rows), x.dtype)

    def forward(self, xp, x):
        """Column by column, all matrices of the batch at once."""
        packed, pivots, unit = self.infer(x)
        a = xp.array(x, copy=True)
        size, rows = pivots.shape[-1], packed.shape[-2]
        swaps = xp.zeros(pivots.shape, pivots.dtype)
        p = xp.zeros(unit.shape, unit.dtype) + xp.eye(rows, dtype=unit.dtype)
        for j in range(size):
            best = xp.argmax(_magnitude(xp, a[..., j:, j]), axis=-1) + j
            swaps[..., j] = best + 1
            order = xp.zeros((*best.shape, rows), np.int64) + xp.arange(rows)
            order[..., j] = best
            order = xp.where((xp.arange(rows) == best[..., None]) & (best[..., None] != j), j, order)
            a = xp.take_along_axis(a, order[..., None], axis=-2)
            p = xp.take_along_axis(p, order[..., None, :], axis=-1)
            top = a[..., j : j + 1, j : j + 1]
            a[..., j + 1 :, j : j + 1] /= xp.where(top == 0, 1, top)
            a[..., j + 1 :, j + 1 :] -= a[..., j + 1 :, j : j + 1] * a[..., j : j + 1, j + 1 :]
        return with_residuals(xp, (a, swaps, p))

    # P L^-H (tril(L^H gL, -1) + triu(gU U^H)) U^-H for the leading square. The part of U to its right (of L
    # below it) adds to the gradient of L (of U), and its own gradient is one triangular solve.
    def vjp_joint(self, f, g, out, x, *, needs, residuals):
        size, (rows, columns) = min(x.shape[-2:]), x.shape[-2:]
        packed, _, p = residuals if has_residuals(residuals) else f.lu_parts(x)
        lead, rest = _leading(f, packed, size)
        own, outside = _leading(f, g[0], size)
        ones = f.new_full(lead, shape=tuple(lead.shape), value=1, dtype=dtype_of(x))
        low = f.add(f.tril(lead, k=-1), f.triu(f.tril(ones, k=0), k=0))
        high = f.triu(lead, k=0)
        for_low = f.matmul(adjoint(f, low), f.tril(own, k=-1))
        for_high = f.matmul(f.triu(own, k=0), adjoint(f, high))
        if columns > rows:
            for_low = f.sub(for_low, f.matmul(outside, adjoint(f, rest)))
        if rows > columns:
            for_high = f.sub(for_high, f.matmul(adjoint(f, rest), outside))
        inner = f.solve_triangle(
            adjoint(f, low), f.add(f.tril(for_low, k=-1), f.triu(for_high, k=0)), upper=True
        )
        result = adjoint(f, f.solve_triangle(high, adjoint(f, inner), upper=True))
        if columns > rows:
            result = f.cat(
                result, f.solve_triangle(adjoint(f, low), outside, upper=True), axis=len(x.shape) - 1
            )
        if rows > columns:
            result = f.cat(
                result,
                adjoint(f, f.solve_triangle(high, adjoint(f, outside), upper=True)),
                axis=len(x.shape) - 2,
            )
        return [f.matmul(p, result)]


def _magnitude(xp: ArrayNamespace, x: Array) -> Array:
    """Return LAPACK's measure of pivots: ``|re| + |im|``."""
    return xp.abs(x.real) + xp.abs(x.imag) if x.dtype.kind == "c" else xp.abs(x)


def _leading(f: OpNamespace, x: Operand, size: int) -> tuple[Operand, Operand]:
    """Split ``x`` into its leading square and the part to the right of it or below it."""
    rank, (rows, columns) = len(x.shape), x.shape[-2:]
    axis, end = (rank - 1, columns) if columns > rows else (rank - 2, rows)
    return f.slice_axis(x, axis=axis, start=0, stop=size), f.slice_axis(x, axis=axis, start=size, stop=end)


class Eig(Factorization):
    """Eigenvalues, and eigenvectors of length 1, as complex numbers."""

    grad_name = "LinalgEigBackward0"
    saves = ("x",)
    outputs = residuals = 2

    def infer(self, x):
        """The avals of values and vectors."""
        shape = tuple(self.checked(x).shape)
        kind = np.dtype(np.complex64 if x.dtype.type(0).real.itemsize == 4 else np.complex128)
        return Aval(shape[:-1], kind), Aval(shape, kind)

    def forward(self, xp, x):
        """LAPACK's geev."""
        values, vectors = self.solved(xp, "eig", self.checked(x))
        kind = self.infer(x)[0].dtype
        return with_residuals(xp, (values.astype(kind, copy=False), vectors.astype(kind, copy=False)))

    # V^-H (diag(g_values) + (V^H gV - V^H V Re diag(V^H gV)) / conj(l_j - l_i)) V^H
    def vjp_joint(self, f, g, out, x, *, needs, residuals):
        values, v = residuals if has_residuals(residuals) else f.eig(x)
        size, rank = x.shape[-1], len(x.shape)
        row = f.reshape(values, shape=(*values.shape[:-1], 1, size))
        column = f.reshape(values, shape=(*values.shape[:-1], size, 1))
        gap = f.conj(f.sub(row, column))
        same = f.eq(gap, 0)
        mixed = f.matmul(adjoint(f, v), g[1])
        along = f.real(f.diagonal(mixed, offset=0, axis0=rank - 2, axis1=rank - 1))
        along = f.reshape(along, shape=(*values.shape[:-1], 1, size))
        mixed = f.sub(mixed, f.mul(f.matmul(adjoint(f, v), v), along))
        mixed = f.where(same, 0.0, f.div(mixed, f.where(same, 1.0, gap)))
        onto = f.diagonal_embed(g[0], shape=tuple(x.shape), axis0=rank - 2, axis1=rank - 1)
        result = f.solve(adjoint(f, v), f.matmul(f.add(mixed, onto), adjoint(f, v)))
        return [result if is_complex(x) else f.real(result)]


lu_parts, eig = LuParts(), Eig()
