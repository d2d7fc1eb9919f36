"""One order on any number of ranks and workers, resumed in the middle of an epoch by another number of them."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon.data import DataLoader
from tenon.data.streaming import ShardSampler, StreamingDataset
from tenon.errors import DataError
from tenon.testing.suites.communicator import launch
from tenon.utils.data import DistributedSampler

PROGRAM = Path(__file__).parent / "programs" / "epoch.py"
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def ranks(size, *arguments):
    """Run the program; what each rank has read, as a list of batches of numbers."""
    done = launch(size, [str(PROGRAM), *map(str, arguments)])
    assert done.returncode == 0, done.stderr
    out = arguments[4]
    return [
        [[int(n) for n in line.split()] for line in Path(f"{out}.{rank}").read_text().split("\n")]
        for rank in range(size)
    ]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("order", "first", "then"),
    [
        pytest.param("shards", 2, 3, marks=pytest.mark.slow),
        pytest.param("shards", 3, 2, marks=pytest.mark.slow),
        pytest.param("shards", 3, 1, marks=pytest.mark.slow),
        pytest.param("all", 2, 3, marks=pytest.mark.slow),
        pytest.param("all", 3, 2, marks=pytest.mark.slow),
    ],
)
def test_an_epoch_of_some_ranks_is_resumed_by_others_with_exactly_the_remaining_samples(
    tmp_path, numbered, order, first, then
):
    numbered(tmp_path / "source", count=53, per_shard=7)
    arguments = [order, f"file://{tmp_path}/source/*.tar", tmp_path / "cache", tmp_path / "state.safetensors"]
    dataset = StreamingDataset(tmp_path / "source")
    sampler = (
        ShardSampler(dataset, 1, 0, seed=5, shards_at_once=3)
        if order == "shards"
        else DistributedSampler(dataset, 1, 0, seed=5)
    )
    sampler.set_epoch(2)
    whole = list(sampler)

    before = ranks(first, *arguments, tmp_path / "before", 4)
    after = ranks(then, *arguments, tmp_path / "after", -1)

    taken = [n for rank in before for batch in rank for n in batch]
    left = [n for rank in after for batch in rank for n in batch]
    assert sorted(taken) == sorted(whole[: 4 * 2 * first])  # the same samples, whatever the number of ranks
    assert sorted(taken + left) == list(range(53))
    assert [[n for batch in rank for n in batch] for rank in after] == [
        whole[len(taken) :][r::then] for r in range(then)
    ]
    assert sum(path.stat().st_size for path in (tmp_path / "cache" / "shards").iterdir()) <= 40_000


@pytest.fixture
def dataset(tmp_path, numbered):
    return StreamingDataset(numbered(tmp_path, count=31, per_shard=4))


def test_the_order_is_a_permutation_that_depends_on_seed_and_epoch_alone(dataset):
    def order(**options):
        sampler = ShardSampler(dataset, 1, 0, **{"shards_at_once": 3, **options})
        sampler.set_epoch(options.pop("epoch", 0)) if "epoch" in options else None
        return list(sampler)

    assert sorted(order()) == list(range(31)) and order() == order() != order(seed=1)
    sampler = ShardSampler(dataset, 1, 0, shards_at_once=3)
    sampler.set_epoch(1)
    assert sorted(sampler) == list(range(31)) and list(sampler) != order()
    for size in (2, 3, 5):
        shares = [list(ShardSampler(dataset, size, rank, shards_at_once=3)) for rank in range(size)]
        joined = np.empty(31, int)
        for rank, share in enumerate(shares):
            joined[rank::size] = share
        assert joined.tolist() == order()


def test_few_shards_are_read_at_a_time(dataset):
    order = list(ShardSampler(dataset, 1, 0, shards_at_once=2))

    groups = [{number // 4 for number in order[k : k + 8]} for k in range(0, 16, 8)]
    assert all(len(shards) <= 3 for shards in groups)  # of two, or of one that is short and the next
    places = {shard: [i for i, n in enumerate(order) if n // 4 == shard] for shard in range(8)}
    assert max(max(at) - min(at) for at in places.values()) < 8
    assert any(n // 4 != m // 4 for n, m in itertools.pairwise(order))


def test_one_group_of_all_shards_is_every_permutation(tmp_path, numbered):
    small = StreamingDataset(numbered(tmp_path, count=3, per_shard=1))

    found = {tuple(ShardSampler(small, 1, 0, seed=seed, shards_at_once=3)) for seed in range(60)}

    assert len(found) == 6


def test_padding_and_dropping_are_those_of_distributed_sampler(dataset):
    even = [list(ShardSampler(dataset, 2, rank, drop_last=True)) for rank in range(2)]
    padded = [list(ShardSampler(dataset, 2, rank, exact=False)) for rank in range(2)]

    assert [len(each) for each in even] == [15, 15] and len({*even[0], *even[1]}) == 30
    assert [len(each) for each in padded] == [16, 16] and {*padded[0], *padded[1]} == set(range(31))


def test_a_state_of_another_order_is_refused(dataset):
    state = ShardSampler(dataset, 1, 0, shards_at_once=3).state_dict(4)

    for other in (
        ShardSampler(dataset, 1, 0, shards_at_once=4),
        ShardSampler(dataset, 1, 0, shards_at_once=3, seed=1),
    ):
        with pytest.raises(DataError, match="another order"):
            other.load_state_dict(state)
    with pytest.raises(DataError, match="shards_at_once=None"):
        ShardSampler(dataset, 1, 0).load_state_dict(
            DistributedSampler(dataset, 1, 0, shuffle=False).state_dict(4)
        )


def test_what_is_asked_wrongly_is_told(dataset):
    with pytest.raises(DataError, match="StreamingDataset, got range"):
        ShardSampler(range(3), 1, 0)
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(DataError, match=f"shards_at_once={wrong} is not a positive integer"):
            ShardSampler(dataset, 1, 0, shards_at_once=wrong)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_loader_resumes_at_the_next_sample_with_any_number_of_workers(dataset, workers):
    def make(count):
        return DataLoader(
            dataset, 4, shuffle=True, num_workers=count, generator=tenon.Generator().manual_seed(3)
        )

    loader = make(workers)
    iteration = iter(loader)
    taken = [next(iteration)["__key__"] for _ in range(3)]
    state = loader.state_dict()
    left = [batch["__key__"] for batch in iteration]

    later = make(2 - workers)
    later.load_state_dict(state)

    assert [batch["__key__"] for batch in later] == left
    assert sorted(itertools.chain(*taken, *left)) == [f"{i:04}" for i in range(31)]


def test_a_state_of_other_shards_is_refused_though_they_are_as_many(dataset, tmp_path):
    loader = DataLoader(dataset, 4, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    urls = [str(tmp_path / f"s-{i:03}.tar") for i in (1, 0, *range(2, 7))]
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("*.tar"):
        path.rename(tmp_path / "moved" / path.name)

    DataLoader(StreamingDataset(tmp_path / "moved"), 4, shuffle=True).load_state_dict(state)
    other = DataLoader(
        StreamingDataset([url.replace("/s-", "/moved/s-") for url in (*urls, urls[0][:-7] + "007.tar")]), 4
    )
    with pytest.raises(
        DataError, match=r"the loader's state is of other data.*same shards in the same order"
    ):
        other.load_state_dict(state)


TRAINED = """
from tenon.data import Splits
from tenon.data.streaming import StreamingDataset

def load(folder):
    def part(name):
        return StreamingDataset(f"{folder}/{name}-*.tar", fields=("npy", "cls"), transform=pair)
    return Splits(train=part("train"), test=part("test"))

def pair(sample):
    return sample[0] / 31, sample[1] % 2
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_tenon_train_reads_shards_and_resumes_on_another_number_of_ranks(tmp_path, numbered):
    numbered(tmp_path, count=31, per_shard=4, name="train-%02d.tar")
    numbered(tmp_path, count=9, per_shard=4, name="test-%02d.tar")
    (tmp_path / "shards_of_mine.py").write_text(
        TRAINED + "\nfrom tenon import nn\n\ndef net():\n    return nn.Sequential(nn.Linear(8, 2).double())\n"
    )
    (tmp_path / "run.toml").write_text(
        f'model = "shards_of_mine:net"\ndata = "shards_of_mine:load"\ndata_options = {{folder = "{tmp_path}"}}\n'
        "epochs = 2\nbatch_size = 5\n[checkpoint]\nsteps = 3\nkeep = 99\n"
    )
    program = "import sys, os; os.chdir(sys.argv.pop(1)); sys.path.insert(0, ''); from tenon.cli import main; main()"

    def train(size, *arguments):
        done = launch(size, ["-c", program, str(tmp_path), "train", *arguments])
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    train(2, "run.toml", "--run", str(tmp_path / "whole"))
    train(2, "run.toml", "--run", str(tmp_path / "part"))
    for path in (tmp_path / "part" / "checkpoints").iterdir():
        if path.name != "step-00000003.safetensors":
            os.unlink(path)
    train(3, "run.toml", "--resume", str(tmp_path / "part"))

    one, other = (
        tenon.load(max((tmp_path / run / "checkpoints").glob("*.safetensors")))["model"]
        for run in ("whole", "part")
    )
    for name, weight in one.items():
        np.testing.assert_allclose(weight.numpy(), other[name].numpy(), rtol=1e-9)
