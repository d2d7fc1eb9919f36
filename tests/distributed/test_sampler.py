"""torch's order and torch's padding; exact shards for evaluation; sums over uneven shards."""

import numpy as np
import pytest

from tenon.data import Sampler
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.sampler import DistributedSampler, ShardedSampler, reduce_sum_count
from tenon.errors import DataError

pytestmark = pytest.mark.together

LENGTHS = (0, 1, 2, 7, 8, 100)


def test_both_are_samplers():
    assert issubclass(DistributedSampler, Sampler) and issubclass(ShardedSampler, Sampler)


@pytest.mark.oracle
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_the_order_is_torchs(shuffle, drop_last, size):
    torch = pytest.importorskip("torch")
    for length in LENGTHS[1:]:
        for rank in range(size):
            options = dict(num_replicas=size, rank=rank, shuffle=shuffle, seed=3, drop_last=drop_last)
            ours = DistributedSampler(range(length), **options)
            theirs = torch.utils.data.DistributedSampler(range(length), **options)
            for epoch in (0, 5):
                ours.set_epoch(epoch)
                theirs.set_epoch(epoch)
                assert list(ours) == list(theirs)
            assert len(ours) == len(theirs)
            assert (ours.num_samples, ours.total_size) == (theirs.num_samples, theirs.total_size)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("size", [1, 2, 3, 9])
@pytest.mark.parametrize("shuffle", [True, False])
def test_exact_shards_hold_every_sample_once(length, size, shuffle):
    shards = [ShardedSampler(range(length), size, rank, shuffle=shuffle, seed=1) for rank in range(size)]
    lists = [list(shard) for shard in shards]

    assert sorted([i for each in lists for i in each]) == list(range(length))
    assert [len(shard) for shard in shards] == [len(each) for each in lists]
    assert max(map(len, lists)) - min(map(len, lists)) <= 1


def test_equal_shares_may_repeat_but_never_differ_in_length():
    lists = [list(DistributedSampler(range(5), 3, rank)) for rank in range(3)]

    assert {len(each) for each in lists} == {2}
    assert set([i for each in lists for i in each]) == set(range(5))


def test_epochs_have_different_orders_and_the_same_epoch_the_same():
    sampler = DistributedSampler(range(100), 2, 0)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)

    assert first == again
    assert list(sampler) != first


def test_rank_and_size_come_from_the_communicator():
    def work(communicator):
        sampler = DistributedSampler(range(10), shuffle=False)
        return list(sampler)

    assert run_ranks(2, work) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(num_replicas=2, rank=2), r"Invalid rank 2, rank should be in the interval \[0, 1\]"),
        (dict(num_replicas=2, rank=-1), "Invalid rank -1"),
        (dict(num_replicas=0, rank=0), "num_replicas=0"),
        (dict(num_replicas=2, rank=0, exact=True, drop_last=True), "Give one of them"),
    ],
)
def test_impossible_places_are_refused(options, words):
    with pytest.raises(DataError, match=words):
        DistributedSampler(range(4), **options)


def test_sums_over_uneven_shards_give_the_mean_over_all_samples():
    data = np.arange(7.0)

    def work(communicator):
        mine = data[list(ShardedSampler(data))]
        total, count = reduce_sum_count(mine.sum(), len(mine))
        return total / count

    assert run_ranks(3, work) == [data.mean()] * 3


def test_several_sums_travel_together():
    def work(communicator):
        return reduce_sum_count([1.0, communicator.rank], [1, 1])

    for total, count in run_ranks(3, work):
        assert total.tolist() == [3, 3]
        assert count.tolist() == [3, 3]
