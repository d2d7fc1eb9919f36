"""``Draw``: a call of one of this package's functions as data, which graphs compare and write to files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from tenon.engine.types import Array
from tenon.random.continuous import cauchy, exponential, log_normal, normal, uniform
from tenon.random.discrete import bernoulli, geometric, randint, random_
from tenon.random.generator import Generator
from tenon.random.permutation import randperm
from tenon.random.rejection import binomial, dirichlet, poisson, standard_gamma
from tenon.random.weighted import multinomial

#: The functions that a ``Draw`` may call, by name.
FUNCTIONS = {
    function.__name__: function
    for function in (
        bernoulli, binomial, cauchy, dirichlet, exponential, geometric, log_normal, multinomial, normal,
        poisson, randint, random_, randperm, standard_gamma, uniform,
    )
}  # fmt: skip

#: The parameters of those whose samples have the shape that their parameters, arrays, broadcast to.
BROADCAST = {
    "binomial": ("count", "prob"),
    "dirichlet": ("concentration",),
    "poisson": ("rate",),
    "standard_gamma": ("concentration",),
}

#: The numbers and arrays that they take.
PARAMETERS = frozenset(
    {
        "low", "high", "mean", "std", "p", "lambd", "median", "sigma", "from_", "to", "probs", "num_samples",
        "replacement", "concentration", "count", "prob", "rate",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Draw:
    """Draws an array of ``shape`` and ``dtype`` with ``function``, each time that it is called.

    ``arguments`` are the numbers that it takes, by name, and ``arrays`` names those that are arrays of the
    call. ``order`` has the axes in the order of memory, in which numbers are drawn. Without a ``generator``
    it is the process's.
    """

    function: str
    shape: tuple[int, ...]
    dtype: np.dtype
    arguments: tuple[tuple[str, float], ...] = ()
    arrays: tuple[str, ...] = ()
    order: tuple[int, ...] | None = None
    generator: Generator | None = None

    def __call__(self, *values: Array) -> np.ndarray:
        """Draw the numbers."""
        given: dict[str, Array | float] = dict(self.arguments) | dict(zip(self.arrays, values, strict=True))
        if self.function == "randperm":
            return randperm(self.generator, math.prod(self.shape), self.dtype)
        result = empty_in_order(self.shape, self.dtype, self.order)
        function: Any = FUNCTIONS[self.function]  # of one of several signatures
        function(self.generator, out=result, **given)
        return result


def resized(draw: Draw, shape: tuple[int, ...], arguments: tuple[tuple[str, float], ...]) -> Draw:
    """Return ``draw`` with another shape and other numbers."""
    return replace(draw, shape=tuple(shape), arguments=arguments)


def empty_in_order(shape: tuple[int, ...], dtype: np.dtype, order: Sequence[int] | None) -> np.ndarray:
    """Return an uninitialised array whose axes are in memory in ``order``."""
    if order is None:
        return np.empty(shape, dtype)
    return np.empty([shape[axis] for axis in order], dtype).transpose(np.argsort(order))


def draw_of(call: partial[np.ndarray], shape: tuple[int, ...], dtype: np.dtype) -> Draw:
    """Return what ``call``, a function of this package with its arguments, draws."""
    given = signature(call.func).bind(*call.args, **call.keywords).arguments
    generator = given.pop("generator")
    numbers = tuple((n, v) for n, v in given.items() if n not in ("shape", "dtype", "n", "out"))
    return Draw(call.func.__name__, tuple(shape), np.dtype(dtype), numbers, generator=generator)
