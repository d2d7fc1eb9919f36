"""PyTorch's module ``torch.testing._utils``: save and restore the random number generator around a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tenon.random import get_rng_state, manual_seed, set_rng_state

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["freeze_rng_state", "wrapper_set_seed"]


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """Restore the state of the CPU's generator after the block."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def wrapper_set_seed(op: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return ``op(*args, **kwargs)`` with the seed 42; restore the generator afterwards."""
    with freeze_rng_state():
        manual_seed(42)
        return op(*args, **kwargs)
