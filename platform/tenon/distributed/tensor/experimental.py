"""PyTorch's path ``torch.distributed.tensor.experimental``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tenon.distributed.tensor.local_map import local_map
from tenon.distributed.tensor.mesh_backend import IMPLICIT, Implicit

__all__ = ["implicit_replication", "local_map"]


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """Inside the ``with`` block, plain tensors in ops with DTensors are replicated, instead of an error.

    Every rank has to pass the same values, which is not checked.
    """
    token = IMPLICIT.set(Implicit.ALL)
    try:
        yield
    finally:
        IMPLICIT.reset(token)
