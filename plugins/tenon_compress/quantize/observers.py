"""Observers: between which limits the numbers at one place of a model lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon_compress.quantize.static import RangeObserver, steps_of

if TYPE_CHECKING:
    from tenon import Tensor

#: Shares of the widest limits that are tried.
_SHARES = np.linspace(1.0, 0.3, 71)


class MinMax(RangeObserver):
    """The smallest and the largest number of all."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), -float("inf")

    def observe(self, x: Tensor) -> None:
        """Widen the limits; NaN makes them NaN."""
        self.low, self.high = (
            float(np.minimum(self.low, float(x.min()))), float(np.maximum(self.high, float(x.max()))),
        )  # fmt: skip

    def limits(self) -> tuple[float, float]:
        """Those seen."""
        return self.low, self.high


class PerChannelMinMax(RangeObserver):
    """The smallest and the largest number at each index of the first axis: of each output of a weight."""

    def __init__(self) -> None:
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    def observe(self, x: Tensor) -> None:
        """Widen the limits of each."""
        rows = x.reshape(x.shape[0], -1)
        low, high = rows.amin(1), rows.amax(1)
        self.low = low if self.low is None else self.low.minimum(low)
        self.high = high if self.high is None else self.high.maximum(high)

    def limits(self) -> tuple[Any, Any]:
        """Those seen, as tensors."""
        return self.low, self.high


class MovingAverage(MinMax):
    """Smallest and largest numbers of each call, averaged: the last counts ``share``, the rest less."""

    def __init__(self, share: float = 0.01) -> None:
        super().__init__()
        self.share = share

    def observe(self, x: Tensor) -> None:
        """Move the limits."""
        low, high = float(x.min()), float(x.max())
        if self.low > self.high:
            self.low, self.high = low, high
        else:
            self.low += self.share * (low - self.low)
            self.high += self.share * (high - self.high)


class Histogram(MinMax):
    """Limits of the least squared error, by a histogram of ``bins``; a few numbers may lie outside."""

    def __init__(self, bins: int = 2048) -> None:
        super().__init__()
        self.bins = bins
        self.counts = np.zeros(bins)

    def observe(self, x: Tensor) -> None:
        """Count; where the limits widen, what was counted moves to wider bins."""
        before = self.low, self.high
        super().observe(x)
        if not self.low < self.high or not np.isfinite([self.low, self.high]).all():
            return
        if before[0] < before[1] and before != (self.low, self.high):
            self.counts = self._counted(_middles(*before, self.bins), self.counts)
        self.counts = self.counts + self._counted(x.cpu().numpy().ravel())

    def _counted(self, numbers: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        found, _ = np.histogram(numbers, self.bins, (self.low, self.high), weights=weights)
        return found

    def limits(self) -> tuple[float, float]:
        """The best of limits that leave out more and more at both ends, then at each."""
        best = super().limits()
        if not best[0] < best[1] or not np.isfinite(best).all() or not self.counts.any():
            return best
        for candidates in (_both, _lows, _highs):
            best = min(candidates(*best), key=self.loss)
        return best

    def loss(self, limits: tuple[float, float]) -> float:
        """The squared error of rounding to 256 steps between ``limits``."""
        middles = _middles(self.low, self.high, self.bins)
        return float((self.counts * (middles - _rounded(middles, *limits)) ** 2).sum())


class Entropy(Histogram):
    """Limits with which the distribution of steps tells most about that of the numbers (Kullback-Leibler)."""

    def loss(self, limits: tuple[float, float]) -> float:
        """The divergence of the steps from the numbers; what lies outside counts at the ends."""
        middles = _middles(self.low, self.high, self.bins)
        inside = np.clip(middles, *limits)
        bins = np.clip(np.searchsorted(middles, inside), 0, self.bins - 1)
        given = np.bincount(bins, self.counts, self.bins)
        step, zero = steps_of(*limits)
        levels = np.clip(np.rint(middles / step + zero), 0, 255).astype(np.int64)
        filled = (self.counts > 0) & (middles >= limits[0]) & (middles <= limits[1])
        shares = np.bincount(levels[filled], minlength=256)
        sums = np.bincount(levels[filled], self.counts[filled], 256)
        made = np.where(filled, sums[levels] / np.maximum(shares[levels], 1), 0.0)
        given, made = given / given.sum(), made / max(made.sum(), 1e-12)
        seen = given > 0
        return float((given[seen] * np.log(given[seen] / np.maximum(made[seen], 1e-12))).sum())


def _middles(low: float, high: float, bins: int) -> np.ndarray:
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
