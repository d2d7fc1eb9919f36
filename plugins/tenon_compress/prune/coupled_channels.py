"""Coupled channels: positions of axes that can be removed only together, in every tensor that has them.

A channel here is a position along any axis: an output of a layer, a hidden unit, a column of a head. Every
position of every axis of a parameter begins as a channel of its own. Ops couple channels: adding two tensors
couples their channels pairwise, a convolution those of its input with those of its weight. Channel 0 stands
for all positions that cannot be removed.
"""

from __future__ import annotations

import numpy as np

#: The channel of all positions that cannot be removed.
FIXED = 0


class CoupledChannels:
    """A union-find structure over channel numbers, with the reasons why some sets have to be kept."""

    def __init__(self) -> None:
        self.parents = [FIXED]
        self.reasons: dict[int, str] = {}

    def create(self, count: int) -> np.ndarray:
        """Return ``count`` new channels."""
        start = len(self.parents)
        self.parents.extend(range(start, start + count))
        return np.arange(start, start + count)

    def find(self, channel: int) -> int:
        """Return the representative of the set of channels that ``channel`` is coupled to."""
        parents = self.parents
        while parents[channel] != channel:
            parents[channel] = channel = parents[parents[channel]]
        return channel

    def representatives(self, channels: np.ndarray) -> np.ndarray:
        """Return ``find`` of every element."""
        unique, inverse = np.unique(channels, return_inverse=True)
        return np.array([self.find(int(a)) for a in unique], dtype=np.int64)[inverse].reshape(channels.shape)

    def couple(self, one: np.ndarray, other: np.ndarray) -> None:
        """Couple the channels of two arrays elementwise; the arrays broadcast."""
        pairs = np.stack([a.reshape(-1) for a in np.broadcast_arrays(one, other)], axis=1)
        for a, b in np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).tolist():
            low, high = sorted((self.find(a), self.find(b)))
            if low != high:
                self.parents[high] = low
                if high in self.reasons:
                    self.reasons.setdefault(low, self.reasons[high])

    def keep(self, channels: np.ndarray, reason: str) -> None:
        """Keep all of ``channels``, and remember the first ``reason``."""
        for channel in np.unique(channels).tolist():
            representative = self.find(channel)
            if representative != FIXED:
                self.reasons.setdefault(representative, reason)

    def reason(self, channel: int) -> str:
        """Return why ``channel`` is kept; "" if it is not."""
        representative = self.find(channel)
        return next((text for kept, text in self.reasons.items() if self.find(kept) == representative), "")
