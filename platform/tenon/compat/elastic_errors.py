"""PyTorch's module ``torch.distributed.elastic.multiprocessing.errors``: a decorator for main functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["record"]

P = ParamSpec("P")
R = TypeVar("R")


def record(fn: Callable[P, R], error_handler: object = None) -> Callable[P, R]:
    """Return ``fn`` unchanged; ``error_handler`` has no effect.

    PyTorch's ``record`` passes an exception of ``fn`` to ``torchrun``. Here a failing rank ends the job with
    one report of its exception without it.
    """

    return fn
