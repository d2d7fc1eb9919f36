"""Checks that every communicator must pass, as functions that all ranks run together.

Each takes the communicator and asserts on its own rank. ``CommunicatorSuite`` runs them under pytest, on real
ranks through ``communicator_run.py``. Further checks: ``communicator_transfers.py``.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CollectiveMismatchError, CommunicatorError, DTypeError, ShapeError, TenonError

Check = Callable[[Communicator], None]
CHECKS: dict[str, Check] = {}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
DTYPES = (
    *(np.dtype(name) for name in ("bool", *INTEGERS, *FLOATS, "complex64", "complex128")),
    BFLOAT16,
)
SHAPES = ((), (0,), (1,), (7,), (3, 0, 2), (2, 3, 4))


def check(function: Check) -> Check:
    """Decorate a function as a check of the suite."""
    CHECKS[function.__name__] = function
    return function


def values(communicator: Communicator, rank: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return small integers that differ by rank and position: all their reductions are exact."""
    pattern = ((np.arange(4) + rank * 3) % 4 + 1).astype(dtype)
    count = int(np.prod(shape))
    return np.tile(pattern, -(-count // 4))[:count].reshape(shape)


def values_of_all_ranks(
    communicator: Communicator, shape: tuple[int, ...], dtype: np.dtype
) -> list[np.ndarray]:
    """Return ``values`` of all ranks."""
    return [values(communicator, rank, shape, dtype) for rank in range(communicator.size)]


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Assert equal dtype, shape and values."""
    assert isinstance(actual, np.ndarray), type(actual)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not np.array_equal(actual, expected):  # first, as the comparison below is slow
        np.testing.assert_array_equal(actual.astype(np.complex128), expected.astype(np.complex128))


def raises(kind: type[TenonError], words: str, call: Callable[[], object]) -> str:
    """Assert that ``call`` raises ``kind`` with ``words`` in its message; return the message."""
    try:
        call()
    except kind as error:
        assert words in str(error), str(error)
        return str(error)
    raise AssertionError(f"the call did not raise {kind.__name__}")


@check
def ranks_are_numbered(communicator: Communicator) -> None:
    """Ranks are 0 to size - 1, and local ranks and sizes are consistent."""
    ranks = communicator.all_gather(np.int64(communicator.rank)).wait()
    same(ranks, np.arange(communicator.size))
    assert 0 <= communicator.local_rank < communicator.local_size <= communicator.size
    assert communicator.host and communicator.job


@check
def all_reduce_sums_every_dtype_and_shape(communicator: Communicator) -> None:
    """Bool sums are "any"; 0-d and empty arrays keep their shape."""
    for dtype in DTYPES:
        for shape in SHAPES:
            own = values(communicator, communicator.rank, shape, dtype)
            total = np.sum(
                [a.astype(np.complex128) for a in values_of_all_ranks(communicator, shape, dtype)], axis=0
            )
            expected = total.real > 0 if dtype.kind == "b" else total if dtype.kind == "c" else total.real
            same(communicator.all_reduce(own, "sum").wait(), np.asarray(expected).astype(dtype))


@check
def sums_have_the_bits_of_a_tree(communicator: Communicator) -> None:
    """Sums of floats are ((0 + 1) + (2 + 3)) on every rank, whatever their size: the same bits each time."""
    for dtype in (np.float32, np.float64):
        for count in (3, 70_000):
            parts = [
                np.random.default_rng(rank).standard_normal(count).astype(dtype)
                for rank in range(communicator.size)
            ]
            total = communicator.all_reduce(parts[communicator.rank], "sum").wait()
            while len(parts) > 1:
                parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
            assert total.tobytes() == parts[0].tobytes(), f"another order of {count} sums in {dtype.__name__}"


@check
def all_reduce_takes_extrema_and_products(communicator: Communicator) -> None:
    """max, min and prod of every ordered dtype."""
    for dtype in DTYPES:
        kind = np.complex128 if dtype.kind == "c" else np.float64
        arrays = [a.astype(kind) for a in values_of_all_ranks(communicator, (2, 3), dtype)]
        own = values(communicator, communicator.rank, (2, 3), dtype)
        if dtype.kind != "c":
            same(communicator.all_reduce(own, "max").wait(), np.max(arrays, axis=0).astype(dtype))
            same(communicator.all_reduce(own, "min").wait(), np.min(arrays, axis=0).astype(dtype))
        same(communicator.all_reduce(own, "prod").wait(), np.prod(arrays, axis=0).astype(dtype))


@check
def bool_reductions_are_any_and_all(communicator: Communicator) -> None:
    """sum and max are "any", prod and min are "all"."""
    first_only = np.array([communicator.rank == 0, True, False])
    alone = communicator.size == 1
    for op in ("sum", "max"):
        same(communicator.all_reduce(first_only, op).wait(), np.array([True, True, False]))
    for op in ("prod", "min"):
        same(communicator.all_reduce(first_only, op).wait(), np.array([alone, True, False]))


@check
def mean_divides_by_the_number_of_ranks(communicator: Communicator) -> None:
    """Floating and complex means; integers and bool are rejected."""
    for dtype in (*(np.dtype(name) for name in FLOATS), BFLOAT16, np.dtype("complex64")):
        own = np.full((2, 3), communicator.rank * 2, dtype)
        expected = np.full((2, 3), communicator.size - 1, dtype)
        same(communicator.all_reduce(own, "mean").wait(), expected)
    for refused in ("int64", "bool"):
        raises(DTypeError, "mean", functools.partial(communicator.all_reduce, np.ones(2, refused), "mean"))


@check
def short_floats_accumulate_in_float32(communicator: Communicator) -> None:
    """Values that are too small to change a 16-bit 1 one by one are summed in full."""
    for dtype, small in ((np.dtype(np.float16), 2.0**-11), (BFLOAT16, 2.0**-8)):
        own = np.array([1.0 if communicator.rank == 0 else small], dtype)
        exact = 1.0 + (communicator.size - 1) * small
        same(communicator.all_reduce(own, "sum").wait(), np.array([exact], np.float32).astype(dtype))


@check
def all_ranks_get_the_same_bits(communicator: Communicator) -> None:
    """Rounding may depend on the order of ranks, but the result is the same on every rank."""
    own = np.random.default_rng(communicator.rank).standard_normal(4099)
    for dtype in (np.float64, np.float32, np.float16, BFLOAT16):
        total = communicator.all_reduce(own.astype(dtype)).wait()
        assert len(set(communicator.all_gather_bytes(total.tobytes()))) == 1


@check
def large_arrays_are_reduced_whole(communicator: Communicator) -> None:
    """Sizes that are not divisible by the length of a piece."""
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), np.dtype(bool)):
        count = 1_310_721
        own = values(communicator, communicator.rank, (count,), dtype)
        arrays = values_of_all_ranks(communicator, (count,), dtype)
        expected = np.any(arrays, axis=0) if dtype.kind == "b" else np.sum(arrays, axis=0).astype(dtype)
        assert np.array_equal(communicator.all_reduce(own).wait(), expected)
    sent = own if communicator.rank == 0 else np.zeros_like(own)
    assert np.array_equal(communicator.broadcast(sent).wait(), arrays[0])
    assert np.array_equal(communicator.all_gather(own).wait(), np.stack(arrays))


@check
def nan_reaches_every_rank(communicator: Communicator) -> None:
    """A NaN on one rank makes sum, max and min NaN on all."""
    for dtype in (np.dtype(np.float32), np.dtype(np.float16), BFLOAT16):
        own = np.array([np.nan if communicator.rank == communicator.size - 1 else 1.0, 2.0], dtype)
        for op in ("sum", "max", "min"):
            result = communicator.all_reduce(own, op).wait().astype(np.float64)
            assert np.isnan(result[0]) and not np.isnan(result[1]), (op, result)
    row = np.full((communicator.size, 1), np.nan if communicator.rank == 0 else 1.0)
    assert np.isnan(communicator.reduce_scatter(row, "max").wait()).all()


@check
def out_receives_the_result(communicator: Communicator) -> None:
    """``out`` may be another array, the input itself or a strided view; the input is not modified
    otherwise."""
    own = np.full((2, 3), communicator.rank + 1.0)
    total = communicator.size * (communicator.size + 1) / 2
    out = np.zeros((2, 3))
    assert communicator.all_reduce(own, out=out).wait() is out
    same(out, np.full((2, 3), total))
    same(own, np.full((2, 3), communicator.rank + 1.0))
    fresh = communicator.all_reduce(own).wait()
    assert not np.shares_memory(fresh, own)
    wide = np.zeros((3, 4))
    communicator.all_reduce(own, out=wide[1:, :3])
    same(wide[1:, :3], np.full((2, 3), total))
    assert wide[0].sum() == 0 and wide[:, 3].sum() == 0
    communicator.all_reduce(own, out=own)
    same(own, np.full((2, 3), total))


@check
def any_memory_layout_is_accepted(communicator: Communicator) -> None:
    """Transposed, strided, reversed, broadcast, read-only, foreign byte order, and plain Python numbers."""
    base = np.arange(12.0).reshape(3, 4) + communicator.rank
    frozen = base.copy()
    frozen.flags.writeable = False
    for view in (
        base.T,
        base[:, ::2],
        base[::-1],
        np.broadcast_to(base[0], (2, 4)),
        frozen,
        base.astype(">f8"),
    ):
        expected = np.asarray(view, np.float64) * communicator.size
        expected = (
            expected + communicator.size * (communicator.size - 1) / 2 - communicator.size * communicator.rank
        )
        same(communicator.all_reduce(view).wait(), expected)
    assert communicator.all_reduce(1.5).wait() == 1.5 * communicator.size


@check
def broadcast_copies_the_root(communicator: Communicator) -> None:
    """From every root, every dtype and shape, also into ``out``."""
    for number, (dtype, shape) in enumerate(itertools.product(DTYPES, SHAPES)):
        root = number // len(SHAPES) % communicator.size
        own = values(communicator, communicator.rank, shape, dtype)
        same(communicator.broadcast(own, root).wait(), values(communicator, root, shape, dtype))
    for root in range(communicator.size):
        own = np.full(3, communicator.rank)
        communicator.broadcast(own, root, out=own)
        same(own, np.full(3, root))
    raises(CommunicatorError, "does not exist", lambda: communicator.broadcast(np.ones(1), communicator.size))


@check
def all_gather_stacks_in_rank_order(communicator: Communicator) -> None:
    """Gather every dtype and shape."""
    for dtype in DTYPES:
        for shape in SHAPES:
            gathered = communicator.all_gather(values(communicator, communicator.rank, shape, dtype)).wait()
            same(gathered, np.stack(values_of_all_ranks(communicator, shape, dtype)))


@check
def reduce_scatter_gives_each_rank_its_row(communicator: Communicator) -> None:
    """Rank r gets row r of the reduction; a wrong size of the first axis is rejected."""
    size = communicator.size
    for dtype in DTYPES:
        for shape in ((size,), (size, 3), (size, 0), (size, 2, 3)):
            own = values(communicator, communicator.rank, shape, dtype)
            arrays = values_of_all_ranks(communicator, shape, dtype)
            total = np.sum([a.astype(np.complex128) for a in arrays], axis=0)[communicator.rank]
            expected = total.real > 0 if dtype.kind == "b" else total if dtype.kind == "c" else total.real
            same(communicator.reduce_scatter(own).wait(), np.asarray(expected).astype(dtype))
    mean = communicator.reduce_scatter(np.full((size, 2), communicator.rank, np.float32), "mean").wait()
    same(mean, np.full(2, (size - 1) / 2, np.float32))
    raises(ShapeError, "one row per rank", lambda: communicator.reduce_scatter(np.ones((size + 1, 2))))


@check
def byte_strings_of_different_lengths_are_gathered(communicator: Communicator) -> None:
    """Byte strings may be empty."""
    gathered = communicator.all_gather_bytes(b"x" * communicator.rank)
    assert gathered == [b"x" * rank for rank in range(communicator.size)]


@check
def barrier_waits_for_the_slowest(communicator: Communicator) -> None:
    """No rank leaves before the last one has arrived."""
    if communicator.rank == communicator.size - 1:
        time.sleep(0.05)
    arrival = time.time()
    communicator.barrier()
    left = time.time()
    arrivals = communicator.all_gather(np.float64(arrival)).wait()
    assert left >= arrivals.max() - 0.005


@check
def bad_arguments_are_refused_before_anything_is_sent(communicator: Communicator) -> None:
    """The error names the values, and the communicator works afterwards."""
    one = np.ones(2)
    frozen = np.ones(2)
    frozen.flags.writeable = False
    raises(CommunicatorError, "'average' is not a reduction", lambda: communicator.all_reduce(one, "average"))
    raises(DTypeError, "object", lambda: communicator.all_reduce(np.array([None, "x"], object)))
    raises(
        DTypeError, "datetime64", lambda: communicator.broadcast(np.array(["2020-01-01"], "datetime64[D]"))
    )
    raises(DTypeError, "no order", lambda: communicator.all_reduce(np.ones(2, complex), "max"))
    raises(ShapeError, r"[3]", lambda: communicator.all_reduce(one, out=np.ones(3)))
    raises(ShapeError, "float32", lambda: communicator.all_reduce(one, out=np.ones(2, np.float32)))
    raises(CommunicatorError, "read-only", lambda: communicator.all_reduce(one, out=frozen))
    same(communicator.all_reduce(one).wait(), one * communicator.size)


@check
def ranks_that_disagree_all_raise_and_name_both_sides(communicator: Communicator) -> None:
    """Shape, dtype, operation, root, kind, name and step; afterwards the communicator still works."""
    last = communicator.rank == communicator.size - 1

    def at_step(step: int) -> None:
        communicator.step = step
        try:
            communicator.all_reduce(np.ones(2))
        finally:
            communicator.step = None

    cases: list[tuple[tuple[str, str], Callable[[], object], Callable[[], object]]] = [
        (
            ("[2]", "[3]"),
            lambda: communicator.all_reduce(np.ones(2)),
            lambda: communicator.all_reduce(np.ones(3)),
        ),
        (
            ("float32", "int32"),
            lambda: communicator.all_reduce(np.ones(2, np.float32)),
            lambda: communicator.all_reduce(np.ones(2, np.int32)),
        ),
        (("sum", "max"), lambda: communicator.all_reduce(1.0), lambda: communicator.all_reduce(1.0, "max")),
        (
            ("from rank 0", "from rank 1"),
            lambda: communicator.broadcast(1.0, 0),
            lambda: communicator.broadcast(1.0, 1),
        ),
        (("barrier", "all_gather"), communicator.barrier, lambda: communicator.all_gather(1.0)),
        (
            ("'conv.weight'", "'fc.weight'"),
            lambda: communicator.all_reduce(1.0, name="conv.weight"),
            lambda: communicator.all_reduce(1.0, name="fc.weight"),
        ),
        (("step 4", "step 5"), lambda: at_step(4), lambda: at_step(5)),
    ]
    if communicator.size > 1:
        for words, usual, other in cases:
            message = raises(CollectiveMismatchError, words[0], other if last else usual)
            assert words[1] in message and f"rank {communicator.size - 1}" in message, message
    same(communicator.all_reduce(np.ones(2)).wait(), np.ones(2) * communicator.size)
