"""Orthogonal polynomials, evaluated by three-term recurrences; unlike PyTorch's they are differentiable.

The degree ``n`` is a number or an integer tensor, which broadcasts with the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import tenon
from tenon import ops
from tenon.errors import ArgumentError, UnsupportedDTypeError
from tenon.extend import wrap
from tenon_special.arguments import floating, write_result

if TYPE_CHECKING:
    from tenon import Tensor

#: Some seconds of computing; PyTorch's limits depend on the polynomial.
_HIGHEST_DEGREE = 100_000


def _polynomial(
    name: str,
    x: Tensor | float,
    n: Tensor | float,
    degree_one: Callable[[Tensor], Tensor],
    recurrence: Callable[[int, Tensor, Tensor, Tensor], Tensor],
    out: Tensor | None,
) -> Tensor:
    """Evaluate the polynomial of degree ``n`` at ``x`` by its three-term recurrence; 0 for negative ``n``.

    The polynomials are ``p_0 = 1``, ``p_1 = degree_one(x)`` and ``p_(k + 1) = recurrence(k, x, p_k, p_(k -
    1))``. ``x`` and ``n`` broadcast; all degrees up to the largest are computed, and each element selects its
    own.
    """
    if not isinstance(x, tenon.Tensor) and not isinstance(n, tenon.Tensor):
        raise TypeError(f"special.{name}(): one of the arguments must be a Tensor, got {x} and {n}")
    if np.iscomplexobj(n.raw if isinstance(n, tenon.Tensor) else n):
        raise UnsupportedDTypeError(
            f"special.{name}(): the degree n is a whole number, got a complex {type(n).__name__}"
        )
    number = x.item() if isinstance(x, np.generic) else x
    point: Tensor = floating(name, number if isinstance(number, tenon.Tensor) else tenon.as_tensor(number))
    if isinstance(n, tenon.Tensor) and n.is_floating_point():
        point = point.to(tenon.result_type(point, n))
    degrees = np.asarray(n._backend.to_host(n.raw) if isinstance(n, tenon.Tensor) else n)
    with np.errstate(invalid="ignore"):  # infinities become negative
        degrees = degrees.astype(np.int64)
    highest = int(degrees.max(initial=0))
    if highest > _HIGHEST_DEGREE:
        raise ArgumentError(
            f"special.{name}(): the degree is at most {_HIGHEST_DEGREE:,}, as each is a step, got {highest}"
        )
    order = n.to(tenon.int64) if isinstance(n, tenon.Tensor) else wrap(degrees, point.device)
    previous, current = ops.add(ops.mul(point, 0.0), 1.0), degree_one(point)
    result = ops.where(ops.eq(order, 0), previous, 0.0)
    for k in range(1, highest + 1):
        result = ops.where(ops.eq(order, k), current, result)
        previous, current = current, recurrence(k, point, current, previous)
    return write_result(out, result)


def _chebyshev(k: int, x: Tensor, current: Tensor, previous: Tensor) -> Tensor:
    """Return ``2 x p_k - p_(k - 1)``, the recurrence of all four kinds."""
    return ops.sub(ops.mul(ops.mul(x, 2.0), current), previous)


def chebyshev_polynomial_t(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the first kind, ``T_n(input)``, elementwise; 0 for negative
    ``n``."""
    return _polynomial("chebyshev_polynomial_t", input, n, lambda x: x, _chebyshev, out)


def chebyshev_polynomial_u(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the second kind, ``U_n(input)``, elementwise; 0 for negative
    ``n``."""
    return _polynomial("chebyshev_polynomial_u", input, n, lambda x: x * 2.0, _chebyshev, out)


def chebyshev_polynomial_v(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the third kind, ``V_n(input)``, elementwise; 0 for negative
    ``n``."""
    return _polynomial("chebyshev_polynomial_v", input, n, lambda x: x * 2.0 - 1.0, _chebyshev, out)


def chebyshev_polynomial_w(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the Chebyshev polynomial of the fourth kind, ``W_n(input)``, elementwise; 0 for negative
    ``n``."""
    return _polynomial("chebyshev_polynomial_w", input, n, lambda x: x * 2.0 + 1.0, _chebyshev, out)


def _shifted(x: Tensor | float) -> Tensor | float:
    """Return ``2 x - 1``, which maps the interval from 0 to 1 to that from -1 to 1."""
    return ops.sub(ops.mul(x, 2.0), 1.0) if isinstance(x, tenon.Tensor) else 2.0 * np.asarray(x).item() - 1.0


def shifted_chebyshev_polynomial_t(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """Return ``chebyshev_polynomial_t(2 * input - 1, n)``, which is orthogonal on the interval from 0 to
    1."""
    return chebyshev_polynomial_t(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_u(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """Return ``chebyshev_polynomial_u(2 * input - 1, n)``, which is orthogonal on the interval from 0 to
    1."""
    return chebyshev_polynomial_u(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_v(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """Return ``chebyshev_polynomial_v(2 * input - 1, n)``, which is orthogonal on the interval from 0 to
    1."""
    return chebyshev_polynomial_v(_shifted(input), n, out=out)


def shifted_chebyshev_polynomial_w(
    input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """Return ``chebyshev_polynomial_w(2 * input - 1, n)``, which is orthogonal on the interval from 0 to
    1."""
    return chebyshev_polynomial_w(_shifted(input), n, out=out)


def hermite_polynomial_h(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the physicists' Hermite polynomial ``H_n(input)``, elementwise; 0 for negative ``n``."""
    return _polynomial(
        "hermite_polynomial_h",
        input,
        n,
        lambda x: x * 2.0,
        lambda k, x, current, previous: x * 2.0 * current - previous * (2.0 * k),
        out,
    )


def hermite_polynomial_he(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the probabilists' Hermite polynomial ``He_n(input)``, elementwise; 0 for negative ``n``."""
    return _polynomial(
        "hermite_polynomial_he",
        input,
        n,
        lambda x: x,
        lambda k, x, current, previous: x * current - previous * float(k),
        out,
    )


def laguerre_polynomial_l(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the Laguerre polynomial ``L_n(input)``, elementwise; 0 for negative ``n``."""
    return _polynomial(
        "laguerre_polynomial_l",
        input,
        n,
        lambda x: 1.0 - x,
        lambda k, x, current, previous: ((2 * k + 1 - x) * current - previous * float(k)) / (k + 1),
        out,
    )


def legendre_polynomial_p(input: Tensor | float, n: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return the Legendre polynomial ``P_n(input)``, elementwise; 0 for negative ``n``."""
    return _polynomial(
        "legendre_polynomial_p",
        input,
        n,
        lambda x: x,
        lambda k, x, current, previous: (x * current * (2.0 * k + 1) - previous * float(k)) / (k + 1),
        out,
    )
