"""torch.special: functions of mathematical physics, element by element, with gradients.

Orthogonal polynomials and Bessel functions have gradients too, which torch's have not: polynomials follow
their recurrences in tenon's own operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon import dtypes, functions, ops
from tenon.engine.value import Value
from tenon.errors import DTypeError
from tenon.functions.derived import into
from tenon.tensors.creation.create import as_tensor, from_backend_array
from tenon.tensors.methods.titles import titled
from tenon.tensors.rerouting import register

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr",
    "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e", "laguerre_polynomial_l",
    "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
    "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc", "softmax",
    "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

digamma = psi = functions.digamma
erf, erfc, erfinv = functions.erf, functions.erfc, functions.erfinv
exp2, expm1, log1p = functions.exp2, functions.expm1, functions.log1p
expit, gammaln, logit, sinc = functions.sigmoid, functions.lgamma, functions.logit, functions.sinc
polygamma = functions.polygamma
logsumexp, round, xlogy = functions.logsumexp, functions.round, functions.xlogy
i0, multigammaln = functions.i0, functions.mvlgamma
gammainc, gammaincc = functions.igamma, functions.igammac


def _given(out: Any, made: Any) -> Any:
    return made if out is None else into(out, made)


def _float(name: str, x: Any) -> Any:
    """``x`` as a tensor of floating numbers: whole numbers in the default dtype."""
    if not isinstance(x, Value):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    if x.raw.dtype.kind in "biu":
        return x.to(dtypes.get_default_dtype())  # type: ignore[attr-defined]
    if x.raw.dtype.kind == "c":
        raise DTypeError(f"{name}: complex numbers are not supported, got {x.dtype}")  # type: ignore[attr-defined]
    return x


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Exponentials along ``dim``, divided by their sum."""
    return input.softmax(dim, dtype)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Logarithm of ``softmax``."""
    return input.log_softmax(dim, dtype)


def i0e(input: Any, *, out: Any = None) -> Any:
    """``exp(-|x|) i0(x)``."""
    return _given(out, ops.i0e(_float("i0e", input)))


def i1(input: Any, *, out: Any = None) -> Any:
    """Modified Bessel function of the first kind of order 1."""
    return _given(out, ops.i1(_float("i1", input)))


def i1e(input: Any, *, out: Any = None) -> Any:
    """``exp(-|x|) i1(x)``."""
    return _given(out, ops.i1e(_float("i1e", input)))


modified_bessel_i0, modified_bessel_i1 = i0, i1


def _of_one(op: Any) -> Callable[..., Any]:
    def function(input: Any, *, out: Any = None) -> Any:
        return _given(out, op(_float(op.name, input)))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.__doc__
    return function


airy_ai = _of_one(ops.airy_ai)
bessel_j0, bessel_j1 = _of_one(ops.bessel_j0), _of_one(ops.bessel_j1)
bessel_y0, bessel_y1 = _of_one(ops.bessel_y0), _of_one(ops.bessel_y1)
modified_bessel_k0, modified_bessel_k1 = _of_one(ops.modified_bessel_k0), _of_one(ops.modified_bessel_k1)
scaled_modified_bessel_k0 = _of_one(ops.scaled_modified_bessel_k0)
scaled_modified_bessel_k1 = _of_one(ops.scaled_modified_bessel_k1)


@titled("SpecialEntr0")
def entr(input: Any, *, out: Any = None) -> Any:
    """``-x log(x)``: 0 at 0, minus infinity below."""
    x = _float("entr", input)
    inside = ops.neg(ops.mul(x, ops.log(ops.where(x > 0, x, 1.0))))
    edge = ops.where(ops.eq(x, 0), 0.0, ops.where(ops.isnan(x), x, -math.inf))
    return _given(out, ops.where(x > 0, inside, edge))


@titled("Mul1")
def ndtr(input: Any, *, out: Any = None) -> Any:
    """Area under the standard normal density up to ``input``."""
    return _given(out, ops.mul(ops.erfc(ops.mul(_float("ndtr", input), -math.sqrt(0.5))), 0.5))


@titled("SpecialNdtri0")
def ndtri(input: Any, *, out: Any = None) -> Any:
    """Inverse of ``ndtr``."""
    x = _float("ndtri", input)
    return _given(out, ops.mul(ops.erfinv(ops.sub(ops.mul(x, 2.0), 1.0)), math.sqrt(2)))


def erfcx(input: Any, *, out: Any = None) -> Any:
    """``exp(x ** 2) erfc(x)``, without overflow for large ``x``."""
    return _given(out, ops.erfcx(_float("erfcx", input)))


@titled("SpecialLogNdtr0")
def log_ndtr(input: Any, *, out: Any = None) -> Any:
    """Logarithm of ``ndtr``, accurate far below 0."""
    x = _float("log_ndtr", input)
    low = x < -1.0
    t = ops.mul(x, math.sqrt(0.5))
    below = ops.where(low, t, -1.0)
    tail = ops.sub(ops.log(ops.mul(ops.erfcx(ops.neg(below)), 0.5)), ops.mul(below, below))
    above = ops.where(low, 0.0, t)
    return _given(out, ops.where(low, tail, ops.log1p(ops.mul(ops.erfc(above), -0.5))))


def _title_of_xlog1py(input: Any, other: Any, **kwargs: Any) -> str:
    both = isinstance(input, Value) and isinstance(other, Value)
    return f"SpecialXlog1Py{0 if both else 2 if isinstance(input, Value) else 1}"


@titled(_title_of_xlog1py)
def xlog1py(input: Any, other: Any, *, out: Any = None) -> Any:
    """``input * log1p(other)``, 0 where ``input`` is 0 and ``other`` no NaN."""
    if not isinstance(input, Value) and not isinstance(other, Value):
        raise TypeError("xlog1py(): one of the arguments must be a Tensor")
    x, y = (v if isinstance(v, Value) else as_tensor(v) for v in (input, other))
    product = ops.mul(x, ops.log1p(y))
    still = ops.logical_and(ops.eq(x, 0), ops.logical_not(ops.isnan(y)))
    return _given(out, ops.where(still, ops.mul(ops.where(ops.isfinite(y), y, 0.0), 0.0), product))


def zeta(input: Any, other: Any, *, out: Any = None) -> Any:
    """Hurwitz zeta function: the sum of ``(other + k) ** -input`` over ``k >= 0``; one may be a number."""
    if not isinstance(input, Value) and not isinstance(other, Value):
        raise TypeError("special.zeta(): one of the arguments must be a Tensor")
    return _given(out, ops.zeta(input, other))


def spherical_bessel_j0(input: Any, *, out: Any = None) -> Any:
    """``sin(x) / x``, 1 at 0."""
    x = _float("spherical_bessel_j0", input)
    return _given(out, ops.where(ops.isinf(x), 0.0, ops.mul(x, 1 / math.pi).sinc()))


# --- orthogonal polynomials ---


def _polynomial(
    name: str,
    x: Any,
    n: Any,
    first: Callable[[Any], Any],
    step: Callable[[int, Any, Any, Any], Any],
    out: Any,
) -> Any:
    """The polynomial of degree ``n`` (0 below 0): 1, then ``first``, then what ``step`` makes of two."""
    if not isinstance(x, Value) and not isinstance(n, Value):
        raise TypeError(f"special.{name}(): one of the arguments must be a Tensor, got {x} and {n}")
    x = _float(name, x if isinstance(x, Value) else as_tensor(x))
    degrees = np.asarray(n._backend.to_host(n.raw) if isinstance(n, Value) else n).astype(np.int64)
    order = from_backend_array(x, degrees)
    lower, upper = ops.add(ops.mul(x, 0.0), 1.0), first(x)
    made = ops.where(ops.eq(order, 0), lower, 0.0)
    for k in range(1, int(degrees.max(initial=0)) + 1):
        made = ops.where(ops.eq(order, k), upper, made)
        lower, upper = upper, step(k, x, upper, lower)
    return _given(out, made)


def _chebyshev(k: int, x: Any, upper: Any, lower: Any) -> Any:
    return ops.sub(ops.mul(ops.mul(x, 2.0), upper), lower)


def chebyshev_polynomial_t(input: Any, n: Any, *, out: Any = None) -> Any:
    """Chebyshev's polynomial of the first kind."""
    return _polynomial("chebyshev_polynomial_t", input, n, lambda x: x, _chebyshev, out)


def chebyshev_polynomial_u(input: Any, n: Any, *, out: Any = None) -> Any:
    """Chebyshev's polynomial of the second kind."""
    return _polynomial("chebyshev_polynomial_u", input, n, lambda x: x * 2.0, _chebyshev, out)


def chebyshev_polynomial_v(input: Any, n: Any, *, out: Any = None) -> Any:
    """Chebyshev's polynomial of the third kind."""
    return _polynomial("chebyshev_polynomial_v", input, n, lambda x: x * 2.0 - 1.0, _chebyshev, out)


def chebyshev_polynomial_w(input: Any, n: Any, *, out: Any = None) -> Any:
    """Chebyshev's polynomial of the fourth kind."""
    return _polynomial("chebyshev_polynomial_w", input, n, lambda x: x * 2.0 + 1.0, _chebyshev, out)


def _shifted(x: Any) -> Any:
    return ops.sub(ops.mul(x, 2.0), 1.0) if isinstance(x, Value) else 2.0 * x - 1.0


def shifted_chebyshev_polynomial_t(input: Any, n: Any, *, out: Any = None) -> Any:
    """``chebyshev_polynomial_t`` of ``2 x - 1``."""
    return chebyshev_polynomial_t(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_u(input: Any, n: Any, *, out: Any = None) -> Any:
    """``chebyshev_polynomial_u`` of ``2 x - 1``."""
    return chebyshev_polynomial_u(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_v(input: Any, n: Any, *, out: Any = None) -> Any:
    """``chebyshev_polynomial_v`` of ``2 x - 1``."""
    return chebyshev_polynomial_v(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_w(input: Any, n: Any, *, out: Any = None) -> Any:
    """``chebyshev_polynomial_w`` of ``2 x - 1``."""
    return chebyshev_polynomial_w(_shifted(input), n, out=out)


def hermite_polynomial_h(input: Any, n: Any, *, out: Any = None) -> Any:
    """The physicists' Hermite polynomial."""
    return _polynomial(
        "hermite_polynomial_h",
        input,
        n,
        lambda x: x * 2.0,
        lambda k, x, u, v: x * 2.0 * u - v * (2.0 * k),
        out,
    )


def hermite_polynomial_he(input: Any, n: Any, *, out: Any = None) -> Any:
    """The probabilists' Hermite polynomial."""
    return _polynomial(
        "hermite_polynomial_he", input, n, lambda x: x, lambda k, x, u, v: x * u - v * float(k), out
    )


def laguerre_polynomial_l(input: Any, n: Any, *, out: Any = None) -> Any:
    """Laguerre's polynomial."""
    return _polynomial(
        "laguerre_polynomial_l",
        input,
        n,
        lambda x: 1.0 - x,
        lambda k, x, u, v: ((2 * k + 1 - x) * u - v * float(k)) / (k + 1),
        out,
    )


def legendre_polynomial_p(input: Any, n: Any, *, out: Any = None) -> Any:
    """Legendre's polynomial."""
    return _polynomial(
        "legendre_polynomial_p",
        input,
        n,
        lambda x: x,
        lambda k, x, u, v: (x * u * (2.0 * k + 1) - v * float(k)) / (k + 1),
        out,
    )


register("torch.special", {name: globals()[name] for name in __all__})
