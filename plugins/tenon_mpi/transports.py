"""Choose a transport: shared memory, messages, or both (shared memory within nodes, messages between them).

``TENON_COMMUNICATOR=mpi-shared``, ``mpi-messages`` or ``mpi-hierarchical`` overrides the choice.
``TENON_MPI_NODES=2`` treats equal shares of the ranks as nodes, to test on one machine what
happens between several.
"""

from __future__ import annotations

import warnings
from typing import Protocol

import numpy as np

from tenon.extend import Config, engine, errors
from tenon_mpi.library import Mpi, MpiComm
from tenon_mpi.messages import Messages
from tenon_mpi.shared import MEMORY_OF_RANK, SharedMemory
from tenon_mpi.window import SHARED_FILES, SPARE, Windows, has_room, room

ENLARGE = "Start a container with a larger one, as by `docker run --shm-size=1g`."


class Reducer(Protocol):
    """A transport of reductions over the ranks."""

    def all_reduce(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Reduce flat ``source`` into flat ``target``, which may be the same memory."""


class Mover(Protocol):
    """A transport of collectives that move arrays without combining them."""

    def broadcast(self, target: np.ndarray, root: int) -> None:
        """Copy the root's ``target`` into that of every rank."""

    def all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """Copy ``source`` of rank r into row r of every rank's ``target``."""

    def all_to_all(self, source: np.ndarray, target: np.ndarray) -> None:
        """Send row r of ``source`` to rank r; row r of ``target`` came from rank r."""

    def reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: engine.ReduceOp) -> None:
        """Reduce the rows that belong to this rank, one from each rank, into ``target``."""


def simulate(comm: MpiComm, node: MpiComm, count: int | None) -> tuple[MpiComm, int | None]:
    """Return the communicator of this rank's node and None, or those of its share if the ranks are split into
    ``count``, and the index of the share.

    ``count`` defaults to ``TENON_MPI_NODES``. ConfigError if a share would span several hosts.
    """
    text = Config.from_environment().setting("mpi_nodes")
    if count is None and text is not None:
        count = int(text) if text.isdecimal() else 0
    if count is None:
        return node, None
    if count < 1:
        raise errors.ConfigError(f"TENON_MPI_NODES={text!r} is not a number of nodes. Give one, or unset it.")
    index = comm.Get_rank() * count // comm.Get_size()
    part = comm.Split(index, comm.Get_rank())
    if part.Get_size() > node.Get_size():
        raise errors.ConfigError(
            f"{count} simulated nodes would join ranks of several hosts in one node. Unset TENON_MPI_NODES."
        )
    return part, index


def choose(mpi: Mpi, comm: MpiComm, node: MpiComm, requested: str | None) -> str:
    """Return the name of the transport that suits the placement of the ranks; a collective call.

    Every rank gets the same result: messages, and a warning, where a node has no room for shared memory.

    CommunicatorError if the ``requested`` one is impossible there.
    """
    ranks = node.Get_size()
    found = np.empty((comm.Get_size(), 1 + len(MEMORY_OF_RANK)), np.int64)
    own = [ranks, *(has_room(ranks * needed) for needed in MEMORY_OF_RANK.values())]
    comm.Allgather(np.array(own, np.int64), found)
    chosen = choose_among(found[:, 0], requested)
    if chosen == "messages" or found[:, 1 + list(MEMORY_OF_RANK).index(chosen)].all():
        return chosen
    lacking = (
        f"{SHARED_FILES} has {room() / 1e6:.0f} MB left, and collectives of {ranks} ranks in shared"
        f" memory need {(ranks * MEMORY_OF_RANK[chosen] + SPARE) / 1e6:.0f} MB"
    )
    if requested is not None:
        raise errors.CommunicatorError(f"mpi-{requested}: {lacking}. {ENLARGE} Or use mpi-messages.")
    if comm.Get_rank() == 0:
        warnings.warn(
            f"{lacking}. They are sent as messages, which takes longer. {ENLARGE}", errors.TenonWarning, 2
        )
    return "messages"


def choose_among(sizes: np.ndarray, requested: str | None) -> str:
    """Return the result of ``choose`` from ``sizes``: for each rank the number of ranks on its node."""
    one_node = int(sizes[0]) == len(sizes)
    uniform = bool((sizes == sizes[0]).all())
    if requested == "shared" and not one_node:
        raise errors.CommunicatorError(
            f"mpi-shared is for ranks of one node, but only {sizes[0]} of {len(sizes)} share memory. "
            "Use TENON_COMMUNICATOR=mpi."
        )
    if requested == "hierarchical" and not uniform:
        raise errors.CommunicatorError(
            "mpi-hierarchical needs the same number of ranks on every node, not "
            f"{sorted(set(sizes.tolist()))}. Use TENON_COMMUNICATOR=mpi."
        )
    if requested is not None:
        return requested
    if one_node:
        return "shared"
    return "hierarchical" if uniform and sizes[0] > 1 else "messages"


def shared(mpi: Mpi, node: MpiComm, windows: Windows, background: bool, clock: engine.Clock) -> SharedMemory:
    """Return a transport of collectives in shared memory, for ranks that are all on one node."""
    return SharedMemory(mpi, node, windows, node.Get_size(), background=background, clock=clock)


def hierarchical(mpi: Mpi, comm: MpiComm, node: MpiComm, windows: Windows, background: bool) -> SharedMemory:
    """Return a transport of two levels: shared memory within the node, messages between nodes.

    Each rank all-reduces its slice over its node, then over the ranks of equal local rank on the other nodes.
    """
    messages = Messages(mpi, comm.Split(node.Get_rank(), comm.Get_rank()), background)
    return SharedMemory(
        mpi,
        node,
        windows,
        comm.Get_size(),
        between=lambda total, op: messages.all_reduce(total, total, op),
        background=background,
    )


__all__ = ["Mover", "Reducer", "choose", "choose_among", "hierarchical", "shared", "simulate"]
