"""Descriptions of arrays for samples: their elements and memory layout. Arrays are generated on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike


@dataclass(frozen=True, slots=True)
class Draw:
    """One array argument: numbers of a ``kind`` in a ``shape``, with the memory layout ``layout``.

    ``kind``: "normal", "uniform" (between ``low`` and ``high``), "integer" (the same, never cast), "boolean",
    "values" (exactly ``values``). ``layout``: "contiguous", "transposed", "strided" (every second element of
    a larger array), "expanded" (zero strides along axes where ``source`` has size 1).
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    low: float = -1.0
    high: float = 1.0
    values: Sequence[complex] | None = None
    layout: str = "contiguous"
    source: tuple[int, ...] = ()
    dtype: str | None = None

    def make(self, dtype: DTypeLike, seed: int) -> np.ndarray:
        """Return the array; floating draws have the dtype ``dtype``."""
        own = np.dtype(self.dtype) if self.dtype is not None else None
        shape = self.source if self.layout == "expanded" else self.shape
        numbers = np.asarray(self._numbers(shape, np.random.default_rng(seed)))
        if self.kind == "integer":
            array = numbers.astype(own or np.int64)
        elif self.kind == "boolean":
            array = numbers.astype(np.bool_)
        else:
            array = numbers.astype(own or dtype)
        return _in_layout(array, self.layout, self.shape)

    def _numbers(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if self.kind == "values":
            return np.asarray(self.values).reshape(shape)
        if self.kind == "integer":
            return rng.integers(int(self.low), int(self.high), shape)
        if self.kind == "boolean":
            return rng.random(shape) < 0.5
        if self.kind == "uniform":
            return self.low + (self.high - self.low) * rng.random(shape)
        return rng.standard_normal(shape)

    @property
    def floating(self) -> bool:
        """Whether its numbers take the dtype under test."""
        return self.kind in ("normal", "uniform", "values") and self.dtype is None

    def in_layout(self, layout: str) -> Draw:
        """Return a draw of the same numbers in another layout."""
        return replace(self, layout=layout)


def _in_layout(array: np.ndarray, layout: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return ``array`` in the memory layout ``layout``; "expanded" expands it to ``shape``."""
    if layout == "transposed" and array.ndim > 1:
        return np.ascontiguousarray(array.T).T
    if layout == "strided" and array.ndim:
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "expanded":
        lead = len(shape) - array.ndim
        sizes = (1,) * lead + array.shape
        steps = (0,) * lead + array.strides
        strides = [
            0 if own == 1 and size != 1 else step for own, size, step in zip(sizes, shape, steps, strict=True)
        ]
        return np.lib.stride_tricks.as_strided(array, shape, strides)
    return array


def normal(*shape: int) -> Draw:
    """Return a draw of standard normal numbers."""
    return Draw(shape)


def uniform(low: float, high: float, *shape: int) -> Draw:
    """Return a draw of numbers between ``low`` and ``high``."""
    return Draw(shape, "uniform", low, high)


def integer(low: int, high: int, *shape: int, dtype: str = "int64") -> Draw:
    """Return a draw of integers in ``[low, high)``."""
    return Draw(shape, "integer", low, high, dtype=dtype)


def boolean(*shape: int) -> Draw:
    """Return a draw of booleans, True with probability 1/2."""
    return Draw(shape, "boolean")


def values(*numbers: complex, shape: Sequence[int] | None = None, dtype: str | None = None) -> Draw:
    """Return a draw of exactly ``numbers``, as a vector or in ``shape``."""
    return Draw(tuple(shape) if shape is not None else (len(numbers),), "values", values=numbers, dtype=dtype)


def expanded(source: Sequence[int], *shape: int) -> Draw:
    """Return a draw of normal numbers of shape ``source``, repeated to ``shape`` without copying."""
    return Draw(shape, layout="expanded", source=tuple(source))
