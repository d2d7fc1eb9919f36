"""Linear algebra over the last two axes: the array namespace's LAPACK, and its gradients.

Ops without a gradient rule here (``lstsq`` and the like) are in ``tenon/functions/linalg.py``, which refuses
tensors that require one.
"""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.errors import DTypeError, ShapeError, TenonError
from tenon.ops.dtype_queries import is_complex
from tenon.ops.matrices.factorization_failures import failure_message


class LinearAlgebraError(TenonError, RuntimeError):
    """A matrix without the property that the function needs: singular, or not positive definite."""


def adjoint(f: OpNamespace, x: Operand) -> Operand:
    """Conjugate transpose."""
    rank = len(x.shape)
    return f.conj(f.transpose(x, axis0=rank - 2, axis1=rank - 1))


class Factorization(Primitive):
    """Base class: checks matrices, calls LAPACK, and converts its failures to error messages."""

    kind = Kind.CONTRACT
    square = True
    remakes = True

    def checked(self, x: Operand) -> Operand:
        """Return ``x``; raise unless it is a batch of (square) matrices in a dtype of LAPACK's."""
        shape = tuple(x.shape)
        if len(shape) < 2:
            raise ShapeError(
                f"linalg.{self.name}: The input tensor must have at least 2 dimensions, got {list(shape)}."
            )
        if self.square and shape[-1] != shape[-2]:
            raise ShapeError(
                f"linalg.{self.name}: A must be batches of square matrices, but they are {shape[-2]} by "
                f"{shape[-1]} matrices"
            )
        if x.dtype.kind not in "fc" or x.dtype.itemsize < 4:
            raise DTypeError(
                f"linalg.{self.name}: Expected a float32, float64 or complex tensor, got {x.dtype}. Cast "
                "with .float() first."
            )
        return x

    def solved(self, xp: ArrayNamespace, function: str, *args: Array, **options: object) -> Array:
        """Return ``xp.linalg.function(*args)``; LinearAlgebraError if it fails."""
        try:
            return getattr(xp.linalg, function)(*args, **options)
        except np.linalg.LinAlgError as error:
            raise LinearAlgebraError(failure_message(self.name, function, error, args)) from None


def with_residuals(xp: ArrayNamespace, result: tuple[Array, ...]) -> tuple[Array, ...]:
    """Append copies of ``result`` as residuals, as outputs may be modified before the gradient reads them."""
    return (*result, *(xp.array(r, copy=True) for r in result))


def has_residuals(residuals: tuple[Operand, ...]) -> bool:
    """Whether residuals exist: not under ``create_graph``, and not where only shapes are inferred."""
    return bool(residuals) and residuals[0] is not None


class Inv(Factorization):
    """Inverse matrices."""

    grad_name = "LinalgInvExBackward0"
    saves = ("out",)
    autocast = "float32"

    def infer(self, x):
        """The input's own aval."""
        return Aval(self.checked(x).shape, x.dtype)

    def forward(self, xp, x):
        """LAPACK's inverse."""
        return self.solved(xp, "inv", self.checked(x))

    # d inv(X) = -inv(X) dX inv(X)
    def vjp_x(self, f, g, out, x):
        back = adjoint(f, out)
        return f.neg(f.matmul(f.matmul(back, g), back))


def _column(bound: Operand) -> Operand:
    """Reshape a bound per matrix to broadcast along the values of each matrix."""
    return bound[..., None] if hasattr(bound, "shape") else bound


class Pinv(Factorization):
    """Pseudo-inverses; singular values up to ``max(atol, rtol * largest)`` count as 0.

    Both bounds are numbers, or arrays of one number per matrix.
    """

    grad_name = "LinalgPinvBackward0"
    inputs = ("x", "rtol", "atol")
    saves = ("x", "out")
    square = False

    def infer(self, x, rtol, atol, *, hermitian=False):
        """The shape with rows and columns exchanged."""
        *batch, rows, columns = self.checked(x).shape
        return Aval((*batch, columns, rows), x.dtype)

    def forward(self, xp, x, rtol, atol, *, hermitian=False):
        """Compute it from singular values, or from the eigenvalues of a Hermitian matrix."""
        if 0 in self.checked(x).shape:
            return xp.zeros(self.infer(x, rtol, atol).shape, x.dtype)
        if hermitian:
            s, u = self.solved(xp, "eigh", x)
            vh, size = xp.swapaxes(u, -1, -2).conj(), xp.abs(s)
        else:
            u, s, vh = self.solved(xp, "svd", x, full_matrices=False)
            size = s
        nonzero = size > xp.maximum(xp.max(size, axis=-1, keepdims=True) * _column(rtol), _column(atol))
        scale = xp.where(nonzero, 1 / xp.where(nonzero, s, 1), 0).astype(s.dtype)
        return xp.swapaxes((u * scale[..., None, :]) @ vh, -1, -2).conj()

    # dP = -P dA P + (1 - P A) dA^H P^H P + P P^H dA^H (1 - A P), at constant rank
    def vjp_x(self, f, g, out, x, rtol, atol, *, hermitian=False):
        back, rows = adjoint(f, out), adjoint(f, g)
        right, left = f.matmul(f.matmul(back, out), rows), f.matmul(rows, f.matmul(out, back))
        total = f.add(f.sub(right, f.matmul(f.matmul(right, out), x)), left)
        total = f.sub(total, f.matmul(x, f.matmul(out, left)))
        return f.sub(total, f.matmul(f.matmul(back, g), back))


class Det(Factorization):
    """Determinants."""

    grad_name = "LinalgDetBackward0"
    saves = ("x", "out")
    autocast = "float32"

    def infer(self, x):
        """The shape of the batch."""
        return Aval(tuple(self.checked(x).shape[:-2]), x.dtype)

    def forward(self, xp, x):
        """Compute it from an LU factorization."""
        return self.solved(xp, "det", self.checked(x))

    # d det(X) = det(X) tr(inv(X) dX)
    def vjp_x(self, f, g, out, x):
        scale = f.mul(g, f.conj(out))
        return f.mul(f.reshape(scale, shape=(*out.shape, 1, 1)), adjoint(f, f.inv(x)))


class Slogdet(Factorization):
    """Sign of the determinant, and the logarithm of its magnitude."""

    grad_name = "LinalgSlogdetBackward0"
    saves = ("x", "out")
    outputs = 2
    autocast = "float32"

    def infer(self, x):
        """Both have the shape of the batch."""
        batch = tuple(self.checked(x).shape[:-2])
        return Aval(batch, x.dtype), Aval(batch, np.dtype(x.dtype.type(0).real.dtype))

    def forward(self, xp, x):
        """Compute it from an LU factorization."""
        return tuple(self.solved(xp, "slogdet", self.checked(x)))

    # d log det(X) = tr(inv(X) dX) = z; the logarithm's magnitude takes Re(z), the sign turns by Im(z)
    def vjp_x(self, f, g, out, x):
        scale = g[1]
        if is_complex(x):
            scale = f.rectangular(scale, f.neg(f.imag(f.mul(f.conj(g[0]), out))))
        return f.mul(f.reshape(scale, shape=(*x.shape[:-2], 1, 1)), adjoint(f, f.inv(x)))


class Cholesky(Factorization):
    """Lower triangular ``L`` with ``L L^H = X``."""

    grad_name = "LinalgCholeskyExBackward0"
    saves = ("out",)
    autocast = "float32"

    def infer(self, x):
        """The input's own aval."""
        return Aval(self.checked(x).shape, x.dtype)

    def forward(self, xp, x):
        """LAPACK's factorization, which reads the lower triangle."""
        return self.solved(xp, "cholesky", self.checked(x))

    # inv(L)^H phi inv(L); phi is half of L^H g below the diagonal, mirrored above it
    def vjp_x(self, f, g, out, x):
        product = f.matmul(adjoint(f, out), g)
        phi = f.mul(f.add(f.tril(product, k=0), adjoint(f, f.tril(product, k=-1))), 0.5)
        back = adjoint(f, out)
        return adjoint(
            f, f.solve_triangle(back, adjoint(f, f.solve_triangle(back, phi, upper=True)), upper=True)
        )


class Qr(Factorization):
    """``Q R = X``: orthonormal columns times an upper triangle (``mode`` reduced or complete)."""

    grad_name = "LinalgQrBackward0"
    saves = ("x",)
    square = False
    outputs = residuals = 2
    autocast = "float32"

    def infer(self, x, *, mode="reduced"):
        """Shapes of ``Q`` and ``R``."""
        *batch, rows, columns = self.checked(x).shape
        inner = rows if mode == "complete" else min(rows, columns)
        return Aval((*batch, rows, inner), x.dtype), Aval((*batch, inner, columns), x.dtype)

    def forward(self, xp, x, *, mode="reduced"):
        """LAPACK's Householder factorization."""
        return with_residuals(xp, tuple(self.solved(xp, "qr", self.checked(x), mode=mode)))

    # M = R gR^H - gQ^H Q, its lower triangle mirrored; gX = (gQ + Q M) R^-H. The columns of a wide X after
    # the leading square X1 are Q R2: gX2 = Q gR2, and X2 gR2^H is added to gQ
    def vjp_joint(self, f, g, out, x, *, needs, residuals, mode="reduced"):
        rows, columns = x.shape[-2:]
        if mode == "complete" and rows > columns:
            raise ShapeError(
                "linalg.qr: there is no gradient for mode='complete' of matrices higher than wide, got shape "
                f"{list(x.shape)}."
            )
        (q, r), (for_q, for_r), last = (
            residuals if has_residuals(residuals) else f.qr(x, mode=mode),
            g,
            len(x.shape) - 1,
        )
        if columns > rows:
            trailing = f.slice_axis(for_r, axis=last, start=rows, stop=columns)
            for_r = f.slice_axis(for_r, axis=last, start=0, stop=rows)
            rest = f.slice_axis(x, axis=last, start=rows, stop=columns)
            for_q = f.add(for_q, f.matmul(rest, adjoint(f, trailing)))
            r = f.slice_axis(r, axis=last, start=0, stop=rows)
        inner = f.sub(f.matmul(r, adjoint(f, for_r)), f.matmul(adjoint(f, for_q), q))
        half = f.add(f.tril(inner, k=-1), f.mul(f.tril(f.triu(inner, k=0), k=0), 0.5))
        total = f.add(for_q, f.matmul(q, f.add(half, adjoint(f, half))))
        result = adjoint(f, f.solve_triangle(r, adjoint(f, total), upper=True))
        return [f.cat(result, f.matmul(q, trailing), axis=last) if columns > rows else result]


class Svdvals(Factorization):
    """Singular values, largest first."""

    grad_name = "LinalgSvdBackward0"
    saves = ("x",)
    square = False
    residuals = 2
    autocast = "float32"

    def infer(self, x):
        """``min(rows, columns)`` values per matrix."""
        *batch, rows, columns = self.checked(x).shape
        return Aval((*batch, min(rows, columns)), np.dtype(x.dtype.type(0).real.dtype))

    def forward(self, xp, x):
        """LAPACK's values and, as residuals for the gradient, the vectors."""
        u, s, vh = self.solved(xp, "svd", self.checked(x), full_matrices=False)
        return s, u, vh

    def without_vectors(self, xp: ArrayNamespace, x: Array) -> tuple[Array]:
        """Compute ``forward`` without residuals, in half the time."""
        return (self.solved(xp, "svd", self.checked(x), compute_uv=False),)

    # d s_i = u_i^H dX v_i
    def vjp_joint(self, f, g, out, x, *, needs, residuals):
        u, vh = residuals if has_residuals(residuals) else f.svd_parts(x)[::2]
        return [f.matmul(f.mul(u, f.reshape(g, shape=(*g.shape[:-1], 1, g.shape[-1]))), vh)]


class SvdParts(Factorization):
    """``U, S, Vh`` of the singular value decomposition; with ``full``, square ``U`` and ``Vh``."""

    grad_name = "LinalgSvdBackward0"
    saves = ("x",)
    square = False
    outputs = residuals = 3
    autocast = "float32"

    def infer(self, x, *, full=False):
        """Shapes of the three factors."""
        *batch, rows, columns = self.checked(x).shape
        inner = min(rows, columns)
        real = np.dtype(x.dtype.type(0).real.dtype)
        return (
            Aval((*batch, rows, rows if full else inner), x.dtype),
            Aval((*batch, inner), real),
            Aval((*batch, columns if full else inner, columns), x.dtype),
        )

    def forward(self, xp, x, *, full=False):
        """LAPACK's gesdd."""
        return with_residuals(xp, tuple(self.solved(xp, "svd", self.checked(x), full_matrices=full)))

    # U ((skew(U^H gU) S + S skew(V^H gV)) / (s_j^2 - s_i^2) + diag(gS)) V^H, and the parts outside of
    # both spans. For complex vectors, only functions independent of their phases have a gradient, half of it
    # through each diagonal. The vectors of full factors without a singular value have no gradient.
    def vjp_joint(self, f, g, out, x, *, needs, residuals, full=False):
        *batch, rows, columns = x.shape
        size, rank = min(rows, columns), len(x.shape)
        u, s, vh = residuals if has_residuals(residuals) else f.svd_parts(x)
        if full:
            lead = f.slice_axis(g[0], axis=rank - 1, start=0, stop=size)
            g = (lead, g[1], f.slice_axis(g[2], axis=rank - 2, start=0, stop=size))
            u = f.slice_axis(u, axis=rank - 1, start=0, stop=size) if has_residuals(residuals) else u
            vh = f.slice_axis(vh, axis=rank - 2, start=0, stop=size) if has_residuals(residuals) else vh
        row = f.reshape(s, shape=(*batch, 1, size))
        column = f.reshape(s, shape=(*batch, size, 1))
        gap = f.sub(f.mul(row, row), f.mul(column, column))
        same = f.eq(gap, 0)
        scale = f.where(same, 0.0, f.div(1.0, f.where(same, 1.0, gap)))
        left, right = f.matmul(adjoint(f, u), g[0]), f.matmul(vh, adjoint(f, g[2]))
        inner = f.add(
            f.mul(f.sub(left, adjoint(f, left)), row), f.mul(f.sub(right, adjoint(f, right)), column)
        )
        values = g[1]
        if is_complex(x):
            phases = (f.imag(f.diagonal(d, offset=0, axis0=rank - 2, axis1=rank - 1)) for d in (left, right))
            values = f.rectangular(values, f.div(f.sub(*phases), f.mul(s, 2.0)))
        onto = f.diagonal_embed(values, shape=(*batch, size, size), axis0=rank - 2, axis1=rank - 1)
        total = f.matmul(f.matmul(u, f.add(f.mul(inner, scale), onto)), vh)
        if rows > size:
            outside = f.sub(g[0], f.matmul(u, left))
            total = f.add(total, f.matmul(f.div(outside, row), vh))
        if columns > size:
            outside = f.sub(g[2], f.matmul(adjoint(f, right), vh))
            total = f.add(total, f.matmul(u, f.div(outside, column)))
        return [total]


class Eigh(Factorization):
    """Eigenvalues in ascending order and eigenvectors of a symmetric or Hermitian matrix."""

    grad_name = "LinalgEighBackward0"
    saves = ("x",)
    outputs = residuals = 2
    autocast = "float32"

    def infer(self, x, *, lower=True):
        """The avals of values and vectors."""
        shape = tuple(self.checked(x).shape)
        return Aval(shape[:-1], np.dtype(x.dtype.type(0).real.dtype)), Aval(shape, x.dtype)

    def forward(self, xp, x, *, lower=True):
        """LAPACK's syevd or heevd."""
        return with_residuals(xp, tuple(self.solved(xp, "eigh", self.checked(x), UPLO="L" if lower else "U")))

    # gX = V (diag(g_values) + (V^H g_vectors) / (l_j - l_i)) V^H, symmetrised as in PyTorch
    def vjp_joint(self, f, g, out, x, *, needs, residuals, lower=True):
        values, v = residuals if has_residuals(residuals) else f.eigh(x, lower=lower)
        size = x.shape[-1]
        row = f.reshape(values, shape=(*values.shape[:-1], 1, size))
        column = f.reshape(values, shape=(*values.shape[:-1], size, 1))
        gap = f.sub(row, column)
        same = f.eq(gap, 0)
        mixed = f.where(same, 0.0, f.div(f.matmul(adjoint(f, v), g[1]), f.where(same, 1.0, gap)))
        onto = f.diagonal_embed(g[0], shape=tuple(x.shape), axis0=len(x.shape) - 2, axis1=len(x.shape) - 1)
        full = f.matmul(f.matmul(v, f.add(mixed, onto)), adjoint(f, v))
        return [f.mul(f.add(full, adjoint(f, full)), 0.5)]


inv, pinv, det, slogdet, cholesky = Inv(), Pinv(), Det(), Slogdet(), Cholesky()
qr, svdvals, svd_parts, eigh = Qr(), Svdvals(), SvdParts(), Eigh()
