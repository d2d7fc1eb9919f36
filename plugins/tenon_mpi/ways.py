"""How ranks reach each other: through memory, by messages, or memory inside nodes and messages between.

``TENON_COMMUNICATOR=mpi-shared``, ``mpi-messages`` or ``mpi-hierarchical`` overrides the choice.
``TENON_MPI_NODES=2`` treats equal shares of the ranks as nodes, to try on one machine what happens between
several.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tenon.extend import Config, engine, errors
from tenon_mpi.messages import Messages
from tenon_mpi.shared import SharedMemory
from tenon_mpi.window import Windows

Array = np.ndarray[Any, Any]


class Reducing(Protocol):
    """What sums over ranks."""

    def all_reduce(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """Reduce flat ``source`` into flat ``target``, which may be the same memory."""


class Moving(Protocol):
    """What moves arrays between ranks."""

    def broadcast(self, target: Array, root: int) -> None:
        """Overwrite ``target`` by the root's."""

    def all_gather(self, source: Array, target: Array) -> None:
        """Row r of ``target`` becomes ``source`` of rank r."""

    def all_to_all(self, source: Array, target: Array) -> None:
        """Row r of ``source`` goes to rank r."""

    def reduce_scatter(self, source: Array, target: Array, op: engine.ReduceOp) -> None:
        """Reduce this rank's row of all ranks."""


def simulate(comm: Any, node: Any, count: int | None) -> Any:
    """The communicator of this rank's node, or of its share of the ranks as one of ``count`` nodes."""
    text = Config.from_environment().setting("mpi_nodes")
    if count is None and text is not None:
        count = int(text) if text.isdecimal() else 0
    if count is None:
        return node
    if count < 1:
        raise errors.ConfigError(f"TENON_MPI_NODES={text!r} is not a number of nodes. Give one, or unset it.")
    part = comm.Split(comm.Get_rank() * count // comm.Get_size(), comm.Get_rank())
    if part.Get_size() > node.Get_size():
        raise errors.ConfigError(
            f"{count} simulated nodes would join ranks of several hosts in one node. Unset TENON_MPI_NODES."
        )
    return part


def choose(mpi: Any, comm: Any, node: Any, wanted: str | None) -> str:
    """The way for ranks that are so spread; an error if ``wanted`` cannot be had. All ranks decide alike."""
    sizes = np.empty(comm.Get_size(), np.int64)
    comm.Allgather(np.array([node.Get_size()], np.int64), sizes)
    return choose_among(sizes, wanted)


def choose_among(sizes: Array, wanted: str | None) -> str:
    """``choose`` where ``sizes`` says for each rank how many are on its node."""
    together = int(sizes[0]) == len(sizes)
    even = bool((sizes == sizes[0]).all())
    if wanted == "shared" and not together:
        raise errors.CommunicatorError(
            f"mpi-shared is for ranks of one node, but only {sizes[0]} of {len(sizes)} share memory. "
            "Use TENON_COMMUNICATOR=mpi."
        )
    if wanted == "hierarchical" and not even:
        raise errors.CommunicatorError(
            "mpi-hierarchical needs the same number of ranks on every node, not "
            f"{sorted(set(sizes.tolist()))}. Use TENON_COMMUNICATOR=mpi."
        )
    if wanted is not None:
        return wanted
    if together:
        return "shared"
    return "hierarchical" if even and sizes[0] > 1 else "messages"


def share(mpi: Any, node: Any, windows: Windows, patient: bool) -> SharedMemory:
    """Everything in memory: all ranks are of one node."""
    return SharedMemory(mpi, node, windows, node.Get_size(), patient=patient)


def layer(mpi: Any, comm: Any, node: Any, windows: Windows, patient: bool) -> SharedMemory:
    """Each rank reduces its slice over its node, then with its like on the other nodes."""
    lane = Messages(mpi, comm.Split(node.Get_rank(), comm.Get_rank()), patient)
    return SharedMemory(
        mpi,
        node,
        windows,
        comm.Get_size(),
        between=lambda total, op: lane.all_reduce(total, total, op),
        patient=patient,
    )


__all__ = ["Moving", "Reducing", "choose", "choose_among", "layer", "share", "simulate"]
