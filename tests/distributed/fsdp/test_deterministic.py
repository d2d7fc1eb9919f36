"""deterministic="world" of ``fully_shard``: the bits of data parallel, on any number of ranks."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.reduction import ReduceOp, combine
from tenon.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from tenon.distributed.replicas.shard_order import ShardOrder, check_order
from tenon.errors import ArgumentError, CommunicatorError, ModuleError, TenonWarning, UnsupportedError
from tenon.nn.functional import mse_loss
from tenon.nn.parallel import DistributedDataParallel
from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parents[1] / "programs"))

from sharded_digest import Net, digest_of

PROGRAM = str(Path(__file__).parents[1] / "programs" / "sharded_digest.py")
INPUTS = torch.from_numpy(np.random.default_rng(0).standard_normal((24, 5)).astype(np.float32))
TARGETS = torch.from_numpy(np.random.default_rng(1).standard_normal((24, 3)).astype(np.float32))


@pytest.fixture(autouse=True)
def threads_and_streams_are_left_alone():
    before = torch.get_num_threads(), torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_num_threads(before[0])
    torch.set_rng_state(before[1])
    random.setstate(before[2])
    np.random.set_state(before[3])


def sharded(module=None, **options):
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)) if module is None else module
    return fully_shard(module, deterministic="world", **options)


def step_of(model, rows=24, step=0):
    for x, y in model.shards(INPUTS[:rows], TARGETS[:rows], step=step):
        model.backward(mse_loss(model(x), y, reduction="sum"), y.numel())
    return model.finish()


def digests(size, *arguments, **variables):
    """What the program prints: the digests by way, one of all ranks."""
    done = launch(size, [PROGRAM, *map(str, arguments)], **variables)
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    assert all(len(line) == 2 for line in found) and len(found) == len(arguments) - 1, done.stdout
    return dict(found)


@pytest.mark.slow
@pytest.mark.mpi
def test_weights_on_two_ranks_are_those_of_data_parallel_on_one():
    alone = digest_of("ddp", 4)

    found = digests(2, 4, "zero2", "zero3")

    assert set(found.values()) == {alone}


@pytest.mark.slow
@pytest.mark.mpi
def test_weights_after_50_steps_are_the_same_in_all_ways_and_on_1_2_4_and_8_ranks():
    ways = "ddp", "zero1", "zero2", "zero3", "hybrid", "wrapper", "wrapper-ddp", "compiled", "compiled-zero3"
    # One rank computes with two threads where nobody tells it not to.
    alone = digests(1, 50, *ways, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    two = digests(2, 50, *ways)
    four = digests(
        4, 50, "zero1", "zero2", "zero3", "hybrid", "wrapper", "pairs", "axis", "offload", "compiled"
    )
    eight = digests(8, 50, "ddp", "zero3", "hybrid", "compiled", "compiled-zero3")

    assert len({digest for found in (alone, two, four, eight) for digest in found.values()}) == 1


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    "variables", [{"TENON_COMMUNICATOR": "mpi-messages"}, {"TENON_MPI_NODES": "2"}], ids=["messages", "nodes"]
)
def test_engines_give_the_same_weights(variables):
    alone = digest_of("ddp", 20)

    found = digests(4, 20, "zero2", "zero3", "hybrid", **variables)

    assert set(found.values()) == {alone}


@pytest.mark.slow
@pytest.mark.mpi
def test_recomputed_and_mixed_precision_training_has_one_digest_on_any_number_of_ranks():
    alone, two, four = (digests(size, 20, "recompute-ddp", "recompute", "mixed") for size in (1, 2, 4))

    assert alone == two == four
    assert alone["recompute"] == alone["recompute-ddp"] != alone["mixed"]


@pytest.mark.slow
@pytest.mark.mpi
def test_with_tensor_parallel_the_number_of_data_parallel_ranks_has_no_effect():
    found = [digests(size, 20, "tensor")["tensor"] for size in (2, 4, 8)]

    assert len(set(found)) == 1


@pytest.mark.slow
@pytest.mark.mpi
def test_a_checkpoint_of_one_way_is_resumed_in_another_on_another_number_of_ranks(tmp_path):
    def run(size, *arguments):
        program = Path(PROGRAM).with_name("resumed_digest.py")
        done = launch(size, [str(program), *map(str, arguments)])
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[1]

    folder = tmp_path / "saved"
    expected = run(1, "ddp", 0, 20)
    run(2, "zero3", 0, 10, "--save", folder)

    assert run(4, "zero3", 10, 20, "--load", folder) == expected
    assert run(2, "ddp", 10, 20, "--load", folder) == expected


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 6, 7, 8])
def test_gradients_and_means_are_those_of_data_parallel_for_every_number_of_shards(shards):
    torch.manual_seed(3)
    layers = nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)
    plain = DistributedDataParallel(nn.Sequential(*layers), deterministic="world", shards=shards)
    model = sharded(shards=shards)

    assert step_of(model) == step_of(plain)

    for (name, own), (_, expected) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        assert (own.grad.full_tensor().numpy() == expected.grad.numpy()).all(), name


@pytest.mark.parametrize(
    ("shards", "replicas", "within"),
    [(8, 1, 1), (8, 1, 4), (12, 1, 4), (12, 1, 12), (12, 3, 1), (8, 2, 2), (16, 2, 4), (8, 4, 1), (6, 1, 2)],
)
def test_ranks_of_every_mesh_compute_branches_of_one_tree(shards, replicas, within):
    class Place:
        def __init__(self, rank, size):
            self.rank, self.size = rank, size

    values = [np.float32([10.0**i, 0.1 * i]) for i in np.random.default_rng(2).uniform(-3, 3, shards)]
    branches, seen = [], []
    for replica in range(replicas):
        orders = [ShardOrder(shards, Place(replica, replicas), Place(r, within)) for r in range(within)]
        seen += [number for order in orders for number in order.numbers]
        rounds = []
        for numbers in zip(*(order.numbers for order in orders), strict=True):
            combine([values[number] for number in numbers], ReduceOp.SUM, total := np.empty(2, np.float32))
            rounds.append(total)
        combine(rounds, ReduceOp.SUM, branch := np.empty(2, np.float32))
        branches.append(branch)
    combine(branches, ReduceOp.SUM, found := np.empty(2, np.float32))
    combine(values, ReduceOp.SUM, expected := np.empty(2, np.float32))

    assert sorted(seen) == list(range(shards))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("shards", "replicas", "within", "text"),
    [
        (12, 1, 3, "has to be 12, or a power of two that divides it. Start 1 or 2 or 4 or 12 ranks"),
        (4, 1, 8, "shared by 8 ranks.*Start 1 or 2 or 4 ranks"),
        (12, 2, 2, "shared by 2 replicas of 2 ranks"),
        (0, 1, 2, "Choose a number of shards"),
    ],
)
def test_ranks_that_cannot_hold_whole_branches_are_refused(shards, replicas, within, text):
    with pytest.raises(CommunicatorError, match=f"shards={shards} cannot be .*{text}"):
        check_order(shards, replicas, within)


def test_only_the_outermost_call_takes_the_option_or_all_do():
    inner = Net()
    for block in inner.blocks:
        fully_shard(block, deterministic="world")
    with pytest.raises(ArgumentError, match=r"module 'blocks\.0' has deterministic=\"world\", and this call"):
        fully_shard(inner)
    model = sharded(inner)

    assert step_of(model) > 0
    with pytest.raises(ModuleError, match="part of another fully_shard module with this option"):
        next(model.blocks[0].shards(INPUTS, step=1))
    with pytest.raises(ArgumentError, match="not for a list of 2 modules"):
        fully_shard([nn.Linear(2, 2), nn.Linear(2, 2)], deterministic="world")
    with pytest.raises(ArgumentError, match='must be None or "world"'):
        fully_shard(nn.Linear(2, 2), deterministic="yes")
    with pytest.raises(ArgumentError, match="has been sharded before"):
        FullyShardedDataParallel(fully_shard(nn.Linear(2, 2)), deterministic="world")


def test_what_would_depend_on_the_number_of_ranks_is_refused():
    model = sharded()
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    partial, other = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)), nn.Sequential(nn.Linear(5, 3))
    divided = nn.Sequential(fully_shard(nn.Linear(5, 3)))
    divided[0].set_gradient_divide_factor(2.0)
    fully_shard(other[0], mesh=init_device_mesh("cpu", (1, 1)))
    wrapped = FullyShardedDataParallel(nn.Linear(5, 3), deterministic="world")
    for what in (
        lambda: model.set_requires_gradient_sync(False),
        lambda: model.set_requires_all_reduce(False),
        lambda: model.set_gradient_divide_factor(2.0),
        lambda: model.set_all_reduce_hook(print),
        lambda: wrapped.no_sync().__enter__(),
        lambda: sharded(divided),
        lambda: sharded(nn.Sequential(nn.Linear(5, 3), nn.SyncBatchNorm(3))),
        lambda: sharded(mp_policy=half),
        lambda: sharded(nn.Linear(5, 3).bfloat16()),
        lambda: step_of(sharded(partial, ignored_params=set(partial[0].parameters()))),
    ):
        with pytest.raises(UnsupportedError, match='deterministic="world"'):
            what()
    with pytest.raises(ArgumentError, match="Pass the same mesh in each fully_shard call"):
        sharded(other)


def test_gradients_that_do_not_come_from_one_backward_pass_of_the_forward_are_refused():
    model = sharded()
    with pytest.raises(CommunicatorError, match=r"model\.backward was called before in this shard"):
        for x in model.shards(INPUTS, step=0):
            model.backward(model(x).sum(), len(x))
            model.backward(model(x).sum(), len(x))
    with pytest.raises(CommunicatorError, match="were complete, and more followed in the same shard"):
        for x in model.shards(INPUTS, step=0):
            model(x).sum().backward()
            model.backward(model(x).sum(), len(x))
    with pytest.raises(UnsupportedError, match=r"'0\.weight' has a gradient of its shard"):
        for x in model.shards(INPUTS, step=0):
            penalty = model[0].weight.pow(2).sum()
            model.backward(model(x).sum(), len(x))
            penalty.full_tensor().backward()
    assert step_of(model) > 0


def test_a_wrong_order_of_calls_is_reported():
    model = sharded()
    with pytest.raises(CommunicatorError, match="train in shards"):
        model(INPUTS)
    with torch.no_grad():
        assert model(INPUTS).shape == (24, 3)
    assert model.eval()(INPUTS).shape == (24, 3)
    model.train()
    with pytest.raises(CommunicatorError, match=r"step 7 has 3 samples for 4 shards.*Leave the batch out"):
        step_of(model, rows=3, step=7)
    outer = fully_shard(nn.Sequential(nn.Linear(5, 5), nn.Sequential(nn.Linear(5, 3))), shards=4)
    with pytest.raises(AttributeError, match="shards"):
        step_of(outer)


def test_a_step_where_nothing_counts_has_no_mean_and_no_gradients():
    model = sharded()
    for x in model.shards(INPUTS, step=0):
        model.backward(0.0 * model(x).sum(), 0)

    assert model.finish() is None and model[0].weight.grad is None


def test_a_compiled_optimizer_step_is_eager_and_says_why():
    models = sharded(), sharded()
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
    steps = optimizers[0].step, torch.compile(optimizers[1].step)
    with pytest.warns(TenonWarning, match="AdamW runs eagerly: a DTensor is used at .*test_deterministic"):
        for number in range(4):
            for model, step in zip(models, steps, strict=True):
                step_of(model, step=number)
                step()

    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert (one.full_tensor() == other.full_tensor()).all()


def test_slices_of_a_deterministic_container_are_plain_modules_of_its_class():
    assert type(sharded()[:2]) is nn.Sequential


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf")])
def test_norms_are_those_of_whole_gradients(order):
    model = sharded()
    step_of(model)
    whole = [torch.nn.Parameter(p.grad.full_tensor()) for p in model.parameters()]

    found = nn.utils.get_total_norm([p.grad for p in model.parameters()], order)

    assert found.full_tensor().item() == nn.utils.get_total_norm(whole, order).item()
