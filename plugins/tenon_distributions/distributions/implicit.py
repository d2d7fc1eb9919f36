"""Derivatives of gamma and beta samples by their parameters: implicit reparametrisation gradients.

For a sample ``x`` with distribution function ``F(x; a)`` and density ``f``, holding ``F(x; a) = u`` fixed
gives ``dx/da = -(dF/da) / f`` (Figurnov, Mohamed and Mnih, 2018). Both families are ``exp(a T(x))`` in ``a``,
so that is an integral over one tail, with ``m = E[T]``:

    dx/da = integral of (m - T(t)) f(t) / f(x) over t < x  =  integral of (T(t) - m) f(t) / f(x) over t > x

with ``T = log t``. The integrand has one sign where ``T(x)`` lies on that side of ``m``. In the variable
``s``, the distance from ``x`` in ``log t`` (gamma) or ``logit t`` (beta), the integrand falls from ``s = 0``
on as a mixture of exponentials of very different rates, which a trapezoidal rule in ``s = unit exp(u -
exp(-u))`` integrates to about ten digits, whatever the rates (Takahasi and Mori, 1974).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tenon import ops

_NODES = 80
#: ``u`` of the first node, where ``s`` is 1e-31 units, and where integrands end: ``exp(-_END)`` is
#: negligible.
_FIRST, _END = -4.2, 42.0
#: Samples per chunk: all nodes of a chunk fit into the second-level cache.
_CHUNK = 512

#: An elementwise function of arrays.
_Elementwise: TypeAlias = Callable[[np.ndarray], np.ndarray]


def _integrate_tail(
    weight: _Elementwise, exponent: _Elementwise, unit: np.ndarray, reach: np.ndarray
) -> np.ndarray:
    """Integrate ``weight(s) exp(exponent(s))`` over ``s > 0``, row by row.

    ``unit`` is the shortest length over which the integrand changes; beyond ``reach`` it is negligible.
    """
    last = np.log(np.maximum(reach / unit, 1.0)) + 0.1
    step = (last - _FIRST) / (_NODES - 1)
    u = _FIRST + step * np.arange(_NODES)
    decay = np.exp(-u)
    s = unit * np.exp(u - decay)
    node_weight = s * (1 + decay) * step
    return (weight(s) * np.exp(np.minimum(exponent(s), 700.0)) * node_weight).sum(-1, keepdims=True)


def _in_chunks(gradient: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """Broadcast ``arrays`` and apply ``gradient`` to their elements as float64 columns, chunk by chunk."""
    broadcast = np.broadcast_arrays(*(np.asarray(a, np.float64) for a in arrays))
    flat = [a.reshape(-1, 1) for a in broadcast]
    out = np.empty((flat[0].shape[0], 1))
    with np.errstate(all="ignore"):
        for begin in range(0, out.shape[0], _CHUNK):
            chunk = slice(begin, begin + _CHUNK)
            out[chunk] = gradient(*(a[chunk] for a in flat))
    return out.reshape(broadcast[0].shape)


def _digamma(x: np.ndarray) -> np.ndarray:
    forward: Callable[..., np.ndarray] = ops.digamma.forward
    return forward(np, x)


def gamma_gradient(concentration: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return ``dx/da`` of gamma samples ``x`` of concentration ``a`` and rate 1."""
    return _in_chunks(_gamma_rows, concentration, x)


def _gamma_rows(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    centre = _digamma(a) - np.log(x)
    low = (centre >= 0) | ((a < 1) & (x < 1))
    unit = 1 / (np.abs(a - x) + np.sqrt(np.maximum(a, x)) + 1)
    out = np.empty_like(a)
    if low.any():  # t = x exp(-s)
        p, y, c, v = a[low, None], x[low, None], centre[low, None], unit[low, None]
        out[low] = _integrate_tail(lambda s: c + s, lambda s: -p * s - y * np.expm1(-s), v, (_END + y) / p)[
            :, 0
        ]
    if (~low).any():  # t = x exp(s)
        high = ~low
        p, y, c, v = a[high, None], x[high, None], centre[high, None], unit[high, None]
        reach = np.minimum(np.sqrt(2 * _END / y), np.log1p((_END + p * 4) / y)) * 2 + 1e-300
        out[high] = _integrate_tail(lambda s: s - c, lambda s: p * s - y * np.expm1(s), v, reach)[:, 0]
    return np.where((x > 0) & (a > 0), out * x, np.where(x == 0, 0.0, np.nan))


def beta_gradient(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return ``dx/da`` of beta samples ``x`` of concentrations ``a`` (of ``x``) and ``b`` (of ``1 - x``)."""
    return _in_chunks(_beta_rows, x, a, b)


def _log_mean_exp(y: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return ``log(1 - y + y exp(s))``, without overflow for any ``s``."""
    far = s + np.log(y + (1 - y) * np.exp(-np.maximum(s, 0.0)))
    return np.where(s > 30, far, np.log1p(y * np.expm1(np.minimum(s, 30.0))))


def _beta_rows(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    mean = _digamma(a) - _digamma(a + b)
    log_x = np.log(x)
    low = mean >= log_x
    low |= (x < 0.5) & (a < 1) & (b * x < 1)
    low &= ~((x > 0.5) & (b < 1) & (a * (1 - x) < 1))
    rate = np.abs(a * (1 - x) - b * x)
    unit = 1 / (rate + np.sqrt((a + b) * x * (1 - x)) + 1)
    out = np.empty_like(x)
    for side, sign in ((low, -1.0), (~low, 1.0)):
        if not side.any():
            continue
        y, p, q, m, v = (k[side, None] for k in (x, a, b, mean - log_x, unit))
        # t = x e / (1 - x + x e) with e = exp(sign s); log(t / x) and log((1 - t) / (1 - x)) share a term
        shared = lambda s, y=y, sign=sign: _log_mean_exp(y, sign * s)  # noqa: E731
        shifted = lambda s, sign=sign, shared=shared: sign * s - shared(s)  # noqa: E731
        weight = lambda s, m=m, sign=sign, shifted=shifted: sign * (shifted(s) - m)  # noqa: E731
        exponent = lambda s, p=p, q=q, shifted=shifted, shared=shared: p * shifted(s) - q * shared(s)  # noqa: E731
        tail = p if sign < 0 else q
        edge = np.abs(np.log(y) - np.log1p(-y))
        out[side] = _integrate_tail(weight, exponent, v, _END / tail * 1.05 + edge + 2)[:, 0]
    inside = (x > 0) & (x < 1)
    return np.where(inside, out * x * (1 - x), 0.0)
