"""The communicator of a single process: one rank, no communication."""

from __future__ import annotations

import numpy as np

from tenon.distributed.communication.calls import Call
from tenon.distributed.communication.communicator import Array, Communicator
from tenon.distributed.communication.reduction import ReduceOp


class LocalCommunicator(Communicator):
    """One rank. Every collective returns what it was given.

    >>> LocalCommunicator().all_reduce(np.array([1.0, 2.0]), "mean").wait()
    array([1., 2.])
    """

    name = "local"

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)

    def agree(self, call: Call) -> None:
        """Do nothing: there are no other ranks."""

    def perform_all_reduce(self, source: Array, target: Array, op: ReduceOp) -> None:
        """Copy, unless it is the same memory."""
        np.copyto(target, source)

    def perform_broadcast(self, target: Array, root: int) -> None:
        """Nothing to do: this rank is the root."""

    def perform_all_gather(self, source: Array, target: Array) -> None:
        """One row, the own one."""
        np.copyto(target[0], source)

    def perform_reduce_scatter(self, source: Array, target: Array, op: ReduceOp) -> None:
        """One row, the own one."""
        np.copyto(target, source[0])

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """One payload, the own one."""
        return [payload]

    def perform_split(self, color: int | None, key: int) -> Communicator | None:
        """The same group again, or none."""
        return None if color is None else LocalCommunicator()
