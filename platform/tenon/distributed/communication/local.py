"""The communicator of a single process: one rank, no communication."""

from __future__ import annotations

import numpy as np

from tenon.distributed.communication.calls import Call
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.reduction import ReduceOp


class LocalCommunicator(Communicator):
    """One rank, whose collectives return their input.

    >>> LocalCommunicator().all_reduce(np.array([1.0, 2.0]), "mean").wait()
    array([1., 2.])
    """

    name = "local"

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)

    def agree(self, call: Call) -> None:
        """Do nothing: there are no other ranks."""

    def perform_all_reduce(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
        """Copy ``source``."""
        np.copyto(target, source)

    def perform_broadcast(self, target: np.ndarray, root: int) -> None:
        """Nothing to do: this rank is the root."""

    def perform_all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy ``source`` into the only row."""
        np.copyto(target[0], source)

    def perform_reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
        """Copy the only row."""
        np.copyto(target, source[0])

    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payload of the only rank."""
        return [payload]

    def perform_split(self, color: int | None, key: int) -> Communicator | None:
        """Another group of one rank."""
        return None if color is None else LocalCommunicator()
