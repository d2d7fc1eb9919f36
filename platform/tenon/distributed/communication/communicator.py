"""What ranks say to each other: the ``Communicator`` that every engine implements.

The public methods check their arguments and agree with the other ranks on the call before a byte moves,
so that a skipped or swapped call raises on every rank, naming both sides, where plain MPI would hang or
add the wrong arrays together. An engine implements the ``perform_*`` methods on flat, contiguous, native
arrays and never sees a bad argument. Arrays are NumPy's: other devices stage through the host
(``collectives.py``).

Implementations: ``local.py`` (one rank), ``threaded.py`` (ranks as threads, for tests), and plugins.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tenon.distributed.communication.arrays import READ_ONLY, delivered, flat_of, prepared, target_for
from tenon.distributed.communication.arrays import Array as Array
from tenon.distributed.communication.calls import FINISH, Call, Work, remembered
from tenon.distributed.communication.reduction import ReduceOp, check_transferable, dtype_name, reduction_call
from tenon.distributed.communication.traffic import Traffic
from tenon.distributed.processes import failure
from tenon.errors import CommunicatorError, ShapeError, UnsupportedError

LARGEST_TAG = 10_000
"""MPI promises 32767; each of ours takes two."""
#: ``around_call(communicator, call, perform, args)``: agrees on ``call`` and performs it; None without.
around_call: Callable[[Any, Any, Callable[..., Any], tuple[Any, ...]], Any] | None = None


class Communicator(ABC):
    """A group of ranks that make the same calls in the same order.

    ``step`` is the training step in progress, if the caller says so: it appears in reports, and ranks at
    different steps do not mix. ``node`` numbers the hosts, ``job`` names the run on its hosts.
    """

    name = "communicator"
    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int = 0
    job: str
    host: str
    step: int | None = None
    ranks: tuple[int, ...]
    """Of each rank here, its number among all ranks."""
    models: int = 0
    """How many models and sharded optimizers these ranks have made: numbers tell them apart."""
    overlaps: bool = False
    """Whether ``start_all_reduce`` returns before it is done."""
    survives: bool = False
    """Whether the ranks that are left may ``shrink`` when others were killed."""

    def __init__(
        self, rank: int, size: int, local_rank: int | None = None, local_size: int | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = rank if local_rank is None else local_rank
        self.local_size = size if local_size is None else local_size
        self.ranks = tuple(range(size))
        self.host = socket.gethostname()
        self.job = f"process-{os.getpid()}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size})"

    # The collectives. `name` says what is communicated; ranks that name different things do not mix.

    def all_reduce(
        self, array: Any, op: str = ReduceOp.SUM, out: Array | None = None, *, name: str | None = None
    ) -> Work:
        """Combine the arrays of all ranks element by element; every rank gets the same bits.

        The result is a new array, or ``out``, which may be ``array`` itself. float16 and bfloat16 are summed
        in float32. ``op`` is "sum", "mean", "max", "min" or "prod"; on bool, sum is "any" and prod is "all".
        """
        source = prepared(array)
        operation, call = reduction_call("all_reduce", op, source.shape, source.dtype, name)
        if out is None or out is array is source:
            target = np.empty_like(source) if out is None else source
        else:
            target = target_for(out, source.shape, source.dtype)
        if not target.flags.writeable:
            raise CommunicatorError(READ_ONLY)
        row = source if source.ndim == 1 else source.reshape(-1)
        self.expect_all_reduce(row, target is source)
        if target is source:
            self._do(call, self.perform_all_reduce, row, row, operation)
            return Work(source)
        flat = flat_of(target)
        self._do(call, self.perform_all_reduce, row, flat, operation)
        return Work(delivered(flat, target))

    def start_all_reduce(self, array: Array, op: str = ReduceOp.SUM, *, name: str | None = None) -> Work:
        """``all_reduce`` in place of ``array``, which is not to be touched before ``wait``.

        Engines for which overlap pays return before it is done; others do it now. All ranks start the same
        reductions in the same order, and may make other calls meanwhile.
        """
        return self.all_reduce(array, op, array, name=name)

    def broadcast(
        self, array: Any, root: int = 0, out: Array | None = None, *, name: str | None = None
    ) -> Work:
        """Give every rank the array of rank ``root``; the others pass one of the same shape and dtype."""
        source = prepared(array)
        check_transferable(source.dtype)
        self._check_root(root)
        target = target_for(out, source.shape, source.dtype)
        call = remembered("broadcast", f"from rank {root}", source.shape, dtype_name(source.dtype), name)
        flat = flat_of(target)
        self._do(call, self._broadcast, source.reshape(-1), flat, root)
        return Work(delivered(flat, target))

    def all_gather(self, array: Any, out: Array | None = None, *, name: str | None = None) -> Work:
        """Stack the arrays of all ranks: ``[size, *array.shape]``, on every rank."""
        source = prepared(array)
        check_transferable(source.dtype)
        target = target_for(out, (self.size, *source.shape), source.dtype)
        call = remembered("all_gather", "", source.shape, dtype_name(source.dtype), name)
        flat = flat_of(target)
        rows = flat.reshape(self.size, source.size)
        self._do(call, self.perform_all_gather, source.reshape(-1), rows)
        return Work(delivered(flat, target))

    def reduce_scatter(
        self, array: Any, op: str = ReduceOp.SUM, out: Array | None = None, *, name: str | None = None
    ) -> Work:
        """Combine ``[size, *shape]`` arrays of all ranks; rank r gets row r of the result."""
        source = prepared(array)
        operation, call = reduction_call("reduce_scatter", op, source.shape, source.dtype, name)
        self._check_rows("reduce_scatter", source)
        target = target_for(out, source.shape[1:], source.dtype)
        flat = flat_of(target)
        rows = source.reshape(self.size, flat.size)
        self._do(call, self.perform_reduce_scatter, rows, flat, operation)
        return Work(delivered(flat, target))

    def all_to_all(self, array: Any, out: Array | None = None, *, name: str | None = None) -> Work:
        """Row r of ``[size, *shape]`` goes to rank r; row r of the result came from rank r."""
        source = prepared(array)
        check_transferable(source.dtype)
        self._check_rows("all_to_all", source)
        target = target_for(out, source.shape, source.dtype)
        call = remembered("all_to_all", "", source.shape, dtype_name(source.dtype), name)
        flat = flat_of(target)
        rows = source.reshape(self.size, -1)
        self._do(call, self.perform_all_to_all, rows, flat.reshape(self.size, -1))
        return Work(delivered(flat, target))

    def gather(self, array: Any, root: int = 0, *, name: str | None = None) -> Array | None:
        """Stack the arrays of all ranks on rank ``root``; None elsewhere."""
        source = prepared(array)
        check_transferable(source.dtype)
        self._check_root(root)
        self.agree(remembered("gather", f"to rank {root}", source.shape, dtype_name(source.dtype), name))
        if self.rank != root:
            self.perform_send(source.reshape(-1), message(source), root, 0).wait()
            return None
        rows = np.empty((self.size, *source.shape), source.dtype)
        rows[root] = source
        flat = rows.reshape(self.size, -1)
        works = [
            self.perform_receive(flat[rank], message(source), rank, 0)
            for rank in range(self.size)
            if rank != root
        ]
        for work in works:
            work.wait()
        return rows

    def scatter(self, rows: Any, out: Array, root: int = 0, *, name: str | None = None) -> Array:
        """Row r of ``[size, *shape]`` of rank ``root`` goes into contiguous ``out`` of rank r."""
        check_transferable(out.dtype)
        self._check_root(root)
        self.agree(remembered("scatter", f"from rank {root}", out.shape, dtype_name(out.dtype), name))
        if self.rank != root:
            return self.perform_receive(out.reshape(-1), message(out), root, 0).wait().reshape(out.shape)
        source = prepared(rows)
        works = [
            self.perform_send(source[rank].reshape(-1), message(out), rank, 0)
            for rank in range(self.size)
            if rank != root
        ]
        np.copyto(out, source[root])
        for work in works:
            work.wait()
        return out

    def send(self, array: Any, to: int, tag: int = 0) -> Work:
        """Send to rank ``to``, which must ``receive`` the same shape and dtype; wait before changing it."""
        source = prepared(array)
        check_transferable(source.dtype)
        self._check_root(to)
        return self.perform_send(source.reshape(-1), message(source), to, _checked_tag(tag))

    def receive(self, out: Array, source: int, tag: int = 0) -> Work:
        """Overwrite contiguous ``out`` by what rank ``source`` sends; it is there after ``wait``."""
        check_transferable(out.dtype)
        self._check_root(source)
        if not (out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative):
            raise CommunicatorError(
                "receive: out must be a contiguous, writeable array of native byte order."
            )
        return self.perform_receive(out.reshape(-1), message(out), source, _checked_tag(tag))

    def split(self, color: int | None, key: int = 0, *, name: str | None = None) -> Communicator | None:
        """The communicator of the ranks that pass the same ``color``, in order of ``key``; all must call it.

        A rank that passes None joins nobody and gets None.
        """
        self.agree(Call("new_group", "", (), "", name))
        return self.perform_split(color, key)

    def allocate(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Zeros where this engine reduces fastest; all ranks call it together with the same arguments."""
        return np.zeros(count, dtype)

    def all_gather_bytes(self, payload: bytes, *, name: str | None = None) -> list[bytes]:
        """The byte strings of all ranks, which may differ in length, in rank order."""
        call = remembered("all_gather_bytes", "", (), "bytes", name)
        gathered: list[bytes] = self._do(call, self.perform_all_gather_bytes, payload)
        return gathered

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self._do(remembered("barrier", "", (), "", None), _nothing)

    def close(self) -> None:
        """Leave the group. Every rank must do so at the same point; later calls raise where ranks exist."""
        self.agree(Call("destroy_process_group", "", (), "", None))

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """What torch's groups call a sum of tensors over the ranks that has begun: hooks write it so."""
        from tenon.distributed.messages import coalesced  # It speaks through communicators.

        return coalesced.begin_all_reduce(tensors, opts, self)

    def finish(self) -> None:
        """Say that this rank's program has ended, and wait for the others to say so."""
        self.agree(FINISH)

    def abort(self, error: BaseException) -> NoReturn:
        """Report ``error`` once and end the programs of all ranks with exit status 1."""
        failure.fail(error)

    def claim_report(self) -> bool:
        """Whether no rank of this node has reported yet why the job ends, as far as this one can tell.

        Asked by one rank of a node at a time, which reports if so.
        """
        return True

    def kill(self, code: int) -> NoReturn:
        """End the programs of all ranks with exit status ``code``, without a report."""
        os._exit(code)

    # What an engine provides.

    def shrink(self) -> Communicator:
        """The communicator of the ranks that are left; this one is of no use any more."""
        raise UnsupportedError(f"the communicator {self.name!r} does not outlive its ranks.")

    @classmethod
    def traffic(cls, call: Call, ranks: int, ranks_per_node: int, *, beside: bool = False) -> Traffic:
        """What ``call`` costs a node, for ``tenon plan``; ``beside``: begun by ``start_all_reduce``."""
        raise UnsupportedError(
            f"the communicator {cls.name!r} does not say what it sends: it has no method `traffic`."
        )

    @abstractmethod
    def agree(self, call: Call) -> None:
        """Check that every rank makes ``call``; raise ``CollectiveMismatchError`` on all of them if not.

        It is a barrier too: nobody returns before all have come.
        """

    def expect_all_reduce(self, source: Array, in_place: bool) -> None:
        """Get ready to reduce flat ``source`` if the ranks agree to: show it to them, for one."""
        return

    @abstractmethod
    def perform_all_reduce(self, source: Array, target: Array, op: ReduceOp) -> None:
        """Reduce flat ``source`` over the ranks into flat ``target``, which may share memory with it."""

    @abstractmethod
    def perform_broadcast(self, target: Array, root: int) -> None:
        """Overwrite flat ``target`` with that of rank ``root``."""

    @abstractmethod
    def perform_all_gather(self, source: Array, target: Array) -> None:
        """Write flat ``source`` of rank r into row r of ``target``."""

    @abstractmethod
    def perform_reduce_scatter(self, source: Array, target: Array, op: ReduceOp) -> None:
        """Reduce ``source[size, n]`` over the ranks; this rank's row goes into flat ``target``."""

    @abstractmethod
    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks in rank order."""

    def perform_all_to_all(self, source: Array, target: Array) -> None:
        """Exchange rows; this way works on every engine, and a better one sends each row to one rank only."""
        everything = np.empty((self.size, source.size), source.dtype)
        self.perform_all_gather(source.reshape(-1), everything)
        np.copyto(target, everything.reshape(self.size, *source.shape)[:, self.rank])

    def perform_send(self, source: Array, text: str, to: int, tag: int) -> Work:
        """Send ``text`` and flat ``source``; its ``wait`` returns when ``source`` may change."""
        raise UnsupportedError(f"the communicator {self.name!r} has no messages between two ranks.")

    def perform_receive(self, target: Array, text: str, source: int, tag: int) -> Work:
        """Receive; ``wait`` raises ``CollectiveMismatchError`` where the sender's text is another."""
        raise UnsupportedError(f"the communicator {self.name!r} has no messages between two ranks.")

    def perform_split(self, color: int | None, key: int) -> Communicator | None:
        """The communicator of those that pass the same ``color``."""
        raise UnsupportedError(f"the communicator {self.name!r} has no groups of some of its ranks.")

    def _do(self, call: Call, perform: Callable[..., Any], *args: Any) -> Any:
        """Agree on ``call``, then ``perform(*args)``; a profile tells the two apart: one is waiting."""
        if around_call is not None:
            return around_call(self, call, perform, args)
        self.agree(call)
        return perform(*args)

    def _broadcast(self, source: Array, target: Array, root: int) -> None:
        if self.rank == root:
            target[...] = source
        self.perform_broadcast(target, root)

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise CommunicatorError(
                f"rank {root} does not exist: there are {self.size} ranks, 0 to {self.size - 1}."
            )

    def _check_rows(self, kind: str, source: Array) -> None:
        if source.ndim == 0 or source.shape[0] != self.size:
            raise ShapeError(
                f"{kind}: the first axis must have one row per rank, {self.size}, but the array is "
                f"{list(source.shape)}. Reshape it to [{self.size}, ...] first."
            )


ProcessGroup = Communicator
"""torch's name, for annotations and ``isinstance``."""


def _nothing() -> None:
    """What a barrier does once all have come."""


def _checked_tag(tag: int) -> int:
    """The engine's number for a user's tag; 0 belongs to ``gather`` and ``scatter``."""
    if not 0 <= tag < LARGEST_TAG:
        raise CommunicatorError(f"tag={tag} must be from 0 to {LARGEST_TAG - 1}.")
    return tag + 1


def message(array: Array) -> str:
    """What both ends of a message say of it.

    >>> message(np.zeros((2, 3)))
    'float64[2, 3]'
    """
    return f"{dtype_name(array.dtype)}{list(array.shape)}"
