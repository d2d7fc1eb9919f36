"""The parts of ``Communicator`` that send from rank to rank: gather, scatter, and the descriptions of
messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.distributed.communication.arrays import describe, prepared
from tenon.distributed.communication.calls import OBSERVERS, Call, cached_call
from tenon.distributed.communication.reduction import check_transferable, dtype_name
from tenon.errors import ArgumentError, CommunicatorError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tenon.distributed.communication.communicator import Communicator

LARGEST_TAG = 10_000
"""MPI guarantees tags up to 32767; each tag here uses two of them."""
LONGEST_NAME = 100
"""Messages between two ranks compare this many characters of a name."""


def _agree(communicator: Communicator, call: Call) -> None:
    for observe in OBSERVERS.get():
        observe(call)
    communicator.agree(call)


def gather(communicator: Communicator, array: ArrayLike, root: int, name: str | None) -> np.ndarray | None:
    """``Communicator.gather``."""
    source = prepared(array)
    check_transferable(source.dtype)
    communicator.check_root(root)
    call = cached_call("gather", f"to rank {root}", source.shape, dtype_name(source.dtype), name)
    _agree(communicator, call)
    if communicator.rank != root:
        communicator.perform_send(source.reshape(-1), describe(source), root, 0).wait()
        return None
    rows = np.empty((communicator.size, *source.shape), source.dtype)
    rows[root] = source
    flat = rows.reshape(communicator.size, -1)
    works = [
        communicator.perform_receive(flat[rank], describe(source), rank, 0)
        for rank in range(communicator.size)
        if rank != root
    ]
    for work in works:
        work.wait()
    return rows


def scatter(
    communicator: Communicator, rows: ArrayLike | None, out: np.ndarray, root: int, name: str | None
) -> np.ndarray:
    """``Communicator.scatter``."""
    check_transferable(out.dtype)
    communicator.check_root(root)
    call = cached_call("scatter", f"from rank {root}", out.shape, dtype_name(out.dtype), name)
    _agree(communicator, call)
    if communicator.rank != root:
        return communicator.perform_receive(out.reshape(-1), describe(out), root, 0).wait().reshape(out.shape)
    if rows is None:
        raise ArgumentError(
            f"scatter: rows is None on its root, rank {root}; pass {communicator.size} rows there."
        )
    source = prepared(rows)
    works = [
        communicator.perform_send(source[rank].reshape(-1), describe(out), rank, 0)
        for rank in range(communicator.size)
        if rank != root
    ]
    np.copyto(out, source[root])
    for work in works:
        work.wait()
    return out


def checked_tag(tag: int) -> int:
    """The engine's number for a user's tag; 0 belongs to ``gather`` and ``scatter``."""
    if not 0 <= tag < LARGEST_TAG:
        raise CommunicatorError(f"tag={tag} must be from 0 to {LARGEST_TAG - 1}.")
    return tag + 1


def message(array: np.ndarray, name: str | None) -> str:
    """What sender and receiver compare: shape and dtype, and the name if there is one."""
    return describe(array) if name is None else f"{describe(array)} named {name[:LONGEST_NAME]!r}"
