"""Observers of the range of the values at one point of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.extend import settings
from tenon_compress.quantize.static import RangeObserver, steps_of

if TYPE_CHECKING:
    from tenon import Tensor

#: Candidate limits, as shares of the observed ones.
_SHARES = np.linspace(1.0, 0.3, 71)

#: The most bins of a histogram: 128 MB of counts.
_MOST_BINS = 2**24


class MinMax(RangeObserver):
    """The smallest and the largest of all values."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), -float("inf")

    def observe(self, x: Tensor) -> None:
        """Widen the limits to the values of ``x``; NaN makes them NaN."""
        self.low, self.high = (
            float(np.minimum(self.low, float(x.min()))), float(np.maximum(self.high, float(x.max()))),
        )  # fmt: skip

    def limits(self) -> tuple[float, float]:
        """Return the observed limits."""
        return self.low, self.high


class PerChannelMinMax(RangeObserver):
    """The smallest and the largest value at each index of the first axis: of each output of a weight."""

    def __init__(self) -> None:
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    def observe(self, x: Tensor) -> None:
        """Widen the limits of each index."""
        rows = x.reshape(x.shape[0], -1)
        low, high = rows.amin(1), rows.amax(1)
        self.low = low if self.low is None else self.low.minimum(low)
        self.high = high if self.high is None else self.high.maximum(high)

    def limits(self) -> tuple[Any, Any]:  # tensors, once something was observed
        """Return the observed limits, as tensors."""
        return self.low, self.high


class MovingAverage(MinMax):
    """Exponential moving averages of each call's smallest and largest values, with the weight ``share``."""

    def __init__(self, share: float = 0.01) -> None:
        super().__init__()
        settings.real(type(self).__name__, "share", share, least=0, most=1)
        self.share = share

    def observe(self, x: Tensor) -> None:
        """Update the averages."""
        low, high = float(x.min()), float(x.max())
        if self.low > self.high:
            self.low, self.high = low, high
        else:
            self.low += self.share * (low - self.low)
            self.high += self.share * (high - self.high)


class Histogram(MinMax):
    """The limits of the least squared error, by a histogram of ``bins``; a few values may lie outside."""

    def __init__(self, bins: int = 2048) -> None:
        super().__init__()
        self.bins = bins = settings.whole(type(self).__name__, "bins", bins, least=1, most=_MOST_BINS)
        self.counts = np.zeros(bins)

    def observe(self, x: Tensor) -> None:
        """Count the values; where the limits widen, counts move to wider bins."""
        before = self.low, self.high
        super().observe(x)
        if not self.low < self.high or not np.isfinite([self.low, self.high]).all():
            return
        if before[0] < before[1] and before != (self.low, self.high):
            self.counts = self._histogram(_bin_centers(*before, self.bins), self.counts)
        self.counts = self.counts + self._histogram(x.cpu().numpy().ravel())

    def _histogram(self, numbers: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        counts, _ = np.histogram(numbers, self.bins, (self.low, self.high), weights=weights)
        return counts

    def limits(self) -> tuple[float, float]:
        """Return the best of candidate limits that are narrowed at both ends, then at each."""
        best = super().limits()
        if not best[0] < best[1] or not np.isfinite(best).all() or not self.counts.any():
            return best
        for candidates in (_both, _lows, _highs):
            best = min(candidates(*best), key=self.loss)
        return best

    def loss(self, limits: tuple[float, float]) -> float:
        """Return the squared error of rounding to 256 steps between ``limits``."""
        centers = _bin_centers(self.low, self.high, self.bins)
        return float((self.counts * (centers - _rounded(centers, *limits)) ** 2).sum())


class Entropy(Histogram):
    """The limits of the least Kullback-Leibler divergence of the rounded values from the values."""

    def loss(self, limits: tuple[float, float]) -> float:
        """Return the divergence of the rounded values from the values; values outside count at the ends."""
        centers = _bin_centers(self.low, self.high, self.bins)
        clipped = np.clip(centers, *limits)
        bins = np.clip(np.searchsorted(centers, clipped), 0, self.bins - 1)
        reference = np.bincount(bins, self.counts, self.bins)
        step, zero = steps_of(*limits)
        levels = np.clip(np.rint(centers / step + zero), 0, 255).astype(np.int64)
        filled = (self.counts > 0) & (centers >= limits[0]) & (centers <= limits[1])
        shares = np.bincount(levels[filled], minlength=256)
        sums = np.bincount(levels[filled], self.counts[filled], 256)
        rounded = np.where(filled, sums[levels] / np.maximum(shares[levels], 1), 0.0)
        reference, rounded = reference / reference.sum(), rounded / max(rounded.sum(), 1e-12)
        seen = reference > 0
        return float((reference[seen] * np.log(reference[seen] / np.maximum(rounded[seen], 1e-12))).sum())


def _bin_centers(low: float, high: float, bins: int) -> np.ndarray:
    edges = np.linspace(low, high, bins + 1)
    return (edges[1:] + edges[:-1]) / 2


def _rounded(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    step, zero = steps_of(low, high)
    return (np.clip(np.rint(numbers / step + zero), 0, 255) - zero) * step


def _both(low: float, high: float) -> Iterator[tuple[float, float]]:
    return ((low * share, high * share) for share in _SHARES)


def _lows(low: float, high: float) -> Iterator[tuple[float, float]]:
    return ((low * share, high) for share in _SHARES)


def _highs(low: float, high: float) -> Iterator[tuple[float, float]]:
    return ((low, high * share) for share in _SHARES)
