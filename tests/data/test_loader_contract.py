"""Properties of torch's loader and data sets that programs rely on besides the batches."""

from __future__ import annotations

import os
import random
import sys
import threading
from contextlib import nullcontext

import numpy as np
import pytest

import tenon
from tenon import data
from tenon.data import sharing
from tenon.errors import WorkerError
from tenon.kernels.backend import backend_named
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


class Slow:
    """With two workers, the first returns nothing before the second has produced sample ``free``."""

    def __init__(self, free):
        self.free, self.made = free, threading.Event()

    def __iter__(self):
        first = 5 * data.get_worker_info().id
        return (self.sample(i) for i in range(first, first + 5))

    def sample(self, index):
        if index == 0:
            assert self.made.wait(10)
        if index == self.free:
            self.made.set()
        return index


class SlowStream(Slow, IterableDataset):
    pass


class SlowTable(Slow, Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        self.sample(index)
        return data.get_worker_info().id


def threads(dataset, **options):
    return [int(x) for x in DataLoader(dataset, num_workers=2, multiprocessing_context="thread", **options)]


def test_batches_go_round_the_workers_whoever_is_faster():
    assert threads(SlowTable(3)) == [0, 1] * 5
    assert threads(SlowTable(5), prefetch_factor=3) == [0, 1] * 5
    assert threads(SlowStream(6)) == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]


def test_loaders_without_an_order_give_tasks_to_the_worker_that_has_room():
    assert threads(SlowTable(9), in_order=False) == [1] * 8 + [0] * 2
    assert threads(SlowStream(9), in_order=False)[:5] == [5, 6, 7, 8, 9]


class Again(IterableDataset):
    """An iterator that restarts when it is advanced after its end."""

    def __init__(self, n):
        self.n = self.left = n

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            self.left = self.n
            raise StopIteration
        return self.left


def test_a_stream_has_ended_for_its_worker_at_its_first_end():
    loader = DataLoader(Again(3), num_workers=1, prefetch_factor=4, multiprocessing_context="thread")

    assert [int(sample) for sample in loader] == [2, 1, 0]


class Numbers(IterableDataset):
    """The first random numbers that a worker draws."""

    def __iter__(self):
        yield tenon.initial_seed(), random.random(), np.random.rand()


def test_a_worker_of_a_stream_draws_torchs_random_numbers():
    tenon.manual_seed(3)

    (drawn,) = DataLoader(Numbers(), batch_size=None, num_workers=1)

    assert drawn == [937055941807507096, 0.21793848432592644, 0.8794862824005928]  # of torch 2.13


class Echo(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


def test_tasks_and_answers_larger_than_a_pipe_do_not_wait_for_each_other():
    texts = [letter * 400_000 for letter in "abcd"]
    loader = DataLoader(
        Echo(), batch_size=None, sampler=texts, num_workers=1, prefetch_factor=4, persistent_workers=True
    )

    assert list(loader) == texts
    next(iter(loader))
    loader._pool.close()  # in the middle of answers


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_kept_batches_that_hold_too_many_files_open_say_what_helps(strategy, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(sharing, "_chosen", strategy)
    iteration = iter(DataLoader(np.zeros((60, 20_000)), batch_size=None, num_workers=1))
    used = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = []
    holds = strategy == "file_descriptor" and sys.version_info < (3, 13)

    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, hard))
    try:
        with pytest.raises(WorkerError, match=r"ulimit -n.*set_sharing_strategy") if holds else nullcontext():
            kept.extend(iteration)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (len(kept) < 60) == holds


class Tenfold(data.TensorDataset):
    def __getitem__(self, index):
        return super().__getitem__(index)[0] * 10


def test_samples_that_a_subclass_makes_are_those_of_the_batches():
    plain, own = data.TensorDataset(tenon.arange(6)), Tenfold(tenon.arange(6))
    half = data.Subset(data.Subset(plain, range(1, 6)), [4, 0])

    assert [batch.tolist() for batch in DataLoader(own, 3)] == [[0, 10, 20], [30, 40, 50]]
    assert [batch.tolist() for batch in DataLoader(data.Subset(own, [-1, 2]), 2)] == [[50, 20]]
    assert [[part.tolist() for part in batch] for batch in DataLoader(half, 2)] == [[[5, 1]]]
    assert next(iter(DataLoader(plain, 2, sampler=[-1, 0])))[0].tolist() == [5, 0]
    assert half.__getitems__([1]) == [(tenon.tensor(1),)] and not hasattr(plain, "__getitems__")


class Columns(Dataset):
    """Returns several samples as a batch."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return {"x": index}

    def __getitems__(self, indices):
        return {"x": tenon.tensor(indices) * 10}


def test_what_a_data_set_returns_for_several_samples_reaches_the_collate_function():
    def loaded(dataset):
        return [batch["x"].tolist() for batch in DataLoader(dataset, 2, collate_fn=lambda batch: batch)]

    assert loaded(Columns()) == [[0, 10], [20, 30], [40]]
    assert loaded(data.Subset(Columns(), [4, 0, 2])) == [[40, 0], [20]]


def test_a_loader_tells_how_it_collates():
    assert DataLoader(range(3)).collate_fn is data.default_collate
    assert DataLoader(range(3), batch_size=None).collate_fn is data.default_convert
    assert DataLoader(range(3), collate_fn=list).collate_fn is list
    loaders = [DataLoader(range(3), batch_sampler=[[1]]), DataLoader(data.ChainDataset([]), batch_size=2)]
    assert all(loader._auto_collation for loader in loaders)


class Endless(DataLoader):
    """A sampler that repeats forever, as in timm, so that workers continue with the next epoch."""

    class Repeat(list):
        def __iter__(self):
            while True:
                yield from super().__iter__()

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._DataLoader__initialized = False
        self.batch_sampler = self.Repeat(self.batch_sampler)
        self._DataLoader__initialized = True
        self.iterator = self._get_iterator()

    def __iter__(self):
        return (next(self.iterator) for _ in range(len(self)))


def test_loaders_whose_sampler_never_ends_keep_one_iterator():
    loader = Endless(range(5), 2, num_workers=1, persistent_workers=True)

    epochs = [[batch.tolist() for batch in loader] for _ in range(2)]
    (worker,) = loader.iterator._workers
    loader.iterator._shutdown_workers()

    assert epochs == [[[0, 1], [2, 3], [4]]] * 2
    assert worker.exitcode == 0


class Loaded(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return backend_named("cpu")._table is not None


def test_forked_workers_find_the_kernels_loaded(monkeypatch):
    monkeypatch.setattr(backend_named("cpu"), "_table", None)
    loader = DataLoader(Loaded(), batch_size=None, num_workers=1, multiprocessing_context="fork")

    assert list(loader) == [True, True]


def test_a_worker_that_could_not_be_prepared_makes_no_batch():
    def refuse(worker):
        raise LookupError("no licence")

    for dataset in (range(6), Again(3)):
        batches = iter(
            DataLoader(dataset, num_workers=1, worker_init_fn=refuse, multiprocessing_context="thread")
        )
        for _ in range(3):
            with pytest.raises(LookupError, match="no licence"):
                next(batches)
