"""PyTorch's path ``torch.distributed.elastic.multiprocessing.errors``: marks for a script's main function."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["record"]

P = ParamSpec("P")
R = TypeVar("R")


def record(fn: Callable[P, R], error_handler: object = None) -> Callable[P, R]:
    """``fn``: a rank that fails ends the job with one report of its exception anyhow.

    torch's ``record`` hands the exception to ``torchrun``; under ``mpirun`` and ``tenon.distributed`` it
    reaches the report without that, so ``error_handler`` is not called.

    ``error_handler`` has no effect.
    """

    return fn
