"""Linear algebra on the last two axes: ``inverse``, ``det``, ``qr``, ``svd``, ``matrix_power``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tenon.engine.op import table as f
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, ShapeError
from tenon.tensors.argument_checks import need_one_dtype
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.named_results import named_result
from tenon.tensors.precision import runs_in
from tenon.tensors.public_functions import public

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor


def _as_int(number: float) -> int:
    """Return ``number`` as an int; 0 for infinities and NaN."""
    return int(number) if math.isfinite(number) else 0


class Matrix(Family):
    """Linear algebra of matrices and batches of matrices, which are in the last two axes; ``tenon.linalg``
    has more.

    A ShapeError is raised where matrices have to be square and are not.
    """

    __slots__ = ()

    @property
    def mH(self) -> Tensor:
        """The conjugate transpose of each matrix: the last two axes exchanged.

        A 0-d tensor is only conjugated; raises ShapeError for a vector.
        """
        return self._matrices("mH").mT.conj()

    @property
    def H(self) -> Tensor:
        """The conjugate transpose of a matrix.

        A 0-d tensor is only conjugated; raises ShapeError for a vector and for more than two axes.
        """
        if self.raw.ndim not in (0, 2):
            raise ShapeError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.raw.ndim}-D tensor."
            )
        return self.mT.conj() if self.raw.ndim else self.conj()

    @as_function()
    def adjoint(self) -> Tensor:
        """Return the conjugate transpose of each matrix: the same as ``mH``."""
        return self._matrices("adjoint()").mT.conj()

    @as_function()
    @runs_in("given")
    def matrix_exp(self) -> Tensor:
        """Return the exponential of each square matrix.

        Computed by scaling, a Taylor series of degree 18, and squaring. Raises DTypeError for integers and
        booleans.
        """
        if self.raw.ndim < 2 or self.raw.shape[-1] != self.raw.shape[-2]:
            raise ShapeError(
                f"linalg.matrix_exp: A must be batches of square matrices, got {list(self.raw.shape)}."
            )
        if self.raw.dtype.kind in "iub":
            raise DTypeError(
                "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got "
                f"{self.dtype}; cast it with .float()."
            )
        if not self.raw.size:
            return self
        size = self.detach().abs().sum(-2).max()
        # A recorded program cannot branch on values: it squares 20 times, and selects the matrices that
        # needed it.
        needed = f.relu(f.add(f.ceil(f.log2(size)), 1.0))
        recorded = WATCHERS.recorder is not None
        halvings = 20 if recorded else _as_int(needed.item())
        x = f.div(self, f.exp2(needed) if recorded else float(2**halvings))
        eye = self.detach().matrix_power(0)
        total = eye
        for degree in range(18, 0, -1):  # Horner's rule: 1 + x (1 + x/2 (1 + x/3 (...)))
            total = f.add(eye, f.div(f.matmul(x, total), float(degree)))
        for i in range(halvings):
            squared = f.matmul(total, total)
            total = f.where(f.gt(needed, float(i)), squared, total) if recorded else squared
        return total

    @as_function()
    @runs_in("float32")
    def cholesky_solve(self, input2: Tensor, upper: bool = False) -> Tensor:
        """Return the solution ``X`` of ``A @ X = self``, where ``input2`` is the Cholesky factor of ``A``.

        ``A`` is ``L @ L.mH`` with a lower triangular ``input2``; with ``upper``, ``U.mH @ U`` with an upper
        one.
        """
        need_one_dtype("cholesky_solve", b=self, A=input2)
        lower = f.conj(f.triu(input2, k=0).mT) if upper else f.tril(input2, k=0)
        inner = f.solve_triangle(lower, self, upper=False)
        return f.solve_triangle(f.conj(lower.mT), inner, upper=True)

    @as_function()
    def cholesky_inverse(self, upper: bool = False) -> Tensor:
        """Return the inverse of ``A``, where this tensor is the Cholesky factor of ``A``, as in
        ``cholesky_solve``."""
        factor = f.conj(f.triu(self, k=0).mT) if upper else f.tril(self, k=0)
        return f.inv(f.matmul(factor, f.conj(factor.mT)))

    def orgqr(self, tau: Tensor) -> Tensor:
        """Return the first columns of the product of the Householder reflections that ``geqrf`` returned as
        this tensor and ``tau``."""
        return public("orgqr")(self, tau)

    def triangular_solve(
        self, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
    ) -> NamedResult:
        """Return the named tuple ``(solution, cloned_coefficient)``: the ``X`` of ``A @ X = self`` for a
        triangular matrix ``A``, and a copy of ``A``.

        Only the upper triangle of ``A`` is read, or the lower without ``upper``. With ``transpose``, solve
        ``A.mT @ X = self``; with ``unitriangular``, the diagonal of ``A`` counts as ones.
        """
        return public("triangular_solve")(self, A, upper, transpose, unitriangular)

    def lu_solve(self, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
        """Return the solution ``X`` of ``A @ X = self``, where ``lu_factor`` returned ``LU_data`` and
        ``LU_pivots`` for ``A``."""
        return public("lu_solve")(self, LU_data, LU_pivots)

    @as_function()
    def inverse(self) -> Tensor:
        """Return the inverse of each square matrix; raises LinearAlgebraError if one is singular."""
        return f.inv(self)

    @as_function()
    def det(self) -> Tensor:
        """Return the determinant of each square matrix, without the last two axes."""
        return f.det(self)

    @as_function()
    def slogdet(self) -> NamedResult:
        """Return the named tuple ``(sign, logabsdet)`` of the determinant of each square matrix: its sign
        (for complex matrices a number of magnitude 1), and the logarithm of its magnitude."""
        sign, logabsdet = f.slogdet(self)
        return named_result("slogdet", sign=sign, logabsdet=logabsdet)

    @as_function()
    def logdet(self) -> Tensor:
        """Return the logarithm of the determinant of each square matrix: NaN where a real one is negative,
        -inf where it is 0."""
        if self.raw.dtype.kind == "c":
            return f.log(f.det(self))
        sign, logabsdet = f.slogdet(self)
        return f.where(f.lt(sign, 0), float("nan"), logabsdet)

    @as_function()
    def cholesky(self, upper: bool = False) -> Tensor:
        """Return the lower triangular ``L`` with ``self = L @ L.mH`` of each Hermitian positive-definite
        matrix; with ``upper``, ``L.mH``.

        Raises LinearAlgebraError if a matrix is not positive-definite.
        """
        lower = f.cholesky(self)
        return f.conj(lower.mT) if upper else lower

    @as_function()
    def qr(self, some: bool = True) -> NamedResult:
        """Return the named tuple ``(Q, R)`` with ``self = Q @ R``, ``Q`` with orthonormal columns and ``R``
        upper triangular.

        Of an ``m`` by ``n`` matrix, ``Q`` has ``min(m, n)`` columns; without ``some``, ``m``.
        """
        q, r = f.qr(self, mode="reduced" if some else "complete")
        return named_result("qr", Q=q, R=r)

    @as_function()
    def svd(self, some: bool = True, compute_uv: bool = True) -> NamedResult:
        """Return the named tuple ``(U, S, V)`` with ``self = U @ diag(S) @ V.mH``, and ``S`` in descending
        order.

        Of an ``m`` by ``n`` matrix, ``U`` and ``V`` have ``min(m, n)`` columns; without ``some``, ``m`` and
        ``n``. Without ``compute_uv`` they are zeros.
        """
        u, s, vh = f.svd_parts(self, full=not some)
        if not compute_uv:
            u, vh = (f.new_full(x, shape=tuple(x.raw.shape), value=0) for x in (u, vh))
        return named_result("svd", U=u, S=s, V=f.conj(vh.mT))

    @as_function()
    @runs_in("float32")
    def pinverse(self, rcond: float = 1e-15) -> Tensor:
        """Return the pseudo-inverse of each matrix.

        Singular values up to ``rcond`` times the largest count as 0.
        """
        return f.pinv(self, float(rcond), 0.0)

    @as_function()
    def matrix_power(self, n: int) -> Tensor:
        """Return each square matrix multiplied by itself ``n`` times: the identity for 0, a power of the
        inverse if ``n`` is negative.

        Raises LinearAlgebraError if ``n`` is negative and a matrix singular.
        """
        if self.raw.ndim < 2 or self.raw.shape[-1] != self.raw.shape[-2]:
            raise ShapeError(
                f"linalg.matrix_power: A must be batches of square matrices, got {list(self.raw.shape)}."
            )
        if n == 0:
            eye = f.new_full(self.detach(), shape=tuple(self.raw.shape[:-1]), value=1).diag_embed()
            return f.where(f.eq(eye, eye), eye, self)  # whose gradient is zero
        base: Tensor = f.inv(self) if n < 0 else self
        result: Tensor | None = None
        bits = abs(n)
        while bits:
            if bits & 1:
                result = base if result is None else f.matmul(result, base)
            bits >>= 1
            base = f.matmul(base, base) if bits else base
        assert result is not None  # as ``bits`` was not 0
        return result.clone() if result is self else result
