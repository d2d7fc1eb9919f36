"""Resuming in the middle of an epoch: exactly the remaining batches."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from data_samples import Place, Rows, Stream, numbers

import tenon
from tenon import data
from tenon.errors import DataError
from tenon.utils.data import DistributedSampler

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"), pytest.mark.together]


def taken_up(make, batches, seed=0):
    """Return the batches of a new loader with the state that another had after ``batches``, and the remaining batches of that."""
    tenon.manual_seed(seed)
    whole = make()
    iteration = iter(whole)
    for _ in range(batches):
        next(iteration)
    state, random = copy.deepcopy(whole.state_dict()), tenon.get_rng_state()
    left = numbers(iteration), numbers(whole)
    tenon.manual_seed(1234)
    later = make()
    later.load_state_dict(state)
    tenon.set_rng_state(random)
    return (numbers(later), numbers(later)), left


class Odd(data.Sampler):
    """A custom sampler without a state."""

    def __iter__(self):
        return iter([7, 1, 9, 4, 4, 0, 3])

    def __len__(self):
        return 7


LOADERS = {
    "in order": lambda: data.DataLoader(Rows(10), 3),
    "shuffled": lambda: data.DataLoader(Rows(10), 3, shuffle=True),
    "own generator": lambda: data.DataLoader(
        Rows(10), 3, shuffle=True, generator=tenon.Generator().manual_seed(3)
    ),
    "processes": lambda: data.DataLoader(Rows(10), 2, shuffle=True, num_workers=2),
    "threads": lambda: data.DataLoader(
        Rows(10), 2, shuffle=True, num_workers=2, multiprocessing_context="thread"
    ),
    "no batches": lambda: data.DataLoader(Rows(10), None, shuffle=True),
    "user's sampler": lambda: data.DataLoader(Rows(10), 2, sampler=Odd()),
    "user's batches": lambda: data.DataLoader(Rows(10), batch_sampler=[[1], [2, 3], [4], [5]]),
    "stream": lambda: data.DataLoader(Stream(9), 2),
    "stream with a state": lambda: data.DataLoader(Place(9), 2),
    "stream in threads": lambda: data.DataLoader(
        Stream(9, split=True), 2, num_workers=2, multiprocessing_context="thread"
    ),
    "stream in a process": lambda: data.DataLoader(Stream(9), 2, num_workers=1),
}


@pytest.mark.parametrize("batches", [pytest.param(0, marks=pytest.mark.slow), 1, 3])
@pytest.mark.parametrize("name", LOADERS)
def test_the_rest_of_the_epoch_and_the_next_one_are_the_same(name, batches):
    later, left = taken_up(LOADERS[name], batches)

    assert later == left


def test_random_numbers_of_workers_go_on_too():
    def rows(loader):
        return [batch[1].numpy() for batch in loader]

    tenon.manual_seed(0)
    whole = data.DataLoader(Rows(10), 2, num_workers=2)
    iteration = iter(whole)
    next(iteration)
    state = whole.state_dict()
    later = data.DataLoader(Rows(10), 2, num_workers=1)
    later.load_state_dict(state)

    np.testing.assert_array_equal(rows(later), rows(iteration))


def test_a_state_is_saved_like_any_other(tmp_path):
    loader = data.DataLoader(Rows(10), 2, shuffle=True)
    iteration = iter(loader)
    next(iteration)

    tenon.save(loader.state_dict(), tmp_path / "loader.pt")
    later = data.DataLoader(Rows(10), 2, shuffle=True)
    later.load_state_dict(tenon.load(tmp_path / "loader.pt"))

    assert numbers(later) == numbers(iteration)
    json.dumps({k: v for k, v in loader.state_dict().items() if k != "sampler"})


@pytest.mark.parametrize("sizes", [(2, 1), (2, 3), (1, 4), (4, 2)])
@pytest.mark.parametrize("exact", [False, True])
def test_ranks_may_be_other_ones_afterwards(sizes, exact):
    before, after = sizes

    def loaders(ranks):
        made = []
        for rank in range(ranks):
            sampler = DistributedSampler(Rows(17), ranks, rank, seed=5, exact=exact)
            sampler.set_epoch(2)
            made.append(data.DataLoader(Rows(17), 2, sampler=sampler))
        return made

    running = loaders(before)
    first = [iter(loader) for loader in running]
    seen = [i for _ in range(2) for iteration in first for i in next(iteration)[0].tolist()]
    states = [loader.state_dict() for loader in running]
    later = loaders(after)
    for loader in later:
        loader.load_state_dict(states[0])
    rest = [i for loader in later for batch in numbers(loader) for i in batch]

    assert states[0]["sampler"] == states[-1]["sampler"]
    assert len(seen) == len(set(seen)) and set(seen) | set(rest) == set(range(17))
    if exact:
        assert len(seen) + len(rest) == 17
    else:
        assert len(rest) - len(set(rest)) < after


def test_a_resumed_sampler_may_be_resumed_again():
    def loader():
        return data.DataLoader(Rows(12), 2, sampler=DistributedSampler(Rows(12), 2, 0, seed=1))

    whole = numbers(loader())
    first = loader()
    next(iter(first))
    second = loader()
    second.load_state_dict(first.state_dict())
    next(iter(second))
    third = loader()
    third.load_state_dict(second.state_dict())

    assert numbers(third) == whole[2:]


def test_a_state_of_other_data_is_refused_and_changes_nothing():
    loader = data.DataLoader(Rows(10), 2)
    other = data.DataLoader(Rows(11), 2)
    next(iter(other))

    with pytest.raises(DataError, match="of a data set of 11 samples, this one has 10"):
        loader.load_state_dict(other.state_dict())
    with pytest.raises(DataError, match="lacks size, batches"):
        loader.load_state_dict({"model": 1})
    assert len(numbers(loader)) == 5
    sampler = DistributedSampler(Rows(10), 1, 0, seed=1)
    with pytest.raises(DataError, match="state has seed=1, this sampler has seed=2"):
        DistributedSampler(Rows(10), 1, 0, seed=2).load_state_dict(sampler.state_dict(1))


def test_a_loaded_state_is_still_there_before_the_first_batch():
    loader = data.DataLoader(Rows(10), 2, shuffle=True)
    next(iter(loader))
    later = data.DataLoader(Rows(10), 2, shuffle=True)
    later.load_state_dict(loader.state_dict())

    assert later.state_dict()["batches"] == 1
