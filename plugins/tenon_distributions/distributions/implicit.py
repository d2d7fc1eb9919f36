"""How gamma and beta numbers move with their parameters: implicit reparametrisation gradients.

A number ``x`` with distribution function ``F(x; a)`` and density ``f`` that keeps its place ``F(x; a) = u``
moves by ``dx/da = -(dF/da) / f`` (Figurnov, Mohamed and Mnih, 2018). Both families are ``exp(a T(x))`` in
``a``, so that is an integral over one tail, with ``m = E[T]``:

    dx/da = integral of (m - T(t)) f(t) / f(x) over t < x  =  integral of (T(t) - m) f(t) / f(x) over t > x

with ``T = log t``. Each is a sum of positive parts where ``T(x)`` lies on its side of ``m``. In the variable
``s``, the distance from ``x`` in ``log t`` (gamma) or ``logit t`` (beta), the integrand falls from ``s = 0``
on as a mixture of exponentials of very different rates, which a trapezoidal rule in ``s = unit exp(u -
exp(-u))`` integrates to about ten digits, whatever the rates (Takahasi and Mori, 1974).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon import ops

_NODES = 80
#: ``u`` of the first node, where ``s`` is 1e-31 of its unit; ``exp(-_END)`` is nothing.
_FIRST, _END = -4.2, 42.0
#: Numbers at once: a node of each in the second-level cache.
_CHUNK = 512


def _tail(weight: Callable[[Any], Any], exponent: Callable[[Any], Any], unit: Any, reach: Any) -> Any:
    """The integral of ``weight(s) exp(exponent(s))`` over ``s > 0``, row by row.

    ``unit``: the shortest length over which the integrand changes; ``reach``: where it has ended.
    """
    last = np.log(np.maximum(reach / unit, 1.0)) + 0.1
    step = (last - _FIRST) / (_NODES - 1)
    u = _FIRST + step * np.arange(_NODES)
    fall = np.exp(-u)
    s = unit * np.exp(u - fall)
    slope = s * (1 + fall) * step
    return (weight(s) * np.exp(np.minimum(exponent(s), 700.0)) * slope).sum(-1, keepdims=True)


def _in_pieces(rule: Callable[..., Any], *arrays: Any) -> Any:
    arrays = np.broadcast_arrays(*(np.asarray(a, np.float64) for a in arrays))
    flat = [a.reshape(-1, 1) for a in arrays]
    out = np.empty((flat[0].shape[0], 1))
    with np.errstate(all="ignore"):
        for begin in range(0, out.shape[0], _CHUNK):
            piece = slice(begin, begin + _CHUNK)
            out[piece] = rule(*(a[piece] for a in flat))
    return out.reshape(arrays[0].shape)


def _psi(x: Any) -> Any:
    forward: Any = ops.digamma.forward
    return forward(np, x)


def gamma_slope(concentration: Any, x: Any) -> Any:
    """``dx/da`` of gamma numbers ``x`` of concentration ``a`` and rate 1."""
    return _in_pieces(_gamma_rows, concentration, x)


def _gamma_rows(a: Any, x: Any) -> Any:
    centre = _psi(a) - np.log(x)
    low = (centre >= 0) | ((a < 1) & (x < 1))
    unit = 1 / (np.abs(a - x) + np.sqrt(np.maximum(a, x)) + 1)
    out = np.empty_like(a)
    if low.any():  # t = x exp(-s)
        p, y, c, v = a[low, None], x[low, None], centre[low, None], unit[low, None]
        out[low] = _tail(lambda s: c + s, lambda s: -p * s - y * np.expm1(-s), v, (_END + y) / p)[:, 0]
    if (~low).any():  # t = x exp(s)
        high = ~low
        p, y, c, v = a[high, None], x[high, None], centre[high, None], unit[high, None]
        reach = np.minimum(np.sqrt(2 * _END / y), np.log1p((_END + p * 4) / y)) * 2 + 1e-300
        out[high] = _tail(lambda s: s - c, lambda s: p * s - y * np.expm1(s), v, reach)[:, 0]
    return np.where((x > 0) & (a > 0), out * x, np.where(x == 0, 0.0, np.nan))


def beta_slope(x: Any, a: Any, b: Any) -> Any:
    """``dx/da`` of beta numbers ``x`` of the concentrations ``a`` (of ``x``) and ``b`` (of ``1 - x``)."""
    return _in_pieces(_beta_rows, x, a, b)


def _log_mean_exp(y: Any, s: Any) -> Any:
    """``log(1 - y + y exp(s))``, for any ``s``."""
    far = s + np.log(y + (1 - y) * np.exp(-np.maximum(s, 0.0)))
    return np.where(s > 30, far, np.log1p(y * np.expm1(np.minimum(s, 30.0))))


def _beta_rows(x: Any, a: Any, b: Any) -> Any:
    mean = _psi(a) - _psi(a + b)
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
        # t = x e / (1 - x + x e) with e = exp(sign s); log(t / x) and log((1 - t) / (1 - x)) share a part
        shared = lambda s, y=y, sign=sign: _log_mean_exp(y, sign * s)  # noqa: E731
        moved = lambda s, sign=sign, shared=shared: sign * s - shared(s)  # noqa: E731
        weight = lambda s, m=m, sign=sign, moved=moved: sign * (moved(s) - m)  # noqa: E731
        exponent = lambda s, p=p, q=q, moved=moved, shared=shared: p * moved(s) - q * shared(s)  # noqa: E731
        tail = p if sign < 0 else q
        edge = np.abs(np.log(y) - np.log1p(-y))
        out[side] = _tail(weight, exponent, v, _END / tail * 1.05 + edge + 2)[:, 0]
    inside = (x > 0) & (x < 1)
    return np.where(inside, out * x * (1 - x), 0.0)
