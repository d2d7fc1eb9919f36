"""Dividing work among threads: every piece once, errors reach the caller, no deadlock, BLAS settings restored."""

from __future__ import annotations

import os
import threading
import weakref

import numpy as np
import pytest

import tenon
from tenon_cpu import threads
from tenon_cpu.threads import Pool, alone, pool, scratch, split


@pytest.fixture
def three(monkeypatch):
    """A pool of three threads, whatever the machine has."""

    class Three(Pool):
        def __init__(self):
            super().__init__()
            for _ in range(3 - self.size):
                threading.Thread(target=self._wait, daemon=True).start()
            self.size = 3

    monkeypatch.setattr(threads, "_pool", Three())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_every_index_is_worked_once(three, count):
    seen = np.zeros(count, np.int64)

    def work(start, stop):
        seen[start:stop] += 1

    split(work, count)

    assert (seen == 1).all()


def test_little_work_stays_on_the_callers_thread(three):
    names = []
    split(lambda a, b: names.append(threading.current_thread().name), 10, 6)

    assert names == [threading.current_thread().name]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_in_any_piece_reaches_the_caller_and_the_pool_lives_on(three, bad):
    def work(start, stop):
        if start == bad:
            raise ValueError(f"piece {bad}")

    with pytest.raises(ValueError, match=f"piece {bad}"):
        split(work, 3)

    test_every_index_is_worked_once(three, 30)


def test_no_thread_keeps_what_it_has_worked_on(three):
    array = np.zeros(3)
    alive = weakref.ref(array)

    split(lambda start, stop, array=array: array.fill(stop), 3)
    del array

    assert alive() is None


def test_work_that_splits_again_runs_on_its_own_thread(three):
    totals = []

    def inner(start, stop):
        totals.append(stop - start)

    split(lambda a, b: split(inner, 12), 3)

    assert totals == [12, 12, 12]


def test_blas_has_its_threads_back_afterwards(three):
    blas = pool().blas
    before = blas.get()

    split(lambda a, b: None, 3)
    assert blas.get() == before
    alone(lambda: None)
    assert blas.get() == before
    with pytest.raises(ZeroDivisionError):
        split(lambda a, b: 1 // 0, 3)
    assert blas.get() == before


def test_pieces_give_no_floating_point_warnings(three):
    split(lambda a, b: np.log(np.zeros(3)) if a < 2 else None, 3)


def test_scratch_of_two_threads_does_not_overlap(three):
    found = {}
    together = threading.Barrier(3)

    def work(start, stop):
        together.wait(60)  # so that no thread takes two pieces
        found[start] = scratch.get("test", (4,), np.float32)

    split(work, 3)

    arrays = list(found.values())
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_scratch_is_reused_and_large_scratch_is_not_kept():
    first = scratch.get("again", (8,), np.float32)

    assert np.shares_memory(first, scratch.get("again", (2, 2), np.float64))
    huge = scratch.get("huge", (scratch.limit + 1,), np.uint8)
    assert not np.shares_memory(huge, scratch.get("huge", (scratch.limit + 1,), np.uint8))


def test_two_user_threads_convolve_at_once(three):
    x, w = tenon.randn(8, 4, 20, 20), tenon.randn(4, 4, 3, 3)
    expected = tenon.nn.functional.conv2d(x, w)
    results = []
    users = [
        threading.Thread(target=lambda: results.append(tenon.nn.functional.conv2d(x, w))) for _ in range(4)
    ]

    for user in users:
        user.start()
    for user in users:
        user.join(60)

    assert len(results) == 4
    assert all(bool(r.allclose(expected, atol=1e-5)) for r in results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_forked_child_makes_its_own_threads(three):
    split(lambda a, b: None, 3)
    child = os.fork()
    if child == 0:
        total = np.zeros(1)
        split(lambda a, b: np.add(total, b - a, out=total), 9)
        os._exit(0 if total[0] == 9 else 1)

    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def count():
    before = tenon.get_num_threads()
    yield before
    tenon.set_num_threads(before)


def test_one_setting_rules_every_set_of_threads(count):
    if not pool().blas.found:
        pytest.skip("NumPy's BLAS cannot be told")
    told = []
    threads.on_change(told.append)
    try:
        tenon.set_num_threads(3)
    finally:
        threads._listeners.remove(told.append)

    assert tenon.get_num_threads() == pool().size == pool().blas.get() == told[0] == 3
    test_every_index_is_worked_once(None, 100)


def test_threads_that_are_no_longer_wanted_end(count):
    if not pool().blas.found:
        pytest.skip("NumPy's BLAS cannot be told")
    before = set(threading.enumerate())
    tenon.set_num_threads(6)
    workers = [t for t in threading.enumerate() if t.name == "tenon-cpu" and t not in before]
    tenon.set_num_threads(1)

    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)


def test_products_are_right_after_the_number_of_threads_changes(count):
    if not pool().blas.found:
        pytest.skip("NumPy's BLAS cannot be told")
    x, y = tenon.randn(300, 200), tenon.randn(200, 400)
    expected = x.numpy().astype(np.float64) @ y.numpy()

    for number in (1, 4, 2, 1):
        tenon.set_num_threads(number)
        np.testing.assert_allclose((x @ y).numpy(), expected, rtol=1e-4, atol=1e-4)
