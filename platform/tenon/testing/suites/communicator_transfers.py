"""Checks of communicators beyond reductions of whole arrays: all-to-all, allocated memory, asynchronous
reductions, groups and messages."""

from __future__ import annotations

import numpy as np

from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CollectiveMismatchError, ShapeError, UnsupportedError
from tenon.testing.suites.communicator_checks import BFLOAT16, DTYPES, check, raises, same, values


@check
def rows_go_to_their_ranks(communicator: Communicator) -> None:
    """``all_to_all`` sends row r to rank r, in every dtype, also if rows are large."""
    size, rank = communicator.size, communicator.rank
    for dtype in DTYPES:
        own = np.stack([values(communicator, rank + 5 * to, (2, 3), dtype) for to in range(size)])
        expected = [values(communicator, other + 5 * rank, (2, 3), dtype) for other in range(size)]
        same(communicator.all_to_all(own).wait(), np.stack(expected))
    large = np.arange(size * 300_001, dtype=np.float64).reshape(size, -1) + rank
    received = communicator.all_to_all(large).wait()
    assert np.array_equal(received - received[0], np.tile(np.arange(size), (300_001, 1)).T)
    raises(ShapeError, "one row per rank", lambda: communicator.all_to_all(np.ones((size + 1, 2))))


@check
def allocated_memory_is_reduced_in_place(communicator: Communicator) -> None:
    """Reduce all of it or a part, on all ranks or on some; the result equals that of ordinary arrays."""
    draws = np.random.default_rng(communicator.rank).standard_normal(200_003)
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), BFLOAT16):
        own = draws.astype(dtype)
        expected = communicator.all_reduce(own, "mean").wait()
        flat = communicator.allocate(own.size, dtype)
        assert flat.shape == own.shape and flat.dtype == dtype and not flat.astype(bool).any()
        for part in (slice(None), slice(1, 70_000), slice(5, 9)):
            flat[...] = own
            communicator.all_reduce(flat[part], "mean", out=flat[part])
            same(flat[part], expected[part])
            same(flat[: part.start or 0], own[: part.start or 0])
        mixed = flat if communicator.rank == 0 else own
        mixed[...] = draws
        communicator.all_reduce(mixed, "mean", out=mixed)
        same(mixed, expected)
        del flat, mixed


@check
def started_reductions_are_complete_after_wait(communicator: Communicator) -> None:
    """Several reductions may run at once, with other calls between; a mismatch raises in ``wait``."""
    arrays = [np.full(count, communicator.rank + 1.0) for count in (3, 100_000, 0)]
    works = [communicator.start_all_reduce(array, name=f"part {i}") for i, array in enumerate(arrays)]
    communicator.barrier()
    for work, array in zip(works, arrays, strict=True):
        assert work.wait() is array and work.is_completed()
        same(array, np.full(array.size, communicator.size * (communicator.size + 1) / 2))
    if communicator.size > 1:
        name = "a" if communicator.rank == 0 else "b"

        def start_and_wait() -> None:
            communicator.start_all_reduce(np.ones(2), name=name).wait()

        raises(CollectiveMismatchError, "'b'", start_and_wait)


@check
def groups_work_next_to_the_communicator_of_all_ranks(communicator: Communicator) -> None:
    """Groups of even and of odd ranks in reverse order; a rank without a group gets None.

    Communicators need not support groups.
    """
    size, rank = communicator.size, communicator.rank
    try:
        part = communicator.split(rank % 2, -rank)
    except UnsupportedError:
        return
    members = [other for other in reversed(range(size)) if other % 2 == rank % 2]
    assert part is not None and (part.size, part.rank) == (len(members), members.index(rank))
    same(part.all_gather(np.int64(rank)).wait(), np.array(members))
    same(part.all_reduce(np.full(50_000, float(rank))).wait(), np.full(50_000, float(sum(members))))
    first = communicator.split(0 if rank == 0 else None)
    assert (first is None) == (rank != 0)
    same(communicator.all_reduce(1).wait(), np.array(size))


@check
def two_ranks_exchange_messages(communicator: Communicator) -> None:
    """Messages around a ring, by tag and out of order; a mismatch raises at the receiver.

    Communicators need not support messages.
    """
    size, rank = communicator.size, communicator.rank
    if size == 1:
        return
    successor, predecessor = (rank + 1) % size, (rank - 1) % size
    large = np.arange(600_000.0) + rank
    try:
        communicator.send(np.ones(0), successor, 3)
    except UnsupportedError:
        return
    communicator.receive(np.ones(0), predecessor, 3).wait()
    sent = [communicator.send(large, successor, 7), communicator.send(np.float32(rank), successor, 1)]
    small, received = np.zeros((), np.float32), np.zeros_like(large)
    communicator.receive(small, predecessor, 1).wait()
    communicator.receive(received, predecessor, 7).wait()
    for work in sent:
        work.wait()
    same(received - predecessor, np.arange(600_000.0))
    assert small == predecessor
    work = communicator.send(np.ones(3), successor)
    raises(
        CollectiveMismatchError,
        "sent float64[3], but this rank expects float32[3]",
        lambda: communicator.receive(np.zeros(3, np.float32), predecessor).wait(),
    )
    work.wait()
    communicator.barrier()


@check
def several_arrays_are_gathered_in_one_call(communicator: Communicator) -> None:
    """``all_gather_several``: arrays of all dtypes, empty and large ones; also started and waited for."""
    size = communicator.size
    counts = [0, 1, 7, *(5 for _ in DTYPES), 300_001]
    dtypes = [np.dtype(np.float32)] * 3 + list(DTYPES) + [np.dtype(np.float64)]
    own = [values(communicator, communicator.rank, (n,), d) for n, d in zip(counts, dtypes, strict=True)]
    for gather in (communicator.all_gather_several, communicator.start_all_gather_several):
        outs = [np.empty((size, n), d) for n, d in zip(counts, dtypes, strict=True)]
        gather(own, outs).wait()
        for out, count, dtype in zip(outs, counts, dtypes, strict=True):
            same(out, np.stack([values(communicator, r, (count,), dtype) for r in range(size)]))
    communicator.all_gather_several([], []).wait()
    wrong = [np.empty((size + 1, 2))]
    raises(ShapeError, "one row for each", lambda: communicator.all_gather_several([np.ones(2)], wrong))


@check
def several_arrays_are_reduced_in_one_call(communicator: Communicator) -> None:
    """``reduce_scatter_several`` gives the bits of ``reduce_scatter``; also started and waited for."""
    size = communicator.size
    for dtype in (np.dtype(np.float32), np.dtype(np.float64), BFLOAT16):
        counts = [3, 0, 1, 200_003]
        generator = np.random.default_rng(communicator.rank)
        own = [generator.standard_normal((size, n)).astype(dtype) for n in counts]
        for operation in ("sum", "mean"):
            expected = [communicator.reduce_scatter(array, operation).wait() for array in own]
            for reduce in (communicator.reduce_scatter_several, communicator.start_reduce_scatter_several):
                outs = [np.empty(n, dtype) for n in counts]
                reduce([array.copy() for array in own], outs, operation).wait()
                for out, array in zip(outs, expected, strict=True):
                    same(out, array)
    communicator.reduce_scatter_several([], []).wait()
    if size > 1:
        count = 2 if communicator.rank else 3
        raises(
            CollectiveMismatchError,
            "reduce_scatter(sum)",
            lambda: communicator.reduce_scatter_several([np.ones((size, count))], [np.ones(count)]),
        )
