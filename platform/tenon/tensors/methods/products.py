"""Products of vectors and matrices, and matrices made of vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tenon.dtypes import FROM_NUMPY, promote_types, scalar_name
from tenon.engine.op import table as f
from tenon.errors import DTypeError, ShapeError
from tenon.kernels.shapes import broadcast_shapes, normalize_axis
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.scaling import need_real, not_whole, rounded_once, scaled
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


def _check_ranks(name: str, *operands: tuple[str, Tensor, int]) -> None:
    """Raise ShapeError unless each of ``operands``, as (name, tensor, rank), has its rank."""
    for label, tensor, rank in operands:
        if tensor.raw.ndim != rank:
            raise ShapeError(
                f"{name}: {label} must be a {('vector', 'matrix', 'batch of matrices')[rank - 1]} "
                f"({rank}-d), got shape "
                f"{list(tensor.raw.shape)}. Use matmul for products that broadcast."
            )


def _check_vectors(x: Tensor, y: Tensor) -> None:
    """Raise unless ``x`` and ``y`` are vectors of one dtype and size."""
    try:
        (shape, other_shape), kinds = (x.raw.shape, y.raw.shape), (x.raw.dtype, y.raw.dtype)
    except AttributeError:
        raise TypeError(
            f"dot(): argument 'tensor' (position 1) must be Tensor, not {type(y).__name__}"
        ) from None
    if len(shape) != 1 or len(other_shape) != 1:
        raise ShapeError(
            f"1D tensors expected, but got {len(shape)}D and {len(other_shape)}D tensors. Use matmul for "
            "products that broadcast."
        )
    if kinds[0] != kinds[1]:
        names = " and ".join(scalar_name(FROM_NUMPY[kind]) for kind in kinds)
        raise DTypeError(f"dot : expected both vectors to have same dtype, but found {names}")
    if shape != other_shape:
        raise ShapeError(
            f"inconsistent tensor size, expected tensor [{shape[0]}] and src [{other_shape[0]}] to have the "
            f"same number of elements, but got {shape[0]} and {other_shape[0]} elements respectively"
        )


def _plus(input: Tensor, product: Tensor, beta: Number, alpha: Number) -> Tensor:
    """Return ``beta * input + alpha * product``; with ``beta == 0`` the input (and its NaN) is not read."""
    kind = product.raw.dtype.kind
    if kind == "b" and input.raw.dtype.kind == "b":
        return f.logical_or(f.logical_and(input, bool(beta)), f.logical_and(product, bool(alpha)))
    if kind in "iu":  # PyTorch truncates the factors of integers
        beta, alpha = (int(v) if v.__class__ is float else v for v in (beta, alpha))
    for factor in (alpha, beta):
        need_real(factor, input, product)
    if beta.__class__ in (int, float) and beta == 0:
        return scaled(product, alpha)
    return rounded_once(lambda x, y: f.add(scaled(x, beta), scaled(y, alpha)), input, product)


def _common_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    return broadcast_shapes(tuple(a.raw.shape), tuple(b.raw.shape))


class Products(Family):
    """Methods for products, ``mm``, ``dot``, ``addmm``, and for diagonals, ``trace``, ``diag``.

    They raise ShapeError for tensors whose numbers of axes or sizes do not fit.
    """

    __slots__ = ()

    @as_function()
    def mm(self, mat2: Tensor) -> Tensor:
        """Return the matrix product ``[n, p]`` of two matrices, ``[n, m]`` and ``[m, p]``."""
        _check_ranks("mm", ("self", self, 2), ("mat2", mat2, 2))
        return f.matmul(self, mat2)

    @as_function()
    def bmm(self, mat2: Tensor) -> Tensor:
        """Return the matrix products ``[b, n, p]`` of two batches, ``[b, n, m]`` and ``[b, m, p]``."""
        _check_ranks("bmm", ("batch1", self, 3), ("batch2", mat2, 3))
        if self.raw.shape[0] != mat2.raw.shape[0]:
            raise ShapeError(
                f"Expected size for first two dimensions of batch2 tensor to be: [{self.raw.shape[0]}, "
                f"{self.raw.shape[2]}] but "
                f"got: {list(mat2.raw.shape[:2])}."
            )
        return f.matmul(self, mat2)

    @as_function()
    @runs_in("given", cuda="lower")
    def mv(self, vec: Tensor) -> Tensor:
        """Return the product of this matrix ``[n, m]`` and the vector ``vec`` ``[m]``: a vector ``[n]``."""
        _check_ranks("mv", ("self", self, 2), ("vec", vec, 1))
        return f.matmul(self, vec)

    @as_function()
    @runs_in("given", cuda="widest")
    def dot(self, tensor: Tensor) -> Tensor:
        """Return the dot product of two vectors of equal size and dtype, as a 0-d tensor."""
        _check_vectors(self, tensor)
        return f.matmul(self, tensor)

    @as_function()
    @runs_in("given", cuda="widest")
    def vdot(self, other: Tensor) -> Tensor:
        """Return the dot product of the complex conjugate of this vector and ``other``, as a 0-d tensor."""
        _check_vectors(self, other)
        return f.matmul(f.conj(self), other)

    @as_function()
    def inner(self, other: Tensor) -> Tensor:
        """Return the dot products of all vectors along the last axes: ``[*a, *b]`` for operands of shapes
        ``[*a, n]`` and ``[*b, n]``. With a 0-d operand, the elementwise product."""
        if not self.raw.ndim or not other.raw.ndim:
            return f.mul(self, other)
        shape, other_shape = tuple(self.raw.shape), tuple(other.raw.shape)
        if shape[-1] != other_shape[-1]:
            raise ShapeError(
                "inner() the last dimension must match on both input tensors but got shapes "
                f"{list(shape)} and {list(other_shape)}"
            )
        left, right = (
            x.reshape(-1 if s[-1] else math.prod(s[:-1]), s[-1])
            for x, s in ((self, shape), (other, other_shape))
        )
        return f.matmul(left, right.transpose(0, 1)).reshape(*shape[:-1], *other_shape[:-1])

    @as_function("ger")
    def outer(self, vec2: Tensor) -> Tensor:
        """Return the outer product of two vectors: ``self[i] * vec2[j]`` at ``[i, j]``."""
        _check_ranks("outer", ("self", self, 1), ("vec2", vec2, 1))
        return f.outer(self, vec2)

    ger = outer

    @as_function()
    @runs_in("lower")
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """Return ``beta * self + alpha * (mat1 @ mat2)``. With ``beta=0``, NaN in ``self`` has no effect."""
        _check_ranks("addmm", ("mat1", mat1, 2), ("mat2", mat2, 2))
        return _plus(self, f.matmul(mat1, mat2), beta, alpha)

    @as_function()
    @runs_in("given", cuda="lower")
    def addmv(self, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """Return ``beta * self + alpha * (mat @ vec)``, of a matrix and a vector; see ``addmm``."""
        _check_ranks("addmv", ("mat", mat, 2), ("vec", vec, 1))
        return _plus(self, f.matmul(mat, vec), beta, alpha)

    @as_function()
    @runs_in("usual", cuda="lower")
    def addr(self, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """Return ``beta * self + alpha * outer(vec1, vec2)``; see ``addmm``."""
        if all(v.raw.dtype.kind in "biu" for v in (self, vec1, vec2)):
            for name, factor in (("beta", beta), ("alpha", alpha)):
                if isinstance(factor, (float, complex)):
                    raise not_whole(name, factor)
        if self.raw.dtype == vec1.raw.dtype == vec2.raw.dtype:
            return _plus(self, vec1.outer(vec2), beta, alpha)
        kind = promote_types(self.dtype, promote_types(vec1.dtype, vec2.dtype)).numpy  # 0-d ones as well
        x, a, b = (v if v.raw.dtype == kind else f.cast(v, dtype=kind) for v in (self, vec1, vec2))
        return _plus(x, a.outer(b), beta, alpha)

    @as_function()
    @runs_in("lower")
    def baddbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """Return ``beta * self + alpha * bmm(batch1, batch2)``; see ``addmm``."""
        return _plus(self, batch1.bmm(batch2), beta, alpha)

    @as_function()
    @runs_in("lower")
    def addbmm(self, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        """Return ``beta * self + alpha * bmm(batch1, batch2).sum(0)``; see ``addmm``."""
        product = batch1.bmm(batch2)
        return _plus(self, product.sum(0, dtype=product.dtype), beta, alpha)

    @as_function()
    def kron(self, other: Tensor) -> Tensor:
        """Return the Kronecker product: a block ``self[i, j] * other`` for every element, for any number of
        axes."""
        rank = max(self.raw.ndim, other.raw.ndim)
        own, theirs = (((1,) * (rank - x.raw.ndim) + tuple(x.raw.shape)) for x in (self, other))
        a = self.reshape([n for s in own for n in (s, 1)])
        b = other.reshape([n for s in theirs for n in (1, s)])
        return f.mul(a, b).reshape([s * t for s, t in zip(own, theirs, strict=True)])

    @as_function()
    @runs_in("usual", cuda="widest")
    def cross(self, other: Tensor, dim: int | None = None) -> Tensor:
        """Return the cross product of the vectors along ``dim``, which has size 3; the first axis of that
        size by default. The other axes are broadcast."""
        shape = _common_shape(self, other)
        a, b = f.expand(self, shape=shape), f.expand(other, shape=shape)
        if dim is None:
            if 3 not in shape:
                raise ShapeError(f"no dimension of size 3 in input (shape {list(shape)})")
            axis = shape.index(3)
        else:
            axis = normalize_axis(dim, len(shape))
            if shape[axis] != 3:
                raise ShapeError(
                    f"dimension {dim} does not have size 3 but size {shape[axis]} (shape {list(shape)})"
                )
        return f.cross(a, b, axis=axis)

    @as_function()
    @runs_in("float32", cuda="usual")
    def trace(self) -> Tensor:
        """Return the sum of the main diagonal of this matrix."""
        if self.raw.ndim != 2:
            raise ShapeError(f"trace: expected a matrix, but got tensor with dim {self.raw.ndim}")
        return self.diagonal().sum()

    @as_function()
    def diag(self, diagonal: int = 0) -> Tensor:
        """Return a matrix with this vector on the given diagonal; of a matrix, a view of that diagonal.

        Positive numbers are diagonals above the main one, negative numbers below.
        """
        if self.raw.ndim == 1:
            return self.diag_embed(diagonal)
        if self.raw.ndim != 2:
            raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {self.raw.ndim}D")
        return self.diagonal(diagonal)

    @as_function()
    def diagflat(self, offset: int = 0) -> Tensor:
        """Return a matrix with all elements of this tensor, flattened, on the diagonal ``offset``."""
        return self.reshape(-1).diag_embed(offset)

    @as_function()
    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
        """Return matrices over the axes ``dim1`` and ``dim2`` of the result with the last axis of this
        tensor on the diagonal ``offset``, and zeros elsewhere."""
        rank = self.raw.ndim + 1
        first, second = normalize_axis(dim1, rank), normalize_axis(dim2, rank)
        if first == second:
            raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        size = self.raw.shape[-1] + abs(offset)
        shape = (*self.raw.shape[:-1], size, size)
        result = f.diagonal_embed(self, shape=shape, offset=offset, axis0=rank - 2, axis1=rank - 1)
        if (first, second) == (rank - 2, rank - 1):
            return result
        return result.movedim((-2, -1), (first, second))

    addmm_ = through_method("addmm")
    addmv_ = as_function(out="none")(through_method("addmv"))
    addr_ = through_method("addr")
    baddbmm_ = through_method("baddbmm")
    addbmm_ = through_method("addbmm")
