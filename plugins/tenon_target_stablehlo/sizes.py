"""Sizes: numbers, or expressions of symbols whose values are known when the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

#: An int, or a symbolic size of a graph that was captured with ``dynamic=``.
Size: TypeAlias = Any


def is_number(size: Size) -> bool:
    """Whether a size is the same in every run."""
    return isinstance(size, int | np.integer)


def are_numbers(sizes: Sequence[Size]) -> bool:
    """Whether all sizes are the same in every run."""
    return all(is_number(s) for s in sizes)


def is_one(size: Size) -> bool:
    """Whether a size is 1 in every run."""
    return is_number(size) and int(size) == 1


def broadcast_shapes(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the shape to which all ``shapes`` broadcast."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(next((s for s in sizes if not is_one(s)), 1) for sizes in zip(*padded, strict=True))
