"""Systems of linear equations: square ones, triangles, least squares."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.types import Operand
from tenon.errors import ShapeError
from tenon.ops.matrices.linalg import Factorization, adjoint, has_residuals
from tenon.tensors.argument_checks import need_one_dtype


class Solve(Factorization):
    """``X`` of ``A X = B``, for matrices ``B``."""

    grad_name = "LinalgSolveExBackward0"
    inputs = ("a", "b")
    saves = ("a", "out")
    residuals = 2
    autocast = "float32"

    def infer(self, a, b):
        """``B``'s shape, its batch broadcast with ``A``'s; DTypeError unless both have one dtype."""
        self.checked(a)
        need_one_dtype("linalg.solve", A=a, B=b)
        return Aval(_solution_shape(self.name, a, b), b.dtype)

    def forward(self, xp, a, b):
        """LAPACK's LU solver; the residuals are empty, as NumPy does not return factors and pivots."""
        self.infer(a, b)
        return self.solved(xp, "solve", a, b), xp.zeros((0,), a.dtype), xp.zeros((0,), np.int32)

    # B = A^-H g, A = -A^-H g X^H
    def vjp_joint(self, f, g, out, a, b, *, needs, residuals):
        back = f.solve_adjoint(a, g, *residuals) if has_residuals(residuals) else f.solve(adjoint(f, a), g)
        for_a = f.neg(f.matmul(back, adjoint(f, out))) if needs[0] else None
        return [
            None if for_a is None else f.sum_to(for_a, shape=tuple(a.shape)),
            f.sum_to(back, shape=tuple(b.shape)) if needs[1] else None,
        ]


def _solution_shape(name: str, a: Operand, b: Operand) -> tuple[int, ...]:
    """Return the shape of ``X`` of ``A X = B``; ShapeError if those of ``a`` and ``b`` do not fit."""
    if len(b.shape) < 2 or b.shape[-2] != a.shape[-1]:
        raise ShapeError(f"linalg.{name}: Incompatible shapes of A {list(a.shape)} and B {list(b.shape)}.")
    return (*np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2])), *b.shape[-2:])


class SolveAdjoint(Factorization):
    """``X`` of ``A^H X = B``, with the LU factors and pivots of ``A`` from ``solve``, which may be empty.

    Gradient rules use it only where they are not differentiated in turn.
    """

    inputs = ("a", "b", "factors", "pivots")

    def infer(self, a, b, factors, pivots):
        """``B``'s shape, its batch broadcast with ``A``'s."""
        return Aval(_solution_shape(self.name, a, b), b.dtype)

    def forward(self, xp, a, b, factors, pivots):
        """LAPACK's LU solver, which factorizes again."""
        return self.solved(xp, "solve", xp.conj(xp.swapaxes(a, -1, -2)), b)


class SolveTriangle(Factorization):
    """``X`` of ``A X = B`` for a triangular matrix ``A``, whose other triangle is not read."""

    grad_name = "LinalgSolveTriangularBackward0"
    inputs = ("a", "b")
    saves = ("a", "out")

    def infer(self, a, b, *, upper):
        """``B``'s shape, its batch broadcast with ``A``'s."""
        self.checked(a)
        return Aval(_solution_shape(self.name, a, b), b.dtype)

    def forward(self, xp, a, b, *, upper):
        """LAPACK's LU solver."""
        self.infer(a, b, upper=upper)
        return self.solved(xp, "solve", xp.triu(a) if upper else xp.tril(a), b)

    # as the gradients of solve; the triangle that is not read has none
    def vjp_joint(self, f, g, out, a, b, *, needs, upper):
        back = f.solve_triangle(adjoint(f, a), g, upper=not upper)
        for_a = None
        if needs[0]:
            full = f.sum_to(f.neg(f.matmul(back, adjoint(f, out))), shape=tuple(a.shape))
            for_a = f.triu(full, k=0) if upper else f.tril(full, k=0)
        return [for_a, f.sum_to(back, shape=tuple(b.shape)) if needs[1] else None]


class LeastSquares(Factorization):
    """The ``X`` of least norm that minimizes ``|A X - B|``, the rank of ``A``, and its singular values if
    ``values``.

    For a single matrix; singular values up to ``rcond`` times the largest count as 0 (None: the dtype's
    precision times the longer side). It has no gradient; ``pinv`` has one.
    """

    inputs = ("a", "b")
    square = False
    outputs = 3

    def infer(self, a, b, *, rcond=None, values=True):
        """``[columns, *B's columns]``, a number, and ``min(rows, columns)`` values or none."""
        rows, columns = self.checked(a).shape
        real = np.dtype(a.dtype.type(0).real.dtype)
        count = min(rows, columns) if values else 0
        return Aval((columns, *b.shape[1:]), a.dtype), Aval((), np.dtype(np.int64)), Aval((count,), real)

    def forward(self, xp, a, b, *, rcond=None, values=True):
        """LAPACK's gelsd."""
        solution, _, rank, singular = self.solved(xp, "lstsq", self.checked(a), b, rcond)
        return solution, xp.asarray(rank).astype(np.int64), singular if values else singular[:0]


solve, solve_adjoint, solve_triangle = Solve(), SolveAdjoint(), SolveTriangle()
least_squares = LeastSquares()
