"""``Communicator``: collectives on arrays, the interface that every engine (transport) implements.

The public methods validate their arguments and compare the call with the other ranks before any data is sent,
so that a skipped or swapped call raises on every rank, naming both sides, where plain MPI would hang or
reduce the wrong arrays together. An engine implements the ``perform_*`` methods on flat, contiguous, native
arrays and gets validated arguments only. Arrays are NumPy's: other devices are staged through the host
(``collectives.py``).

Implementations: ``local.py`` (one rank), ``threaded.py`` (ranks as threads), and plugins.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tenon.distributed.communication import rooted
from tenon.distributed.communication.arrays import READ_ONLY, delivered, flat_of, prepared, target_for
from tenon.distributed.communication.calls import (
    FINISH,
    OBSERVERS,
    Args,
    AroundCall,
    Call,
    ReductionOptions,
    Result,
    Work,
    cached_call,
)
from tenon.distributed.communication.orders import Orders
from tenon.distributed.communication.reduction import ReduceOp, check_transferable, dtype_name, reduction_call
from tenon.distributed.communication.several import SeveralArrays
from tenon.distributed.communication.traffic import Traffic
from tenon.distributed.processes import failure
from tenon.errors import CommunicatorError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tenon.tensors.tensor import Tensor

#: The installed wrapper of every collective; None while there is none.
around_call: AroundCall | None = None


class Communicator(SeveralArrays, ABC):
    """A process group: ranks that make the same collective calls in the same order.

    ``step`` is the current training step if the caller sets it: it appears in reports, and calls at different
    steps do not match. ``node`` is the index of the host, ``job`` an identifier of the run.
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
    """The global rank of each rank of this group."""
    models: int = 0
    """Counter of the models and sharded optimizers created on this group, which numbers their collectives."""
    overlaps: bool = False
    """Whether ``start_all_reduce`` is asynchronous."""
    survives: bool = False
    """Whether surviving ranks may ``shrink`` the group after others were killed."""

    def __init__(
        self, rank: int, size: int, local_rank: int | None = None, local_size: int | None = None
    ) -> None:
        self.rank, self.size = rank, size
        self.local_rank = rank if local_rank is None else local_rank
        self.local_size = size if local_size is None else local_size
        self.ranks = tuple(range(size))
        self.orders = Orders()  # in what orders the ranks have had their tensors, for ``settle``
        self.host = socket.gethostname()
        self.job = f"process-{os.getpid()}"
        self.kept: dict[Any, Any] = {}  # what other parts keep as long as this group, by keys of their own

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size})"

    # The collectives. `name` identifies the data; calls of different names do not match.

    def all_reduce(
        self,
        array: ArrayLike,
        op: str = ReduceOp.SUM,
        out: np.ndarray | None = None,
        *,
        name: str | None = None,
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
        self.expect(row, target is source)
        if target is source:
            self._do(call, self.perform_all_reduce, row, row, operation)
            return Work(source)
        flat = flat_of(target)
        self._do(call, self.perform_all_reduce, row, flat, operation)
        return Work(delivered(flat, target))

    def start_all_reduce(self, array: np.ndarray, op: str = ReduceOp.SUM, *, name: str | None = None) -> Work:
        """Start an in-place ``all_reduce`` of ``array``, which must not be accessed before ``wait``.

        Asynchronous on engines for which overlap pays off (``overlaps``), else synchronous. All ranks start
        the same reductions in the same order, and may make other calls meanwhile.
        """
        return self.all_reduce(array, op, array, name=name)

    def broadcast(
        self, array: ArrayLike, root: int = 0, out: np.ndarray | None = None, *, name: str | None = None
    ) -> Work:
        """Copy the array of rank ``root`` to all ranks; the others pass one of the same shape and dtype."""
        source = prepared(array)
        check_transferable(source.dtype)
        self.check_root(root)
        target = target_for(out, source.shape, source.dtype)
        call = cached_call("broadcast", f"from rank {root}", source.shape, dtype_name(source.dtype), name)
        flat, row = flat_of(target), source.reshape(-1)
        self.expect(row)
        self._do(call, self._broadcast, row, flat, root)
        return Work(delivered(flat, target))

    def reduce(self, array: ArrayLike, root: int, op: str = ReduceOp.SUM, *, name: str | None = None) -> Work:
        """``all_reduce``, whose result is meant for rank ``root``: ranks of different roots do not match."""
        source = prepared(array)
        self.check_root(root)
        operation, call = reduction_call("all_reduce", op, source.shape, source.dtype, name, root)
        target = np.empty_like(source)
        row = source if source.ndim == 1 else source.reshape(-1)
        self.expect(row)
        self._do(call, self.perform_all_reduce, row, target.reshape(-1), operation)
        return Work(target)

    def all_gather(
        self, array: ArrayLike, out: np.ndarray | None = None, *, name: str | None = None, detail: str = ""
    ) -> Work:
        """Stack the arrays of all ranks: ``[size, *array.shape]``, on every rank.

        ``detail`` is compared between the ranks, as the other arguments are.
        """
        source = prepared(array)
        check_transferable(source.dtype)
        target = target_for(out, (self.size, *source.shape), source.dtype)
        call = cached_call("all_gather", detail, source.shape, dtype_name(source.dtype), name)
        flat = flat_of(target)
        row = source.reshape(-1)
        self.expect(row)
        self._do(call, self.perform_all_gather, row, flat.reshape(self.size, source.size))
        return Work(delivered(flat, target))

    def reduce_scatter(
        self,
        array: ArrayLike,
        op: str = ReduceOp.SUM,
        out: np.ndarray | None = None,
        *,
        name: str | None = None,
    ) -> Work:
        """Combine ``[size, *shape]`` arrays of all ranks; rank r gets row r of the result."""
        source = prepared(array)
        operation, call = reduction_call("reduce_scatter", op, source.shape, source.dtype, name)
        self._check_rows("reduce_scatter", source)
        target = target_for(out, source.shape[1:], source.dtype)
        flat = flat_of(target)
        self.expect(source.reshape(-1))
        rows = source.reshape(self.size, flat.size)
        self._do(call, self.perform_reduce_scatter, rows, flat, operation)
        return Work(delivered(flat, target))

    def all_to_all(
        self,
        array: ArrayLike,
        out: np.ndarray | None = None,
        *,
        name: str | None = None,
        detail: str = "",
    ) -> Work:
        """Send row r of ``[size, *shape]`` to rank r; row r of the result came from rank r."""
        source = prepared(array)
        check_transferable(source.dtype)
        self._check_rows("all_to_all", source)
        target = target_for(out, source.shape, source.dtype)
        call = cached_call("all_to_all", detail, source.shape, dtype_name(source.dtype), name)
        flat, rows = flat_of(target), source.reshape(self.size, -1)
        self.expect(source.reshape(-1))
        self._do(call, self.perform_all_to_all, rows, flat.reshape(self.size, -1))
        return Work(delivered(flat, target))

    def gather(self, array: ArrayLike, root: int = 0, *, name: str | None = None) -> np.ndarray | None:
        """Stack the arrays of all ranks on rank ``root``; None elsewhere."""
        return rooted.gather(self, array, root, name)

    def scatter(
        self, rows: ArrayLike | None, out: np.ndarray, root: int = 0, *, name: str | None = None
    ) -> np.ndarray:
        """Copy row r of ``rows[size, *shape]``, read on the root only, into contiguous ``out`` on rank r."""
        return rooted.scatter(self, rows, out, root, name)

    def send(self, array: ArrayLike, to: int, tag: int = 0, *, name: str | None = None) -> Work:
        """Send to rank ``to``, which must ``receive`` the same shape, dtype and ``name``.

        Wait before changing the array.
        """
        source = prepared(array)
        check_transferable(source.dtype)
        self.check_root(to)
        return self.perform_send(
            source.reshape(-1), rooted.message(source, name), to, rooted.checked_tag(tag)
        )

    def receive(self, out: np.ndarray, source: int, tag: int = 0, *, name: str | None = None) -> Work:
        """Receive from rank ``source`` into contiguous ``out``, which is complete after ``wait``."""
        check_transferable(out.dtype)
        self.check_root(source)
        if not (out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative):
            raise CommunicatorError(
                "receive: out must be a contiguous, writeable array of native byte order."
            )
        return self.perform_receive(
            out.reshape(-1), rooted.message(out, name), source, rooted.checked_tag(tag)
        )

    def split(self, color: int | None, key: int = 0, *, name: str | None = None) -> Communicator | None:
        """The communicator of the ranks that pass the same ``color``, in order of ``key``; all must call it.

        A rank that passes None joins no group and gets None.
        """
        self.agree(Call("new_group", "", (), "", name))
        return self.perform_split(color, key)

    def beside(self) -> Communicator | None:
        """A communicator of the same ranks for another thread; None if that cannot be. Collective."""
        return type(self).split(self, 0, self.rank)  # Not the instance's, which would be timed: see clock.py.

    def allocate(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Allocate zeros in memory that this engine reduces fastest; collective, with equal arguments."""
        return np.zeros(count, dtype)

    def all_gather_bytes(self, payload: bytes, *, name: str | None = None, detail: str = "") -> list[bytes]:
        """Gather the byte strings of all ranks, which may differ in length, in rank order."""
        call = cached_call("all_gather_bytes", detail, (), "bytes", name)
        return self._do(call, self.perform_all_gather_bytes, payload)

    def barrier(self, *, name: str | None = None) -> None:
        """Block until every rank has called it."""
        self._do(cached_call("barrier", "", (), "", name), lambda: None)  # comparing the calls synchronizes

    def close(self) -> None:
        """Destroy the group; collective. With more than one rank, later calls raise."""
        self.agree(Call("destroy_process_group", "", (), "", None))

    def allreduce(
        self, tensors: Tensor | Sequence[Tensor], opts: str | ReductionOptions | None = None
    ) -> Work:
        """torch's ``ProcessGroup.allreduce``, as communication hooks call it: an asynchronous reduction."""
        from tenon.distributed.messages import coalesced  # it imports this module

        return coalesced.begin_all_reduce(tensors, opts, self)

    def finish(self) -> None:
        """Announce the end of this rank's program, and wait until all ranks have."""
        self.agree(FINISH)

    def abort(self, error: BaseException) -> NoReturn:
        """Report ``error`` once and terminate all ranks with exit status 1."""
        failure.fail(error)

    def claim_report(self) -> bool:
        """Whether this rank is the first of its node to report a failure, as far as it can know.

        Only one rank of a node calls it at a time; it reports if the answer is yes.
        """
        return True

    def kill(self, code: int) -> NoReturn:
        """Terminate all ranks with exit status ``code``, without a report."""
        os._exit(code)

    # The methods that an engine implements.

    def shrink(self) -> Communicator:
        """A communicator of the surviving ranks; this one is unusable afterwards."""
        raise UnsupportedError(
            f"the communicator {self.name!r} cannot continue without a rank that was killed."
        )

    @classmethod
    def traffic(cls, call: Call, ranks: int, ranks_per_node: int, *, beside: bool = False) -> Traffic:
        """The cost of ``call`` for a node, for ``tenon plan``; ``beside``: through ``start_all_reduce``."""
        raise UnsupportedError(
            f"the communicator {cls.name!r} cannot predict its traffic: it defines no method `traffic`."
        )

    @abstractmethod
    def agree(self, call: Call) -> None:
        """Check that every rank makes ``call``; raise ``CollectiveMismatchError`` on all of them if not.

        It is a barrier too: it returns only when all ranks have called it.
        """

    def expect(self, source: np.ndarray, in_place: bool = False) -> None:
        """Prepare to send flat ``source``, or to reduce it ``in_place``, before the calls are compared."""
        return

    @abstractmethod
    def perform_all_reduce(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
        """Reduce flat ``source`` over the ranks into flat ``target``, which may share memory with it."""

    @abstractmethod
    def perform_broadcast(self, target: np.ndarray, root: int) -> None:
        """Overwrite flat ``target`` with that of rank ``root``."""

    @abstractmethod
    def perform_all_gather(self, source: np.ndarray, target: np.ndarray) -> None:
        """Write flat ``source`` of rank r into row r of ``target``."""

    @abstractmethod
    def perform_reduce_scatter(self, source: np.ndarray, target: np.ndarray, op: ReduceOp) -> None:
        """Reduce ``source[size, n]`` over the ranks; this rank's row goes into flat ``target``."""

    @abstractmethod
    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks in rank order."""

    def perform_all_to_all(self, source: np.ndarray, target: np.ndarray) -> None:
        """Exchange rows; this fallback is an all-gather, engines may send each row to one rank only."""
        gathered = np.empty((self.size, source.size), source.dtype)
        self.perform_all_gather(source.reshape(-1), gathered)
        np.copyto(target, gathered.reshape(self.size, *source.shape)[:, self.rank])

    def perform_send(self, source: np.ndarray, text: str, to: int, tag: int) -> Work:
        """Send flat ``source`` and its description ``text``; ``wait`` returns when ``source`` may change."""
        raise UnsupportedError(f"the communicator {self.name!r} does not support messages between two ranks.")

    def perform_receive(self, target: np.ndarray, text: str, source: int, tag: int) -> Work:
        """Receive into flat ``target``; ``wait`` raises ``CollectiveMismatchError`` if ``text`` differs."""
        raise UnsupportedError(f"the communicator {self.name!r} does not support messages between two ranks.")

    def perform_split(self, color: int | None, key: int) -> Communicator | None:
        """The communicator of the ranks that pass the same ``color``; None for those that pass None."""
        raise UnsupportedError(
            f"the communicator {self.name!r} does not support groups of some of its ranks."
        )

    def _do(self, call: Call, perform: Callable[[*Args], Result], *args: *Args) -> Result:
        """Compare ``call`` between the ranks, then return ``perform(*args)``; profiles time both."""
        for observe in OBSERVERS.get():
            observe(call)
        if around_call is not None:
            return around_call(self, call, perform, args)
        self.agree(call)
        return perform(*args)

    def _broadcast(self, source: np.ndarray, target: np.ndarray, root: int) -> None:
        if self.rank == root:
            target[...] = source
        self.perform_broadcast(target, root)

    def check_root(self, root: int) -> None:
        """Raise ``CommunicatorError`` unless ``root`` is a rank."""
        if not 0 <= root < self.size:
            raise CommunicatorError(
                f"rank {root} does not exist: there are {self.size} ranks, 0 to {self.size - 1}."
            )

    def _check_rows(self, kind: str, source: np.ndarray) -> None:
        if source.ndim == 0 or source.shape[0] != self.size:
            raise ShapeError(
                f"{kind}: the first axis must have one row per rank, {self.size}, but the array is "
                f"{list(source.shape)}. Reshape it to [{self.size}, ...] first."
            )


ProcessGroup = Communicator
"""torch's name, for annotations and ``isinstance``."""
