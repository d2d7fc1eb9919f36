"""Gamma, Poisson and binomial numbers on NumPy arrays, by rejection, a round for all that are still open.

These are not PyTorch's numbers for a seed, only its distributions: its loops draw one number after another.
Parameters are float64 arrays, results too; what is drawn depends on their order and on the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenon import Generator
from tenon.extend import random_arrays

normal, uniform = random_arrays.normal, random_arrays.uniform

#: From here on transformed rejection takes over from sums of probabilities (Hörmann 1993: 10).
_MANY = 10.0


def _rounds(attempt: Callable[[Any], tuple[Any, Any]], count: int) -> Any:
    """``attempt(indices) -> (values, accepted)``, repeated for those that were not accepted."""
    out = np.empty(count)
    open_ones = np.arange(count)
    while open_ones.size:
        values, accepted = attempt(open_ones)
        out[open_ones[accepted]] = values[accepted]
        open_ones = open_ones[~accepted]
    return out


def _uniforms(generator: Generator | None, count: int) -> Any:
    """float64 numbers in (0, 1]."""
    return 1.0 - uniform(generator, (count,), np.float64)


def log_standard_gamma(generator: Generator | None, concentration: Any) -> Any:
    """Logarithms of gamma numbers of rate 1, which do not underflow for small concentrations.

    Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; below 1 a number of
    ``concentration + 1`` times ``u ** (1 / concentration)``.
    """
    a = np.asarray(concentration, np.float64).reshape(-1)
    if not a.size:
        return np.empty(np.shape(concentration))
    with np.errstate(all="ignore"):
        fine = a > 0
        small = fine & (a < 1)
        d = np.where(small, a + 1, np.where(fine, a, 1.0)) - 1 / 3
        c = 1 / np.sqrt(9 * d)

        def attempt(at: Any) -> tuple[Any, Any]:
            x = normal(generator, (at.size,), np.float64)
            u = _uniforms(generator, at.size)
            v = (1 + c[at] * x) ** 3
            log_v = np.log(v)
            fits = np.log(u) < 0.5 * x * x + d[at] * (1 - v + log_v)
            return np.log(d[at]) + log_v, (v > 0) & fits

        made = _rounds(attempt, a.size)
        if small.any():
            made[small] += np.log(_uniforms(generator, int(small.sum()))) / a[small]
        made[~fine] = np.where(a[~fine] == 0, -np.inf, np.nan)
    return made.reshape(np.shape(concentration))


def poisson(generator: Generator | None, rate: Any) -> Any:
    """Poisson numbers: sums of probabilities below 10, Hörmann's PTRS ("The transformed rejection method for
    generating Poisson random variables", 1993) from there."""
    lam = np.asarray(rate, np.float64).reshape(-1)
    out = np.zeros(lam.size)
    few, many = (lam > 0) & (lam < _MANY), lam >= _MANY
    if few.any():
        small = lam[few]
        out[few] = _by_summing(
            _uniforms(generator, small.size), np.exp(-small), lambda k, at: small[at] / (k + 1)
        )
    if many.any():
        out[many] = _poisson_by_rejection(generator, lam[many])
    out[np.isnan(lam)] = np.nan
    return out.reshape(np.shape(rate))


def _by_summing(u: Any, first: Any, ratio: Callable[[Any, Any], Any]) -> Any:
    """The first k whose probabilities up to k reach ``u``; ``ratio(k, indices)`` is p(k + 1) / p(k)."""
    k = np.zeros(u.size)
    left, p = u - first, first.copy()
    open_ones = np.flatnonzero(left > 0)
    while open_ones.size:
        p[open_ones] *= ratio(k[open_ones], open_ones)
        k[open_ones] += 1
        left[open_ones] -= p[open_ones]
        open_ones = open_ones[(left[open_ones] > 0) & (p[open_ones] > 0)]
    return k


def _poisson_by_rejection(generator: Generator | None, lam: Any) -> Any:
    root, log_lam = np.sqrt(lam), np.log(lam)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)

    def attempt(at: Any) -> tuple[Any, Any]:
        u, v = _uniforms(generator, at.size) - 0.5, _uniforms(generator, at.size)
        near = 0.5 - np.abs(u)
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.floor((2 * a[at] / near + b[at]) * u + lam[at] + 0.43)
            exact = np.log(v) + np.log(inverse_alpha[at]) - np.log(a[at] / (near * near) + b[at])
            fits = exact <= k * log_lam[at] - lam[at] - log_factorial(k)
        quick = (near >= 0.07) & (v <= squeeze[at])
        return k, quick | ((k >= 0) & ~((near < 0.013) & (v > near)) & fits)

    return _rounds(attempt, lam.size)


def binomial(generator: Generator | None, count: Any, prob: Any) -> Any:
    """Binomial numbers: sums of probabilities where few successes are expected, Hörmann's BTRS ("The
    generation of binomial random variates", 1993) elsewhere."""
    n, p = (np.array(v, np.float64) for v in np.broadcast_arrays(count, prob))
    shape, n, p = n.shape, n.reshape(-1), p.reshape(-1)
    turned = p > 0.5
    q = np.where(turned, 1 - p, p)
    out = np.zeros(n.size)
    drawn = (n > 0) & (q > 0)
    few, many = drawn & (n * q < _MANY), drawn & (n * q >= _MANY)
    if few.any():
        m, odds = n[few], q[few] / (1 - q[few])
        first = np.exp(m * np.log1p(-q[few]))
        u = _uniforms(generator, m.size)
        out[few] = np.minimum(_by_summing(u, first, lambda k, at: (m[at] - k) / (k + 1) * odds[at]), m)
    if many.any():
        out[many] = _binomial_by_rejection(generator, n[many], q[many])
    out = np.where(turned, n - out, out)
    out[np.isnan(n) | np.isnan(p)] = np.nan
    return out.reshape(shape)


def _binomial_by_rejection(generator: Generator | None, n: Any, p: Any) -> Any:
    root = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * root
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, squeeze = n * p + 0.5, 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * root
    mode, odds = np.floor((n + 1) * p), np.log(p / (1 - p))
    highest = log_factorial(mode) + log_factorial(n - mode)

    def attempt(at: Any) -> tuple[Any, Any]:
        u, v = _uniforms(generator, at.size) - 0.5, _uniforms(generator, at.size)
        near = 0.5 - np.abs(u)
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.floor((2 * a[at] / near + b[at]) * u + centre[at])
            inside = (k >= 0) & (k <= n[at])
            kept = np.where(inside, k, 0.0)
            exact = np.log(v * alpha[at] / (a[at] / (near * near) + b[at]))
            log_ratio = highest[at] - log_factorial(kept) - log_factorial(n[at] - kept)
            fits = exact <= log_ratio + (kept - mode[at]) * odds[at]
        quick = (near >= 0.07) & (v <= squeeze[at])
        return k, inside & (quick | fits)

    return _rounds(attempt, n.size)


def log_factorial(k: Any) -> Any:
    """``log(k!)`` of whole numbers: Stirling's series past 10, a table before."""
    table = np.cumsum(np.log(np.maximum(np.arange(11.0), 1.0)))
    z = np.maximum(k, 10.0) + 1.0
    series = (z - 0.5) * np.log(z) - z + 0.91893853320467274178
    series = series + (1 / 12 - (1 / 360 - 1 / 1260 / (z * z)) / (z * z)) / z
    return np.where(k > 10, series, table[np.clip(k, 0, 10).astype(np.int64)])
