"""The loader: torch's batches in torch's order, workers of both kinds, and what happens when one fails."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from data_samples import Rows, Stream, flat, numbers

import tenon
from tenon import data
from tenon.data.serving import WorkerInfo
from tenon.errors import WorkerError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on machines of one core
KINDS = [None, "thread"]


OPTIONS = [
    {"batch_size": 3},
    {"batch_size": 3, "drop_last": True},
    {"batch_size": 4, "shuffle": True},
    {"batch_size": None},
    {"batch_size": None, "shuffle": True},
    {"batch_sampler": [[0, 1], [5], [2, 3, 4]]},
    {"batch_size": 2, "sampler": [4, 2, 9]},
]


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_and_their_order_are_torchs(options):
    torch = pytest.importorskip("torch")
    found = []
    for lib, utils in ((tenon, data), (torch, torch.utils.data)):
        lib.manual_seed(0)
        x = lib.tensor(np.arange(20.0).reshape(10, 2))
        loader = utils.DataLoader(utils.TensorDataset(x, lib.arange(10)), **options)
        epochs = [[[part.tolist() for part in batch] for batch in loader] for _ in range(2)]
        found.append((epochs, len(loader), lib.rand(1).item()))

    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_workers_give_the_same_batches(options, kind):
    tenon.manual_seed(0)
    alone = numbers(data.DataLoader(Rows(10), **options))
    tenon.manual_seed(0)

    loader = data.DataLoader(Rows(10), num_workers=2, multiprocessing_context=kind, **options)

    assert numbers(loader) == alone


def test_random_numbers_in_processes_depend_on_the_batch_and_not_on_the_worker():
    def epoch(workers):
        tenon.manual_seed(7)
        loader = data.DataLoader(Rows(12), 2, num_workers=workers, shuffle=True)
        return [batch[1].numpy() for _ in range(2) for batch in loader]

    one, three = epoch(1), epoch(3)

    np.testing.assert_array_equal(one, three)
    assert not np.array_equal(one[0] % 1, one[1] % 1)
    assert not np.array_equal(one[0] % 1, one[6] % 1)  # another epoch, other numbers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams_are_read_by_every_worker(workers, kind):
    options = {"num_workers": workers} | ({"multiprocessing_context": kind} if workers else {})

    split = sorted(flat(data.DataLoader(Stream(10, split=True), 2, **options)))
    whole = flat(data.DataLoader(Stream(4), 2, drop_last=True, **options))

    assert split == list(range(10))
    assert sorted(whole) == sorted(list(range(4)) * max(workers, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_persistent_workers_live_through_epochs_and_abandoned_ones(kind):
    loader = data.DataLoader(Rows(8), 2, num_workers=2, persistent_workers=True, multiprocessing_context=kind)
    first = numbers(loader)
    pool = loader._pool

    for _batch in loader:
        break  # abandoned

    assert numbers(loader) == first and loader._pool is pool
    pool.close()


def test_workers_end_with_the_epoch_and_with_the_iterator():
    before = set(multiprocessing.active_children())
    loader = data.DataLoader(Rows(8), 2, num_workers=2)

    numbers(loader)
    assert set(multiprocessing.active_children()) == before
    for _batch in loader:
        break
    gc.collect()
    assert set(multiprocessing.active_children()) == before


def test_batches_out_of_order_come_all():
    loader = data.DataLoader(Rows(20), 2, num_workers=3, in_order=False)

    assert sorted(flat(loader)) == list(range(20))


class Torn(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


def fail(error):
    def raiser():
        raise error

    return raiser


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "expected"),
    [(ValueError("no such picture"), ValueError), (KeyError("label"), KeyError), (Torn(1, 2), RuntimeError)],
)
def test_an_error_in_a_worker_is_raised_with_its_traceback_and_the_rest_comes(error, expected, kind):
    loader = data.DataLoader(Rows(12, trouble=fail(error)), 2, num_workers=2, multiprocessing_context=kind)
    batches = iter(loader)
    assert [next(batches)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]

    with pytest.raises(expected) as raised:
        next(batches)

    text = str(raised.value)
    assert f"Caught {type(error).__name__} in DataLoader worker {kind or 'process'} 0" in text
    assert "raise error" in text and "\\n" not in text
    assert numbers(batches) == [[6, 7], [8, 9], [10, 11]]


def test_a_killed_worker_is_named_at_once():
    loader = data.DataLoader(Rows(12, trouble=lambda: os.kill(os.getpid(), signal.SIGKILL)), 2, num_workers=2)

    with pytest.raises(WorkerError, match=r"\(pid \d+\) is killed by signal: SIGKILL.*memory.*worker 0"):
        numbers(loader)
    loader = data.DataLoader(Rows(12, trouble=lambda: os._exit(3)), 2, num_workers=2)
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        numbers(loader)


def test_a_worker_that_does_not_answer_is_named_after_the_timeout():
    loader = data.DataLoader(
        Rows(12, trouble=lambda: time.sleep(30)),
        2,
        num_workers=2,
        timeout=0.5,
        multiprocessing_context="thread",
    )

    with pytest.raises(WorkerError, match=r"timed out after 0.5 seconds, waiting for worker 0"):
        numbers(loader)


@pytest.mark.parametrize("code", [3, pytest.param(None, marks=pytest.mark.slow)])
def test_batches_that_a_lost_worker_owes_are_not_counted_and_its_fellows_are_replaced(code, tmp_path):
    once = tmp_path / "once"

    def trouble():
        if not once.exists():
            once.touch()
            time.sleep(30) if code is None else os._exit(code)

    loader = data.DataLoader(
        Rows(12, trouble=trouble), 2, num_workers=2, timeout=60.0 if code else 1.0, persistent_workers=True
    )
    batches = iter(loader)
    taken = []
    with pytest.raises(WorkerError) as raised:
        taken.extend(batch[0].tolist() for batch in batches)
    with pytest.raises(WorkerError, match=re.escape(str(raised.value))):
        next(batches)
    state = loader.state_dict()

    assert state["batches"] < 3
    loader.timeout = 60.0  # nobody is lost any more, but a busy machine may let workers wait
    loader.load_state_dict(state)
    assert numbers(loader)[-1] == [10, 11]
    assert len(numbers(loader)) == 6


def test_a_worker_killed_between_epochs_is_replaced_in_the_one_after():
    loader = data.DataLoader(Rows(8), 2, num_workers=2, persistent_workers=True)
    numbers(loader)
    victim = loader._pool.processes[0]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()

    with pytest.raises(WorkerError, match="is killed by signal: SIGKILL"):
        numbers(loader)

    assert len(numbers(loader)) == 4


def test_large_batches_come_through_memory_that_can_be_written_to():
    loader = data.DataLoader(Rows(6, width=50_000), 3, num_workers=1)

    batches = [batch[1] for batch in loader]
    batches[0].mul_(2)

    assert [tuple(b.shape) for b in batches] == [(3, 50_000)] * 2
    assert (batches[0] // 2).mean().item() == pytest.approx(1.0, abs=0.6)


class Kinds(data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        big = tenon.ones(300, 300)
        return {
            "bfloat16": big.bfloat16(), "bool": big.bool(), "complex": tenon.tensor(1j), "empty": tenon.zeros(0),
            "text": "a", "none": None, "number": 1.5,
        }  # fmt: skip


def test_every_dtype_comes_through():
    loader = data.DataLoader(Kinds(), batch_size=None, num_workers=1, collate_fn=lambda sample: sample)

    for sample, expected in zip(loader, Kinds(), strict=False):
        for name, value in expected.items():
            if isinstance(value, tenon.Tensor):
                assert sample[name].dtype is value.dtype and sample[name].tolist() == value.tolist()
            else:
                assert sample[name] == value


def test_each_worker_knows_who_it_is_and_is_prepared_once():
    loader = data.DataLoader(Who(), batch_size=None, num_workers=2, worker_init_fn=Who.prepare)

    rows = [tuple(row) for row in loader]

    assert {row[0] for row in rows} == {0, 1} and all(row[1] == 2 and row[2] == row[0] + 100 for row in rows)
    assert all(row[3] == 1 for row in rows)  # one thread each
    assert data.get_worker_info() is None
    info = WorkerInfo(0, 2, 1, None)
    with pytest.raises(RuntimeError, match="Cannot assign attributes to WorkerInfo objects"):
        info.id = 1
    assert repr(info) == "WorkerInfo(id=0, num_workers=2, seed=1, dataset=None)"


class Who(data.Dataset):
    prepared = None

    @staticmethod
    def prepare(identity):
        Who.prepared = identity + 100

    def __len__(self):
        return 6

    def __getitem__(self, index):
        info = data.get_worker_info()
        return [info.id, info.num_workers, Who.prepared, tenon.get_num_threads()]


def test_collate_functions_get_samples_and_not_batches():
    table = data.TensorDataset(tenon.arange(4), tenon.arange(4) * 2)

    loader = data.DataLoader(table, 2, collate_fn=lambda samples: [int(x + y) for x, y in samples])

    assert list(loader) == [[0, 3], [6, 9]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"num_workers": 2**40}, "num_workers option should be at most 4096, but is 1099511627776"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"timeout": float("nan")}, "timeout option should be non-negative, but is nan"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor option should be at least 1"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "thread"}, "can only be used with multi-process loading"),
        ({"sampler": [1], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "disables auto-batching"),
        ({"batch_size": 0}, "batch_size should be a positive integer"),
    ],
)
def test_options_that_contradict_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        data.DataLoader(range(3), **options)


@pytest.mark.parametrize("name", ["num_workers", "prefetch_factor"])
@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), "2"])
def test_numbers_of_workers_and_batches_are_whole(name, value):
    with pytest.raises(TypeError, match=rf"{name} option should be an integer, but is {value!r}"):
        data.DataLoader(range(3), **{"num_workers": 1, name: value})


def test_no_more_batches_are_prefetched_than_there_are():
    loader = data.DataLoader(range(3), num_workers=1, prefetch_factor=2**70, multiprocessing_context="thread")

    assert [int(batch[0]) for batch in loader] == [0, 1, 2]


def test_streams_take_no_order():
    for options in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="DataLoader with IterableDataset: expected unspecified"):
            data.DataLoader(Stream(3), **options)


def test_pinning_without_a_gpu_says_so():
    if tenon.cuda.is_available():
        pytest.skip("there is an accelerator to pin for")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        data.DataLoader(range(3), pin_memory=True)


ENDLESS = """
import os, time
from tenon.data import DataLoader, Dataset
import numpy as np
class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.05)
        return np.full(50_000, os.getpid())
for batch in DataLoader(Slow(), 2, num_workers=2):
    print(int(batch[0, 0]), flush=True)
"""


@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, *(pytest.param(s, marks=pytest.mark.slow) for s in (signal.SIGINT, signal.SIGTERM))],
)
def test_no_worker_outlives_the_main_process(how):
    main = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    workers = {int(main.stdout.readline()) for _ in range(4)}

    main.send_signal(how)
    _, errors = main.communicate(timeout=300)

    assert len(workers) == 2 and main.returncode != 0
    assert errors.count("Traceback") == (how == signal.SIGINT)  # the main process's, and nothing of workers
    until = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, workers))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"  # an init that reaps nobody
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_can_be_asked_how_they_ended(persistent):
    loader = data.DataLoader(list(range(8)), batch_size=2, num_workers=2, persistent_workers=persistent)
    iteration = iter(loader)
    workers = iteration._workers
    assert [w.is_alive() for w in workers] == [True, True]
    next(iteration)
    del iteration, loader
    gc.collect()

    for worker in workers:
        worker.join(10)
        assert not worker.is_alive()
    assert iter(data.DataLoader([1]))._workers == []


def test_collating_is_found_at_torchs_private_path():
    from tenon.utils.data import default_collate
    from tenon.utils.data._utils.collate import default_collate as same

    assert same is default_collate


class Whole(data.IterableDataset):
    """A stream that yields all items in every worker."""

    def __iter__(self):
        return iter(range(4))

    def __len__(self):
        return 4


def test_a_stream_longer_than_its_len_warns():
    loader = data.DataLoader(Whole(), num_workers=2, batch_size=None)
    assert sum(1 for _ in loader) == 8  # nobody had asked for the length, as list() does
    assert len(loader) == 4

    iteration = iter(loader)
    first = [next(iteration) for _ in range(4)]
    with pytest.warns(
        UserWarning, match="reported to be 4 .* but 5 samples have been fetched.*part of its worker"
    ):
        next(iteration)
    iteration.abandon()
    assert len(first) == 4
