"""Samplers draw in torch's order, and resume where they stopped."""

import pytest

import tenon
from tenon import data

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]

SAMPLERS = {
    "sequential": lambda lib, d: d.SequentialSampler(range(7)),
    "random": lambda lib, d: d.RandomSampler(range(7)),
    "more than there are": lambda lib, d: d.RandomSampler(range(7), num_samples=17),
    "fewer": lambda lib, d: d.RandomSampler(range(7), num_samples=3),
    "replacement": lambda lib, d: d.RandomSampler(range(7), replacement=True, num_samples=40),
    "own generator": lambda lib, d: d.RandomSampler(range(7), generator=lib.Generator().manual_seed(5)),
    "subset": lambda lib, d: d.SubsetRandomSampler([3, 1, 4, 1, 5]),
    "weighted": lambda lib, d: d.WeightedRandomSampler([0.1, 0.5, 0.4], 6),
    "weighted once": lambda lib, d: d.WeightedRandomSampler([0.1, 0.5, 0.4, 2.0], 4, replacement=False),
    "batches": lambda lib, d: d.BatchSampler(d.RandomSampler(range(7)), 3, drop_last=False),
    "whole batches": lambda lib, d: d.BatchSampler(d.SequentialSampler(range(7)), 3, drop_last=True),
}


def of(lib, name):
    library = data if lib is tenon else torch.utils.data
    lib.manual_seed(3)
    return SAMPLERS[name](lib, library)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_order_is_torchs_in_every_epoch(name):
    ours, theirs = of(tenon, name), of(torch, name)

    assert [list(ours) for _ in range(3)] == [list(theirs) for _ in range(3)]
    assert len(ours) == len(theirs)
    assert tenon.rand(1).item() == torch.rand(1).item()  # as many numbers were drawn


@pytest.mark.parametrize("name", [n for n in SAMPLERS if "batches" not in n])
@pytest.mark.parametrize("taken", [0, 2])
def test_an_iteration_is_taken_up_where_it_was(name, taken):
    whole = of(tenon, name)
    next(iter(whole))  # an epoch before
    order = list(whole)
    state = whole.state_dict(taken)
    later = of(tenon, name)
    tenon.manual_seed(99)

    later.load_state_dict(state)
    rest = iter(later)

    assert [next(rest) for _ in range(min(2, len(order) - taken))] == order[taken:][:2]
    assert later.state_dict(2)["taken"] == taken + 2
    later.load_state_dict(later.state_dict(1))
    assert list(later) == order[taken + 1 :]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda d: d.RandomSampler(range(3), num_samples=0), ValueError),
        (lambda d: d.RandomSampler(range(0)), ValueError),
        (lambda d: d.RandomSampler(range(3), replacement=1), TypeError),
        (lambda d: d.WeightedRandomSampler([1.0], 1.5), ValueError),
        (lambda d: d.WeightedRandomSampler([[1.0]], 1), ValueError),
        (lambda d: d.WeightedRandomSampler([1.0], 1, replacement="no"), ValueError),
        (lambda d: d.BatchSampler(range(3), 0, False), ValueError),
        (lambda d: d.BatchSampler(range(3), 1, None), ValueError),
    ],
)
def test_bad_arguments_are_refused_in_torchs_words(make, error):
    with pytest.raises(error) as ours:
        make(data)
    with pytest.raises(error) as theirs:
        make(torch.utils.data)

    assert str(ours.value) == str(theirs.value)
