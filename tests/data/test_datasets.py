"""Data sets of data sets, splits, and batches of all kinds of samples, as torch makes them."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import tenon
from tenon import data

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

Pair = collections.namedtuple("Pair", "x y")


class Squares(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __getitem__(self, index):
        if not 0 <= index < self.n:
            raise IndexError(index)
        return index * index

    def __len__(self):
        return self.n


class Count(data.IterableDataset):
    def __init__(self, *range_):
        self.range = range_

    def __iter__(self):
        return iter(range(*self.range))


def test_data_sets_are_concatenated_chained_stacked_and_cut():
    both = Squares(3) + Squares(2)
    assert [both[i] for i in range(5)] == [0, 1, 4, 0, 1] and both[-1] == 1 and len(both) == 5
    assert both.cumulative_sizes == [3, 5]
    with pytest.raises(IndexError):
        both[5]
    with pytest.raises(ValueError, match="absolute value of index"):
        both[-6]
    assert list(Count(2) + Count(5, 7)) == [0, 1, 5, 6]
    stacked = data.StackDataset(Squares(3), range(3))
    assert stacked[2] == (4, 2) and stacked.__getitems__([1, 2]) == [(1, 1), (4, 2)]
    assert data.StackDataset(x=Squares(3), y="abc").__getitems__([1]) == [{"x": 1, "y": "b"}]
    part = data.Subset(Squares(9), [8, 2])
    assert len(part) == 2 and part[0] == 64 and part.__getitems__([1, 0]) == [4, 64]


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(AssertionError, match="empty"):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        data.ConcatDataset([Count(3)])
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(data.ChainDataset([Squares(2)]))
    for make in (lambda: data.StackDataset(), lambda: data.StackDataset(Squares(2), Squares(3)),
                 lambda: data.StackDataset(Squares(1), x=Squares(1))):  # fmt: skip
        with pytest.raises(ValueError):
            make()

    class Halved(data.Subset):
        def __getitem__(self, index):
            return 0

    with pytest.raises(NotImplementedError, match="overrides __getitem__ but not __getitems__"):
        Halved(Squares(2), [0])


@pytest.mark.parametrize("lengths", [[3, 7], [0.5, 0.25, 0.25], [10, 0], [0.34, 0.33, 0.33]])
def test_random_parts_are_torchs(lengths):
    tenon.manual_seed(1)
    torch.manual_seed(1)

    ours, theirs = data.random_split(range(10), lengths), torch.utils.data.random_split(range(10), lengths)

    assert [p.indices for p in ours] == [p.indices for p in theirs]
    again = data.random_split(range(10), lengths, generator=tenon.Generator().manual_seed(4))
    assert [p.indices for p in again] == [
        p.indices for p in torch.utils.data.random_split(range(10), lengths, torch.Generator().manual_seed(4))
    ]


def test_parts_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match=r"does not equal the length of the input dataset.*together 9"):
        data.random_split(range(10), [4, 5])
    with pytest.raises(ValueError, match="Fraction at index 0"):
        data.random_split(range(10), [1.5, -0.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(range(2), [0.9, 0.1])


SAMPLES = {
    "numbers": [1, 2, 3],
    "floats": [1.5, 2.0],
    "truths": [True, False],
    "arrays": [np.arange(3), np.arange(3)],
    "numpy numbers": [np.float32(1), np.float32(2)],
    "text": ["a", "b"],
    "bytes": [b"a", b"b"],
    "tuples": [(1, "a", np.ones(2)), (2, "b", np.zeros(2))],
    "lists": [[1, 2], [3, 4]],
    "dicts": [{"x": 1, "y": [1.0]}, {"x": 2, "y": [2.0]}],
    "named": [Pair(1, 2.0), Pair(3, 4.0)],
    "ordered": [collections.OrderedDict(b=1, a=2), collections.OrderedDict(b=3, a=4)],
    "nested": [({"x": (1, 2)}, ["s", 3.0]), ({"x": (3, 4)}, ["t", 5.0])],
    "scalars": [np.array(1.0), np.array(2.0)],
    "empty": [np.zeros((0, 2)), np.zeros((0, 2))],
}


def plain(value):
    """Tensors of either library as (dtype, values), containers by their type."""
    if isinstance(value, (tenon.Tensor, torch.Tensor)):
        return str(value.dtype), tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    return value


@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_torchs(name):
    assert plain(data.default_collate(SAMPLES[name])) == plain(
        torch.utils.data.default_collate(SAMPLES[name])
    )
    one = SAMPLES[name][0]
    assert plain(data.default_convert(one)) == plain(torch.utils.data.default_convert(one))


def test_tensors_are_stacked_and_gradients_flow():
    x = tenon.ones(2, requires_grad=True)

    batch = data.default_collate([x, 2 * x])
    batch.sum().backward()

    assert batch.shape == (2, 2) and x.grad.tolist() == [3.0, 3.0]


def test_samples_that_do_not_fit_together_say_which():
    with pytest.raises(RuntimeError, match=r"got \[2\] at entry 0 and \[3\] at entry 1"):
        data.default_collate([tenon.zeros(2), tenon.zeros(3)])
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        data.default_collate([(1, 2), (1,)])
    with pytest.raises(TypeError, match=r"must contain tensors.*found <class 'object'>"):
        data.default_collate([object()])
    with pytest.raises(TypeError, match="found <U1"):
        data.default_collate([np.array(["a"])])
