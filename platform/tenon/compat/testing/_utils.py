"""PyTorch's path ``torch.testing._utils``: random numbers set, and set back, around a call."""

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
    """Leave the CPU's generator after the block as it was before."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def wrapper_set_seed(op: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """``op(*args, **kwargs)`` with the seed 42, which does not outlast it."""
    with freeze_rng_state():
        manual_seed(42)
        return op(*args, **kwargs)
