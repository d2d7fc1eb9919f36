"""Orthogonal polynomials by their recurrences; unlike PyTorch's they are differentiable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import tenon
from tenon import ops
from tenon.extend import wrap
from tenon_special.arguments import floating, write_result

if TYPE_CHECKING:
    from tenon import Tensor


def _polynomial(
    name: str,
    x: Tensor | float,
    n: Tensor | float,
    first: Callable[[Tensor], Tensor],
    step: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    out: Tensor | None,
) -> Tensor:
    """Return the polynomial of degree ``n``, 0 for negative ``n``.

    Degree 0 is 1, degree 1 ``first(x)``, degree k + 1 ``step(k, x, p_k, p_(k - 1))``.
    """
    if not isinstance(x, tenon.Tensor) and not isinstance(n, tenon.Tensor):
        raise TypeError(f"special.{name}(): one of the arguments must be a Tensor, got {x} and {n}")
    x = floating(name, x if isinstance(x, tenon.Tensor) else tenon.as_tensor(x))
    degrees = np.asarray(n._backend.to_host(n.raw) if isinstance(n, tenon.Tensor) else n).astype(np.int64)
    order = wrap(degrees, x.device)
    lower, upper = ops.add(ops.mul(x, 0.0), 1.0), first(x)
    result = ops.where(ops.eq(order, 0), lower, 0.0)
    for k in range(1, int(degrees.max(initial=0)) + 1):
        result = ops.where(ops.eq(order, k), upper, result)
        lower, upper = upper, step(k, x, upper, lower)
    return write_result(out, result)


def _chebyshev(k: int, x: Tensor, upper: Tensor, lower: Tensor) -> Tensor:
    return ops.sub(ops.mul(ops.mul(x, 2.0), upper), lower)


def chebyshev_polynomial_t(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the first kind."""
    return _polynomial("chebyshev_polynomial_t", input, n, lambda x: x, _chebyshev, out)


def chebyshev_polynomial_u(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the second kind."""
    return _polynomial("chebyshev_polynomial_u", input, n, lambda x: x * 2.0, _chebyshev, out)


def chebyshev_polynomial_v(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the third kind."""
    return _polynomial("chebyshev_polynomial_v", input, n, lambda x: x * 2.0 - 1.0, _chebyshev, out)


def chebyshev_polynomial_w(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the fourth kind."""
    return _polynomial("chebyshev_polynomial_w", input, n, lambda x: x * 2.0 + 1.0, _chebyshev, out)


def _shifted(x: Tensor | float) -> Tensor | float:
    return ops.sub(ops.mul(x, 2.0), 1.0) if isinstance(x, tenon.Tensor) else 2.0 * x - 1.0


def shifted_chebyshev_polynomial_t(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """``chebyshev_polynomial_t`` of ``2 x - 1``."""
    return chebyshev_polynomial_t(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_u(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """``chebyshev_polynomial_u`` of ``2 x - 1``."""
    return chebyshev_polynomial_u(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_v(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """``chebyshev_polynomial_v`` of ``2 x - 1``."""
    return chebyshev_polynomial_v(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_w(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """``chebyshev_polynomial_w`` of ``2 x - 1``."""
    return chebyshev_polynomial_w(_shifted(input), n, out=out)


def hermite_polynomial_h(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """The physicists' Hermite polynomial."""
    return _polynomial(
        "hermite_polynomial_h",
        input,
        n,
        lambda x: x * 2.0,
        lambda k, x, u, v: x * 2.0 * u - v * (2.0 * k),
        out,
    )


def hermite_polynomial_he(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """The probabilists' Hermite polynomial."""
    return _polynomial(
        "hermite_polynomial_he", input, n, lambda x: x, lambda k, x, u, v: x * u - v * float(k), out
    )


def laguerre_polynomial_l(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Laguerre's polynomial."""
    return _polynomial(
        "laguerre_polynomial_l",
        input,
        n,
        lambda x: 1.0 - x,
        lambda k, x, u, v: ((2 * k + 1 - x) * u - v * float(k)) / (k + 1),
        out,
    )


def legendre_polynomial_p(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Legendre's polynomial."""
    return _polynomial(
        "legendre_polynomial_p",
        input,
        n,
        lambda x: x,
        lambda k, x, u, v: (x * u * (2.0 * k + 1) - v * float(k)) / (k + 1),
        out,
    )
