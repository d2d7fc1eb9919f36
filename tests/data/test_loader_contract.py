"""What programs written for torch's loader and data sets count on besides batches."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import data
from tenon.utils.data import DataLoader, Dataset, IterableDataset, Sampler

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 ")  # on machines of one core


class Seeds(Dataset[int]):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return tenon.initial_seed()


def choose_a_seed(worker):
    tenon.manual_seed(12345)


def test_data_sets_samplers_and_loaders_say_the_type_of_a_sample():
    class Numbers(IterableDataset[int]):
        def __iter__(self):
            return iter(range(3))

    class Backwards(Sampler[int]):
        def __iter__(self):
            return iter([2, 1, 0])

        def __len__(self):
            return 3

    loader: DataLoader[tenon.Tensor] = DataLoader[tenon.Tensor](Numbers(), batch_size=3)

    assert [batch.tolist() for batch in loader] == [[0, 1, 2]]
    assert [int(i) for i in DataLoader(range(3), sampler=Backwards())] == [2, 1, 0]
    for kind in (data.ConcatDataset, data.ChainDataset, data.StackDataset, data.Subset):
        assert kind[int].__origin__ is kind


def test_a_seed_chosen_in_worker_init_fn_holds_for_every_batch_of_the_worker():
    loader = DataLoader(
        Seeds(), batch_size=1, num_workers=2, worker_init_fn=choose_a_seed, persistent_workers=True
    )

    for _ in range(2):
        assert [int(batch) for batch in loader] == [12345] * 4


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "drop_last", "sampler", "dataset", "persistent_workers"]
)
@pytest.mark.parametrize("source", [range(4), data.ChainDataset([])])
def test_what_a_loader_is_built_around_is_not_set_afterwards(name, source):
    loader = DataLoader(source)
    before = getattr(loader, name)

    with pytest.raises(
        ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"
    ):
        setattr(loader, name, 3)

    assert getattr(loader, name) is before


def test_a_multiprocessing_context_is_checked_where_it_is_given():
    loader = DataLoader(range(4), num_workers=1)

    with pytest.raises(ValueError, match="valid start method"):
        DataLoader(range(4), num_workers=1, multiprocessing_context="bad")
    with pytest.raises(TypeError, match="valid context object"):
        loader.multiprocessing_context = object()
    with pytest.raises(ValueError, match="multi-process loading"):
        DataLoader(range(4)).multiprocessing_context = "fork"
    loader.multiprocessing_context = "fork"

    assert [int(batch) for batch in loader] == [0, 1, 2, 3]


def test_more_processes_than_processors_are_warned_of_but_not_more_threads():
    with pytest.warns(UserWarning, match="excessive worker creation"):
        DataLoader(range(4), num_workers=1000)

    DataLoader(range(4), num_workers=1000, multiprocessing_context="thread")


def test_tensors_of_different_lengths_are_an_assertion_error_and_a_data_error():
    with pytest.raises(AssertionError, match="Size mismatch between tensors") as raised:
        data.TensorDataset(tenon.ones(2), tenon.ones(3))

    assert isinstance(raised.value, tenon.errors.DataError)


def test_text_in_an_array_is_left_as_it_is():
    words = np.array(["a", "b"])

    assert data.default_collate(words) is words
    with pytest.raises(TypeError, match="batch must contain tensors"):
        data.default_collate(np.array([["a", "b"]]))


@pytest.mark.parametrize("batch_size", [1e9, 2.0, True, 0, "2"])
def test_a_stream_too_is_cut_into_batches_of_whole_numbers_only(batch_size):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    for dataset in (Stream(), [1, 2]):
        with pytest.raises(ValueError, match="batch_size should be a positive integer value"):
            DataLoader(dataset, batch_size=batch_size)
