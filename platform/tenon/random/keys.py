"""The keys of counter-based random numbers: the seed, step and samples of the current operation.

A training loop whose numbers must not depend on ranks and batch splits opens a context around each step:

    with random.keyed(seed=7, step=step, samples=global_indices):
        loss = model(batch).sum()

Random operations call ``current()``. If it is None, they draw from the stream (``Generator``), as PyTorch
does; otherwise from ``current().uniform(shape)``, whose leading axis is that of the samples. Every call uses
the next ``op`` number, so that the operations of a step differ, and equal programs on all ranks use equal
numbers.

The context is per process, not per thread, so that it also applies to backward threads and data workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tenon.errors import RandomArgumentError
from tenon.random.generator import initial_seed
from tenon.random.philox import CounterGenerator

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Keys:
    """An address (seed, step, samples), with a counter of random operations."""

    __slots__ = ("_generator", "_next", "samples", "step")

    def __init__(self, seed: int, step: int, samples: Iterable[int], first: int = 0) -> None:
        self._generator = CounterGenerator(seed)
        self.step = step
        self.samples = np.asarray(samples if isinstance(samples, np.ndarray) else list(samples), np.int64)
        self._next = first

    @property
    def seed(self) -> int:
        """The seed of the numbers."""
        return self._generator.seed

    @property
    def drawn(self) -> int:
        """The number that the next random operation will get."""
        return self._next

    def next_op(self) -> int:
        """Return the number of the next random operation of this step; equal numbers draw equal values."""
        op = self._next
        self._next += 1
        return op

    def uniform(
        self, shape: Sequence[int], *, op: int | None = None, dtype: DTypeLike = np.float32
    ) -> np.ndarray:
        """Numbers in [0, 1) of ``shape``, with rows of the samples, in order, along the first axis.

        Its length may be a multiple of the number of samples: several consecutive rows for each.
        """
        return self._draw(self._generator.uniform, shape, op, dtype=dtype)

    def normal(self, shape: Sequence[int], *, op: int | None = None) -> np.ndarray:
        """Unit normals of ``shape`` in float32, addressed as in ``uniform``."""
        return self._draw(self._generator.normal, shape, op)

    def _draw(
        self, draw: Callable[..., np.ndarray], shape: Sequence[int], op: int | None, **options: object
    ) -> np.ndarray:
        number = len(self.samples)
        if not shape or (shape[0] % number if number else shape[0]):
            raise RandomArgumentError(
                f"Keyed random numbers: the first axis of {tuple(shape)} does not fit {number} samples."
                " Use the first axis as the batch axis, or draw numbers that do not belong to samples outside"
                " of the keyed context."
            )
        rows = (shape[0] // number if number else 0, *shape[1:])
        values = draw(
            step=self.step,
            samples=self.samples,
            op=self.next_op() if op is None else op,
            shape=(math.prod(rows),),
            **options,
        )
        return values.reshape(shape)


class _Slot:
    keys: Keys | None = None


def current() -> Keys | None:
    """Return the keys of the innermost ``keyed`` context; None means to draw from the stream."""
    return _Slot.keys


@contextmanager
def keyed(*, step: int, samples: Iterable[int], seed: int | None = None, first: int = 0) -> Iterator[Keys]:
    """Draw random numbers inside the block by (seed, step, sample); by default with the default generator's
    seed. ``first`` is the number of the first random operation, for a program that is a part of another."""
    previous = _Slot.keys
    keys = Keys(initial_seed() if seed is None else seed, step, samples, first)
    _Slot.keys = keys
    try:
        yield keys
    finally:
        _Slot.keys = previous
