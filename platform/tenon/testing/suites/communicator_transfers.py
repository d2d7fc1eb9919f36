"""What every communicator must do beside reductions of whole arrays: rows, groups, messages, shared memory,
reductions under way."""

from __future__ import annotations

import numpy as np

from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CollectiveMismatchError, ShapeError, UnsupportedError
from tenon.testing.suites.communicator_checks import BFLOAT16, DTYPES, check, raises, same, values


@check
def rows_go_to_their_ranks(communicator: Communicator) -> None:
    """all_to_all in every dtype; large rows too."""
    size, rank = communicator.size, communicator.rank
    for dtype in DTYPES:
        mine = np.stack([values(communicator, rank + 5 * to, (2, 3), dtype) for to in range(size)])
        expected = [values(communicator, other + 5 * rank, (2, 3), dtype) for other in range(size)]
        same(communicator.all_to_all(mine).wait(), np.stack(expected))
    large = np.arange(size * 300_001, dtype=np.float64).reshape(size, -1) + rank
    received = communicator.all_to_all(large).wait()
    assert np.array_equal(received - received[0], np.tile(np.arange(size), (300_001, 1)).T)
    raises(ShapeError, "one row per rank", lambda: communicator.all_to_all(np.ones((size + 1, 2))))


@check
def allocated_memory_is_reduced_in_place(communicator: Communicator) -> None:
    """Whole and in parts, on every rank or only on some; the bits are those of any other array."""
    draws = np.random.default_rng(communicator.rank).standard_normal(200_003)
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), BFLOAT16):
        mine = draws.astype(dtype)
        expected = communicator.all_reduce(mine, "mean").wait()
        flat = communicator.allocate(mine.size, dtype)
        assert flat.shape == mine.shape and flat.dtype == dtype and not flat.astype(bool).any()
        for part in (slice(None), slice(1, 70_000), slice(5, 9)):
            flat[...] = mine
            communicator.all_reduce(flat[part], "mean", out=flat[part])
            same(flat[part], expected[part])
            same(flat[: part.start or 0], mine[: part.start or 0])
        mixed = flat if communicator.rank == 0 else mine
        mixed[...] = draws
        communicator.all_reduce(mixed, "mean", out=mixed)
        same(mixed, expected)
        del flat, mixed


@check
def started_reductions_are_there_after_wait(communicator: Communicator) -> None:
    """Several under way at once, with other calls between; a difference raises in ``wait``."""
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
def groups_of_some_ranks_work_beside_the_whole(communicator: Communicator) -> None:
    """Even and odd ranks, in reverse order; a rank that joins none gets None. Engines may have no groups."""
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
    """Around a ring, by tag, out of order; another shape raises there. Engines may have no messages."""
    size, rank = communicator.size, communicator.rank
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    large = np.arange(600_000.0) + rank
    try:
        communicator.send(np.ones(0), after, 3)
    except UnsupportedError:
        return
    communicator.receive(np.ones(0), before, 3).wait()
    sent = [communicator.send(large, after, 7), communicator.send(np.float32(rank), after, 1)]
    small, whole = np.zeros((), np.float32), np.zeros_like(large)
    communicator.receive(small, before, 1).wait()
    communicator.receive(whole, before, 7).wait()
    for work in sent:
        work.wait()
    same(whole - before, np.arange(600_000.0))
    assert small == before
    work = communicator.send(np.ones(3), after)
    raises(
        CollectiveMismatchError,
        "sent float64[3], but float32[3] is to be",
        lambda: communicator.receive(np.zeros(3, np.float32), before).wait(),
    )
    work.wait()
    communicator.barrier()
