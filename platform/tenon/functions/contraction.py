"""Products and distances of tensors (``tensordot``, ``cdist``), trapezoidal integrals, ``std_mean``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon import ops
from tenon.compat.node_names import titled
from tenon.dtypes import float16
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.functions.derived import refuse, write_into
from tenon.kernels.promotion import result_type
from tenon.tensors.argument_checks import need_one_dtype
from tenon.tensors.methods.reduction import moments
from tenon.tensors.methods.scaling import check_alpha, rounded_once, scaled, widened_to
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

__all__ = [
    "cdist",
    "chain_matmul",
    "cumulative_trapezoid",
    "polygamma",
    "rsub",
    "std_mean",
    "tensordot",
    "trapezoid",
    "trapz",
    "vander",
    "var_mean",
]


@runs_in("usual", cuda="widest")
def tensordot(
    a: Tensor, b: Tensor, dims: int | Sequence[int | Sequence[int]] = 2, out: Tensor | None = None
) -> Tensor:
    """Return the sums of products over pairs of axes of ``a`` and ``b`` (torch.tensordot).

    ``dims`` is a number, of the last axes of ``a`` and the first of ``b``, or two lists of axes. The result
    has the other axes of ``a``, then those of ``b``. ShapeError if sizes differ.
    """
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.raw.ndim, b.raw.ndim):
            raise ShapeError(
                f"tensordot expects dims >= 0 and at most the rank of both tensors, but got dims={dims}"
            )
        left, right = list(range(a.raw.ndim - dims, a.raw.ndim)), list(range(dims))
    else:
        left, right = (([d] if isinstance(d, int) else list(d)) for d in dims)
        left, right = [d % a.raw.ndim for d in left], [d % b.raw.ndim for d in right]
    for i, j in zip(left, right, strict=True):
        if a.raw.shape[i] != b.raw.shape[j] and 1 not in (a.raw.shape[i], b.raw.shape[j]):
            raise ShapeError(
                f"contracted dimensions need to match, but first has size {a.raw.shape[i]} in dim {i} and "
                "second has size "
                f"{b.raw.shape[j]} in dim {j}"
            )
        if a.raw.shape[i] != b.raw.shape[j]:  # PyTorch sums the operand that does not broadcast
            a = a.sum(i, True, dtype=a.dtype) if b.raw.shape[j] == 1 else a
            b = b.sum(j, True, dtype=b.dtype) if a.raw.shape[i] == 1 else b
    rows = [d for d in range(a.raw.ndim) if d not in left]
    columns = [d for d in range(b.raw.ndim) if d not in right]
    inner = math.prod(a.raw.shape[d] for d in left)
    height, width = (math.prod(x.raw.shape[d] for d in axes) for x, axes in ((a, rows), (b, columns)))
    product = ops.matmul(
        a.permute(rows + left).reshape(height, inner), b.permute(right + columns).reshape(inner, width)
    )
    result = product.reshape([a.raw.shape[d] for d in rows] + [b.raw.shape[d] for d in columns])
    return write_into(out, result)


@titled("View0")
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the product of all matrices, multiplied in the order that needs the fewest operations."""
    for t in matrices:
        if t.raw.ndim != 2:
            raise ShapeError(
                f"Tensor dimension is {t.raw.ndim}, expected 2 instead: chain_matmul takes matrices"
            )
    result = chained(matrices)
    return write_into(out, result)


def chained(tensors: Sequence[Tensor]) -> Tensor:
    """Multiply matrices in the order with the fewest multiplications; the first and last may be vectors."""
    sizes = [
        t.raw.shape[0] if t.raw.ndim == 2 else (1, t.raw.shape[0])[index > 0]
        for index, t in enumerate(tensors)
    ]
    sizes.append(tensors[-1].raw.shape[1] if tensors[-1].raw.ndim == 2 else 1)

    @functools.cache
    def cheapest(first: int, last: int) -> tuple[int, int]:
        """Return the cost of the product of ``first`` to ``last``, and the factor after which to split it."""
        if first == last:
            return 0, first
        return min(
            (
                cheapest(first, k)[0]
                + cheapest(k + 1, last)[0]
                + sizes[first] * sizes[k + 1] * sizes[last + 1],
                k,
            )
            for k in range(first, last)
        )

    def product(first: int, last: int) -> Tensor:
        if first == last:
            return tensors[first]
        split = cheapest(first, last)[1]
        return ops.matmul(product(first, split), product(split + 1, last))

    return product(0, len(tensors) - 1)


def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the derivative of order ``n`` of ``digamma``; see ``Tensor.polygamma``."""
    result = input.polygamma(n)
    return write_into(out, result)


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Return the cumulative integral of ``y`` along ``dim`` by the trapezoidal rule, one element shorter.

    ``x`` are the coordinates of the samples, ``dx`` their distance if there are none.
    """
    return _trapezoids(y, x, dx, dim).cumsum(dim) / 2.0


_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


def _multiplies(x1: Tensor, x2: Tensor, p: float, mode: str) -> bool:
    """Whether ``cdist`` is a matrix product."""
    large = x1.raw.shape[-2] > 25 or x2.raw.shape[-2] > 25
    return p == 2 and (mode == _MODES[1] or (mode == _MODES[0] and large))


def _title_of_cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = _MODES[0]) -> str:
    return "View0" if _multiplies(x1, x2, p, compute_mode) else "Cdist0"


@titled(_title_of_cdist)
@runs_in("float32")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = _MODES[0]) -> Tensor:
    """Return the ``p``-norm distances ``[*, n, m]`` of the rows of ``x1`` ``[*, n, k]`` to those of ``x2``.

    ``compute_mode`` is as in PyTorch: by default a matrix product replaces the differences for more than 25
    rows. ArgumentError for a negative ``p``, ShapeError if the row lengths differ.
    """
    if compute_mode not in _MODES:
        raise ArgumentError(
            f"{compute_mode} is not a valid value for compute_mode; use one of {', '.join(_MODES)}."
        )
    for name, x in (("X1", x1), ("X2", x2)):
        if x.raw.dtype.kind in "biu":
            raise DTypeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
    need_one_dtype("cdist", x1=x1, x2=x2)
    if not p >= 0:
        raise ArgumentError(f"cdist only supports non-negative p values, got {p}")
    if x1.raw.ndim < 2 or x2.raw.ndim < 2 or x1.raw.shape[-1] != x2.raw.shape[-1]:
        raise ShapeError(
            f"cdist needs matrices with the same number of columns, got {list(x1.raw.shape)} and "
            f"{list(x2.raw.shape)}"
        )
    if _multiplies(x1, x2, p, compute_mode):
        if x1.dtype is float16:  # the difference of two squares beyond its range would be NaN
            return cdist(x1.float(), x2.float(), p, compute_mode).to(x1.dtype)
        squares = x1.square().sum(-1, True) + x2.square().sum(-1).unsqueeze(-2) - 2 * (x1 @ x2.mT)
        positive = squares > 0
        return ops.where(positive, ops.sqrt(ops.where(positive, squares, 1.0)), 0.0)
    gaps = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return ops.vector_norm(gaps, order=float(p), axes=(gaps.raw.ndim - 1,), keepdims=False)


def var_mean(
    input: Tensor,
    dim: bool | int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, ...]:
    """Return ``(var, mean)`` over ``dim``, with the parameters of ``Tensor.var``."""
    return ops.var_mean(input, **moments("var_mean", input, dim, unbiased, keepdim, correction))


def std_mean(
    input: Tensor,
    dim: bool | int | Sequence[int] | None = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, ...]:
    """Return ``(std, mean)`` over ``dim``, with the parameters of ``Tensor.std``."""
    return ops.std_mean(input, **moments("std_mean", input, dim, unbiased, keepdim, correction))


@titled(lambda input, other, **k: f"Rsub{int(not isinstance(other, Value))}")
def rsub(input: Tensor, other: Tensor | complex, *, alpha: complex = 1) -> Tensor:
    """Return ``other - alpha * input``, elementwise and broadcast."""
    if not isinstance(input, Value):
        raise refuse("rsub", input)
    if alpha == 1:
        return other - input
    check_alpha(alpha, other, input)

    def compute(x: Tensor, y: Tensor | complex) -> Tensor:
        return y - scaled(widened_to(result_type(y, x), x), alpha)

    return rounded_once(compute, input, other)


@titled(lambda y, x=None, **k: "Mul1" if x is None else "Div1")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1, dim: int = -1) -> Tensor:
    """Return the integral of ``y`` along ``dim`` by the trapezoidal rule (torch.trapezoid).

    ``x`` are the coordinates of the samples, ``dx`` their distance if there are none.
    """
    if x is None:  # ``dx`` multiplies the sum, as in PyTorch
        return _trapezoids(y, x, 1, dim).sum(dim) * dx / 2.0
    return _trapezoids(y, x, dx, dim).sum(dim) / 2.0


def _trapezoids(y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    """Return twice the area between neighbours, with ``x`` or the distance ``dx``."""
    size = y.size(dim)
    sums = y.narrow(dim, min(1, size), max(size - 1, 0)) + y.narrow(dim, 0, max(size - 1, 0))
    if x is None:
        return sums if dx.__class__ is int and dx == 1 and sums.raw.dtype.kind in "fcV" else sums * dx
    steps = x.diff()
    if x.raw.ndim == 1:
        steps = steps.reshape([-1 if d == dim % y.raw.ndim else 1 for d in range(y.raw.ndim)])
    else:
        steps = x.diff(dim=dim)
    return sums * steps


trapz = trapezoid


@titled(lambda x, N=None, increasing=False: "" if increasing else "Flip0")
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the Vandermonde matrix of the vector ``x``: its powers ``N - 1`` to 0, one column each.

    ``N`` is by default the length of ``x``; with ``increasing``, the powers ascend. ShapeError unless ``x``
    is a vector.
    """
    if x.raw.ndim != 1:
        raise ShapeError(f"x must be a one-dimensional tensor, got {x.raw.ndim} axes.")
    count = x.raw.shape[-1] if N is None else N
    if count < 0:
        raise ShapeError(f"N must be non-negative. Got {count}.")
    if x.raw.dtype.kind in "biu":
        x = x.long()
    if not count:
        return x.new_empty(*x.raw.shape, 0)
    return ops.stack(*powers(x, count)[:: 1 if increasing else -1], axis=1).to(result_type(x, 1))


def powers(x: Tensor, count: int) -> list[Tensor]:
    """Return ``x ** 0`` to ``x ** (count - 1)``, each computed from the one before, as in PyTorch."""
    if count > 1000:  # the result of a count beyond all memory fails to be allocated
        x.new_empty((*x.raw.shape, count))
    result = [x.new_ones(x.raw.shape), x]
    for _ in range(count - 2):
        result.append(ops.mul(result[-1], x))
    return result[:count]
