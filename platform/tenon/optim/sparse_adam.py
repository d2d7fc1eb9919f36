"""PyTorch's path ``optim.sparse_adam``: an optimizer of sparse gradients, of which there are none here."""

from __future__ import annotations

from typing import Any

from tenon.errors import UnsupportedError
from tenon.optim.optimizer import Optimizer

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Refused: gradients of tables are dense (ADR 0023), for which PyTorch's own SparseAdam refuses too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise UnsupportedError(
            "SparseAdam does not support dense gradients, and all gradients are dense here, those of"
            " Embedding(sparse=True) included. Use Adam."
        )
