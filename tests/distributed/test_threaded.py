"""Ranks as threads: results, failures, ranks that skip a collective."""

import threading

import numpy as np
import pytest

from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.communication.world import current, get_communicator
from tenon.errors import CollectiveMismatchError, CommunicatorError, RankFailedError


def test_results_come_back_in_rank_order():
    assert run_ranks(3, lambda communicator, factor: communicator.rank * factor, 10) == [0, 10, 20]


def test_each_thread_speaks_through_its_own_communicator():
    before = current()

    assert run_ranks(3, lambda communicator: get_communicator() is communicator) == [True] * 3
    assert current() is before


def test_the_first_error_is_raised_and_the_others_do_not_hang():
    raised = []
    before = threading.active_count()

    def work(communicator):
        if communicator.rank == 1:
            raise ValueError("bad batch")
        try:
            communicator.barrier()
        except RankFailedError as error:
            raised.append(str(error))
            raise

    with pytest.raises(ValueError, match="bad batch"):
        run_ranks(3, work)
    assert len(raised) == 2
    assert all("rank 1 failed with ValueError: bad batch" in text for text in raised)
    assert threading.active_count() <= before


def test_a_rank_that_ends_early_is_named():
    def work(communicator):
        if communicator.rank == 0:
            communicator.all_reduce(np.ones(2), name="fc.weight")

    with pytest.raises(
        CollectiveMismatchError, match=r"rank 0 at all_reduce.*fc\.weight.*; rank 1 at the end"
    ):
        run_ranks(2, work)


def test_a_rank_that_never_comes_is_named_after_the_timeout():
    given_up = threading.Event()

    def work(communicator):
        if communicator.rank == 1:
            given_up.wait()
        try:
            communicator.barrier()
        finally:
            given_up.set()

    with pytest.raises(RankFailedError, match=r"rank 1 did not reach barrier.* within 0\.2 s"):
        run_ranks(2, work, timeout=0.2)


def test_a_world_without_ranks_is_refused():
    with pytest.raises(CommunicatorError, match="at least one rank"):
        run_ranks(0, print)


@pytest.mark.parametrize("early", [False, True])
def test_a_rank_that_waits_for_a_message_of_a_failed_one_raises_at_once(early):
    failed, raised = threading.Event(), []

    def work(communicator):
        if communicator.rank == 1:
            if not early:
                failed.wait(0.05)
            raise ValueError("bad batch")
        if early:
            failed.wait(0.05)
        for _ in range(2):
            with pytest.raises(RankFailedError) as caught:
                communicator.receive(np.empty(2), 1).wait()
            raised.append(str(caught.value))

    with pytest.raises(ValueError, match="bad batch"):
        run_ranks(2, work, timeout=5)
    assert raised == ["rank 1 failed with ValueError: bad batch. Rank 0 cannot continue without it."] * 2


def test_messages_go_to_receives_in_the_order_of_these():
    def work(communicator):
        if communicator.rank == 0:
            for number in range(4):
                communicator.send(np.full(2, number), 1)
            return []
        arrays = [np.empty(2, np.int64) for _ in range(4)]
        works = [communicator.receive(array, 0) for array in arrays]
        for number in (2, 3, 0, 0, 1):
            works[number].wait()
            assert works[number].is_completed()
        return [array.tolist() for array in arrays]

    assert run_ranks(2, work)[1] == [[number, number] for number in range(4)]
