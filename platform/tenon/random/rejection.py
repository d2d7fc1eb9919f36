"""Gamma, Dirichlet, Poisson and binomial samples as arrays, by rejection in rounds over the pending elements.

For a seed, PyTorch draws other samples of the same distributions: its loops draw one sample after another.
Samples are computed in float64, and depend on the parameters' order and the random stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tenon.errors import RandomArgumentError
from tenon.random.continuous import normal, uniform
from tenon.random.generator import Generator
from tenon.random.layout import as_double

#: The mean from which transformed rejection replaces inversion (Hörmann 1993: 10).
_REJECTION_MEAN = 10.0


#: Takes indices of pending elements; returns proposed values, and which of them are accepted.
_Attempt: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _rejection_rounds(attempt: _Attempt, count: int) -> np.ndarray:
    """Call ``attempt`` until it has accepted a value for each of ``count`` elements; return the values."""
    out = np.empty(count)
    pending = np.arange(count)
    while pending.size:
        values, accepted = attempt(pending)
        out[pending[accepted]] = values[accepted]
        pending = pending[~accepted]
    return out


def _uniform_samples(generator: Generator | None, count: int) -> np.ndarray:
    """Draw ``count`` float64 samples in (0, 1]."""
    return 1.0 - uniform(generator, (count,), np.float64)


def log_standard_gamma(generator: Generator | None, concentration: np.ndarray) -> np.ndarray:
    """Draw logarithms of gamma samples of rate 1, which do not underflow for small concentrations.

    Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; below concentration 1, a
    sample of ``concentration + 1`` times ``u ** (1 / concentration)``.
    """
    a = _doubles(concentration).reshape(-1)
    if not a.size:
        return np.empty(np.shape(concentration))
    with np.errstate(all="ignore"):
        valid = a > 0
        small = valid & (a < 1)
        d = np.where(small, a + 1, np.where(valid, a, 1.0)) - 1 / 3
        c = 1 / np.sqrt(9 * d)

        def attempt(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            x = normal(generator, (at.size,), np.float64)
            u = _uniform_samples(generator, at.size)
            v = (1 + c[at] * x) ** 3
            log_v = np.log(v)
            below_density = np.log(u) < 0.5 * x * x + d[at] * (1 - v + log_v)
            return np.log(d[at]) + log_v, (v > 0) & below_density

        samples = _rejection_rounds(attempt, a.size)
        if small.any():
            samples[small] += np.log(_uniform_samples(generator, int(small.sum()))) / a[small]
        samples[~valid] = np.where(a[~valid] == 0, -np.inf, np.nan)
    return samples.reshape(np.shape(concentration))


def standard_gamma(
    generator: Generator | None, concentration: np.ndarray, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Draw gamma samples of rate 1: ``torch._standard_gamma``, but for its least value."""
    return _delivered(np.exp(log_standard_gamma(generator, concentration)), out)


def dirichlet(
    generator: Generator | None, concentration: np.ndarray, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Draw samples that add up to 1 along the last axis: ``torch._sample_dirichlet``, but for its range."""
    logs = log_standard_gamma(generator, concentration)
    parts = np.exp(logs - logs.max(-1, keepdims=True)) if logs.size else logs
    return _delivered(parts / parts.sum(-1, keepdims=True), out)


def _doubles(values: np.ndarray) -> np.ndarray:
    """Return parameters, which may be integers, as float64."""
    values = np.asarray(values)
    return values.astype(np.float64) if values.dtype.kind in "biu" else as_double(values)


def _delivered(samples: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """Return ``samples``, in ``out`` if that is given."""
    if out is None:
        return samples
    out[...] = samples
    return out


def poisson(generator: Generator | None, rate: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
    """Draw Poisson samples: by inversion for rates below 10, by Hörmann's PTRS from there.

    "The transformed rejection method for generating Poisson random variables", 1993.
    """
    lam = _doubles(rate).reshape(-1)
    if lam.size and lam.min() < 0:
        raise RandomArgumentError(
            f"invalid Poisson rate, expected rate to be non-negative, got {lam.min():.6g}"
        )
    samples = np.zeros(lam.size)
    small_mean, large_mean = (lam > 0) & (lam < _REJECTION_MEAN), lam >= _REJECTION_MEAN
    if small_mean.any():
        small = lam[small_mean]
        samples[small_mean] = _by_inversion(
            _uniform_samples(generator, small.size), np.exp(-small), lambda k, at: small[at] / (k + 1)
        )
    if large_mean.any():
        samples[large_mean] = _poisson_by_rejection(generator, lam[large_mean])
    samples[np.isnan(lam)] = np.nan
    return _delivered(samples.reshape(np.shape(rate)), out)


def _by_inversion(
    u: np.ndarray, first: np.ndarray, ratio: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the smallest k whose cumulative probability reaches ``u``.

    ``first`` is p(0); ``ratio(k, indices)`` is p(k + 1) / p(k) of the elements at ``indices``.
    """
    k = np.zeros(u.size)
    left, p = u - first, first.copy()
    pending = np.flatnonzero(left > 0)
    while pending.size:
        p[pending] *= ratio(k[pending], pending)
        k[pending] += 1
        left[pending] -= p[pending]
        pending = pending[(left[pending] > 0) & (p[pending] > 0)]
    return k


def _poisson_by_rejection(generator: Generator | None, lam: np.ndarray) -> np.ndarray:
    root, log_lam = np.sqrt(lam), np.log(lam)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)

    def attempt(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = _uniform_samples(generator, at.size) - 0.5, _uniform_samples(generator, at.size)
        near = 0.5 - np.abs(u)
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.floor((2 * a[at] / near + b[at]) * u + lam[at] + 0.43)
            exact = np.log(v) + np.log(inverse_alpha[at]) - np.log(a[at] / (near * near) + b[at])
            below_density = exact <= k * log_lam[at] - lam[at] - log_factorial(k)
        quick = (near >= 0.07) & (v <= squeeze[at])
        return k, quick | ((k >= 0) & ~((near < 0.013) & (v > near)) & below_density)

    return _rejection_rounds(attempt, lam.size)


def binomial(
    generator: Generator | None, count: np.ndarray, prob: np.ndarray, *, out: np.ndarray | None = None
) -> np.ndarray:
    """Draw binomial samples: by inversion where few successes are expected, elsewhere by Hörmann's BTRS.

    "The generation of binomial random variates", 1993.
    """
    n, p = (_doubles(v).copy() for v in np.broadcast_arrays(count, prob))
    shape, n, p = n.shape, n.reshape(-1), p.reshape(-1)
    mirrored = p > 0.5
    q = np.where(mirrored, 1 - p, p)
    samples = np.zeros(n.size)
    nonzero = (n > 0) & (q > 0)
    small_mean, large_mean = nonzero & (n * q < _REJECTION_MEAN), nonzero & (n * q >= _REJECTION_MEAN)
    if small_mean.any():
        m, odds = n[small_mean], q[small_mean] / (1 - q[small_mean])
        first = np.exp(m * np.log1p(-q[small_mean]))
        u = _uniform_samples(generator, m.size)
        samples[small_mean] = np.minimum(
            _by_inversion(u, first, lambda k, at: (m[at] - k) / (k + 1) * odds[at]), m
        )
    if large_mean.any():
        samples[large_mean] = _binomial_by_rejection(generator, n[large_mean], q[large_mean])
    samples = np.where(mirrored, n - samples, samples)
    samples[np.isnan(n) | np.isnan(p)] = np.nan
    return _delivered(samples.reshape(shape), out)


def _binomial_by_rejection(generator: Generator | None, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    root = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * root
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre, squeeze = n * p + 0.5, 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * root
    mode, odds = np.floor((n + 1) * p), np.log(p / (1 - p))
    highest = log_factorial(mode) + log_factorial(n - mode)

    def attempt(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, v = _uniform_samples(generator, at.size) - 0.5, _uniform_samples(generator, at.size)
        near = 0.5 - np.abs(u)
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.floor((2 * a[at] / near + b[at]) * u + centre[at])
            in_range = (k >= 0) & (k <= n[at])
            count = np.where(in_range, k, 0.0)
            exact = np.log(v * alpha[at] / (a[at] / (near * near) + b[at]))
            log_ratio = highest[at] - log_factorial(count) - log_factorial(n[at] - count)
            below_density = exact <= log_ratio + (count - mode[at]) * odds[at]
        quick = (near >= 0.07) & (v <= squeeze[at])
        return k, in_range & (quick | below_density)

    return _rejection_rounds(attempt, n.size)


def log_factorial(k: np.ndarray) -> np.ndarray:
    """Return ``log(k!)`` of integers: from a table up to 10, by Stirling's series above."""
    table = np.cumsum(np.log(np.maximum(np.arange(11.0), 1.0)))
    z = np.maximum(k, 10.0) + 1.0
    series = (z - 0.5) * np.log(z) - z + 0.91893853320467274178
    series = series + (1 / 12 - (1 / 360 - 1 / 1260 / (z * z)) / (z * z)) / z
    return np.where(k > 10, series, table[np.clip(k, 0, 10).astype(np.int64)])
