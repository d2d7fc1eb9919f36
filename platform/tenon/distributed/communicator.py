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
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tenon.distributed import failure
from tenon.distributed.calls import FINISH, Call, Work
from tenon.distributed.reduction import ReduceOp, accumulator, check_transferable, dtype_name, is_extremum
from tenon.errors import CommunicatorError, DTypeError, ShapeError

Array = np.ndarray[Any, Any]


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

    def __init__(
        self, rank: int, size: int, local_rank: int | None = None, local_size: int | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = rank if local_rank is None else local_rank
        self.local_size = size if local_size is None else local_size
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
        source = _prepare(array)
        operation = ReduceOp.of(op)
        check_reducible(source, operation)
        target = _target(out, source.shape, source.dtype)
        call = Call("all_reduce", operation.value, source.shape, dtype_name(source.dtype), name)
        has_nan = self.agree(call, is_extremum(operation) and _contains_nan(source))
        flat = _flat(target)
        self.perform_all_reduce(source.reshape(-1), flat, operation, has_nan)
        return Work(_deliver(flat, target))

    def broadcast(
        self, array: Any, root: int = 0, out: Array | None = None, *, name: str | None = None
    ) -> Work:
        """Give every rank the array of rank ``root``; the others pass one of the same shape and dtype."""
        source = _prepare(array)
        check_transferable(source.dtype)
        self._check_root(root)
        target = _target(out, source.shape, source.dtype)
        self.agree(Call("broadcast", f"from rank {root}", source.shape, dtype_name(source.dtype), name))
        flat = _flat(target)
        if self.rank == root:
            flat[...] = source.reshape(-1)
        self.perform_broadcast(flat, root)
        return Work(_deliver(flat, target))

    def all_gather(self, array: Any, out: Array | None = None, *, name: str | None = None) -> Work:
        """Stack the arrays of all ranks: ``[size, *array.shape]``, on every rank."""
        source = _prepare(array)
        check_transferable(source.dtype)
        target = _target(out, (self.size, *source.shape), source.dtype)
        self.agree(Call("all_gather", "", source.shape, dtype_name(source.dtype), name))
        flat = _flat(target)
        self.perform_all_gather(source.reshape(-1), flat.reshape(self.size, source.size))
        return Work(_deliver(flat, target))

    def reduce_scatter(
        self, array: Any, op: str = ReduceOp.SUM, out: Array | None = None, *, name: str | None = None
    ) -> Work:
        """Combine ``[size, *shape]`` arrays of all ranks; rank r gets row r of the result."""
        source = _prepare(array)
        operation = ReduceOp.of(op)
        check_reducible(source, operation)
        if source.ndim == 0 or source.shape[0] != self.size:
            raise ShapeError(
                f"reduce_scatter: the first axis must have one row per rank, {self.size}, but the array is "
                f"{list(source.shape)}. Reshape it to [{self.size}, ...] first."
            )
        target = _target(out, source.shape[1:], source.dtype)
        call = Call("reduce_scatter", operation.value, source.shape, dtype_name(source.dtype), name)
        has_nan = self.agree(call, is_extremum(operation) and _contains_nan(source))
        flat = _flat(target)
        self.perform_reduce_scatter(source.reshape(self.size, flat.size), flat, operation, has_nan)
        return Work(_deliver(flat, target))

    def all_gather_bytes(self, payload: bytes, *, name: str | None = None) -> list[bytes]:
        """The byte strings of all ranks, which may differ in length, in rank order."""
        self.agree(Call("all_gather_bytes", "", (), "bytes", name))
        return self.perform_all_gather_bytes(payload)

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self.agree(Call("barrier", "", (), "", None))

    def close(self) -> None:
        """Leave the group. Every rank must do so at the same point; later calls raise where ranks exist."""
        self.agree(Call("destroy_process_group", "", (), "", None))

    def finish(self) -> None:
        """Say that this rank's program has ended, and wait for the others to say so."""
        self.agree(FINISH)

    def abort(self, error: BaseException) -> NoReturn:
        """Report ``error`` once and end the programs of all ranks with exit status 1."""
        failure.fail(error)

    def kill(self, code: int) -> NoReturn:
        """End the programs of all ranks with exit status ``code``, without a report."""
        os._exit(code)

    # What an engine provides.

    @abstractmethod
    def agree(self, call: Call, flag: bool = False) -> bool:
        """Check that every rank makes ``call``; raise ``CollectiveMismatchError`` on all of them if not.

        Returns whether any rank passed ``flag``. It is a barrier too: nobody returns before all have come.
        """

    @abstractmethod
    def perform_all_reduce(self, source: Array, target: Array, op: ReduceOp, has_nan: bool) -> None:
        """Reduce flat ``source`` over the ranks into flat ``target``, which may share memory with it."""

    @abstractmethod
    def perform_broadcast(self, target: Array, root: int) -> None:
        """Overwrite flat ``target`` with that of rank ``root``."""

    @abstractmethod
    def perform_all_gather(self, source: Array, target: Array) -> None:
        """Write flat ``source`` of rank r into row r of ``target``."""

    @abstractmethod
    def perform_reduce_scatter(self, source: Array, target: Array, op: ReduceOp, has_nan: bool) -> None:
        """Reduce ``source[size, n]`` over the ranks; this rank's row goes into flat ``target``."""

    @abstractmethod
    def perform_all_gather_bytes(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks in rank order."""

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise CommunicatorError(
                f"rank {root} does not exist: there are {self.size} ranks, 0 to {self.size - 1}."
            )


def check_reducible(array: Array, op: ReduceOp) -> None:
    """Raise ``DTypeError`` unless elements of this dtype can be combined by ``op``."""
    check_transferable(array.dtype)
    accumulator(array.dtype)
    if op is ReduceOp.AVG and array.dtype.kind in "biu":
        raise DTypeError(
            f"a mean of {array.dtype} values over ranks has no exact {array.dtype} result. "
            f"Convert to a floating dtype first, or reduce with 'sum'."
        )
    if is_extremum(op) and array.dtype.kind == "c":
        raise DTypeError(f"{array.dtype} values have no order, so '{op}' is not defined. Use 'sum'.")


def _prepare(array: Any) -> Array:
    """``array`` as a C-contiguous array of native byte order; no copy where it already is."""
    source = np.asarray(array)
    return np.ascontiguousarray(source, dtype=source.dtype.newbyteorder("=")).reshape(source.shape)


def _target(out: Array | None, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """``out`` after checking that the result fits it, or a new array."""
    if out is None:
        return np.empty(tuple(shape), dtype)
    if out.shape != tuple(shape) or out.dtype != dtype:
        raise ShapeError(
            f"out is {out.dtype}{list(out.shape)}, but the result is {dtype}{list(shape)}. "
            f"Pass an array of exactly that shape and dtype, or none."
        )
    if not out.flags.writeable:
        raise CommunicatorError("out is read-only. Pass a writeable array, or none to get a new one.")
    return out


def _flat(target: Array) -> Array:
    """``target`` as one row: a view if it is contiguous, else a copy that ``_deliver`` writes back."""
    return target.reshape(-1) if target.flags.c_contiguous else np.ascontiguousarray(target).reshape(-1)


def _deliver(flat: Array, target: Array) -> Array:
    if not target.flags.c_contiguous:
        target[...] = flat.reshape(target.shape)
    return target


def _contains_nan(array: Array) -> bool:
    return array.dtype.kind not in "biu" and bool(np.isnan(array).any())
