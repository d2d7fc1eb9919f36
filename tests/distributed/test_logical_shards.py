"""deterministic="world": the same bits on any number of ranks, by every engine, with every size of buckets."""

import copy
import random
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.communication.reduction import ReduceOp, combine
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.replicas.logical_shards import check
from tenon.errors import ArgumentError, CommunicatorError, TenonWarning, UnsupportedError
from tenon.nn.functional import mse_loss
from tenon.nn.parallel import DistributedDataParallel
from tenon.testing.suites.communicator import launch

PROGRAMS = Path(__file__).parent / "programs"
RNG = np.random.default_rng(0)
INPUTS = tenon.from_numpy(RNG.standard_normal((24, 6)).astype(np.float32))
TARGETS = tenon.from_numpy(RNG.standard_normal((24, 3)).astype(np.float32))


@pytest.fixture(autouse=True)
def threads_and_streams_are_left_alone():
    threads, state, python, numpy = (
        tenon.get_num_threads(),
        tenon.get_rng_state(),
        random.getstate(),
        np.random.get_state(),
    )
    yield
    tenon.set_num_threads(threads)
    tenon.set_rng_state(state)
    random.setstate(python)
    np.random.set_state(numpy)


def wrapped(module=None, shards=4, **options):
    tenon.manual_seed(3)
    module = nn.Linear(6, 3) if module is None else module
    return DistributedDataParallel(
        module, process_group=LocalCommunicator(), deterministic="world", shards=shards, **options
    )


def step_of(model, rows=24, step=0):
    for x, y in model.shards(INPUTS[:rows], TARGETS[:rows], step=step):
        model.backward(mse_loss(model(x), y, reduction="sum"), y.numel())
    return model.finish()


@pytest.mark.slow
@pytest.mark.mpi
def test_weights_after_30_steps_are_those_of_1_2_and_4_ranks_by_every_engine_and_with_every_bucket_size():
    program = str(PROGRAMS / "world_digest.py")
    # One rank computes with two threads where nobody tells it not to.
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    alone = launch(1, [program, "shared:25"], **threads)
    two = launch(2, [program, "shared:25", "messages:0.001"])
    four = launch(4, [program, "shared:0.001", "messages:25"])

    for done in (alone, two, four):
        assert done.returncode == 0, done.stderr
    digests = {done.stdout.splitlines()[0] for done in (alone, two, four)}
    assert len(digests) == 1 and len(digests.pop()) == 64
    for done in (two, four):
        noticed = done.stdout.splitlines()[1]
        assert "named 'step 30: 8 samples " in noticed and "named 'step 30: 7 samples " in noticed


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 6, 7, 8])
def test_gradients_are_summed_as_a_tree_over_the_shards(shards):
    model = wrapped(shards=shards)
    plain = nn.Linear(6, 3)
    plain.load_state_dict(model.state_dict())
    gradients = []
    for shard in range(shards):
        part = slice(24 * shard // shards, 24 * (shard + 1) // shards)
        plain.zero_grad()
        mse_loss(plain(INPUTS[part]), TARGETS[part], reduction="sum").backward()
        gradients.append(plain.weight.grad.numpy().copy())
    total = np.empty_like(gradients[0])
    combine(gradients, ReduceOp.SUM, total)

    mean = step_of(model)

    assert (model.module.weight.grad.numpy() == total / np.float32(72)).all()
    loss = mse_loss(plain(INPUTS), TARGETS)
    plain.zero_grad()
    loss.backward()
    assert mean == pytest.approx(loss.item(), rel=1e-6)
    np.testing.assert_allclose(
        model.module.weight.grad.numpy(), plain.weight.grad.numpy(), rtol=1e-4, atol=1e-6
    )


def test_running_statistics_are_the_mean_over_the_shards():
    model = wrapped(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    with tenon.no_grad():
        hidden = [model.module[0](INPUTS[start : start + 6]).numpy() for start in range(0, 24, 6)]

    step_of(model)

    expected = 0.1 * np.mean([part.mean(0) for part in hidden], axis=0)
    np.testing.assert_allclose(model.module[1].running_mean.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert model.module[1].num_batches_tracked.item() == 1


def test_shards_without_samples_do_not_count():
    class Sums(nn.Linear):
        def __init__(self):
            super().__init__(6, 3)
            self.register_buffer("sum", tenon.zeros(6))

        def forward(self, x):
            self.sum += x.detach().sum(0)
            return super().forward(x)

    model = wrapped(Sums())

    step_of(model, rows=2)

    np.testing.assert_allclose(model.module.sum.numpy(), INPUTS[:2].numpy().mean(0), rtol=1e-6)
    assert model.module.weight.grad is not None


def test_shards_without_a_gradient_count_as_zero_and_parameters_that_none_uses_keep_none():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.once, self.never = (nn.Parameter(tenon.ones(3)) for _ in range(3))

        def forward(self, x):
            out = x[:, :3] * self.always
            return out + self.once if (x == INPUTS[7]).all(1).any() else out

    model = wrapped(Branches(), find_unused_parameters=True)
    step_of(model)

    shard = slice(6, 12)
    own = Branches()
    mse_loss(own(INPUTS[shard]), TARGETS[shard], reduction="sum").backward()
    np.testing.assert_allclose(model.module.once.grad.numpy(), own.once.grad.numpy() / 72, rtol=1e-6)
    assert model.module.always.grad is not None and model.module.never.grad is None


def test_random_numbers_follow_from_seed_step_and_shard():
    drawn = []

    class Draws(nn.Linear):
        def forward(self, x):
            drawn.append((tenon.rand(1).item(), random.random(), np.random.rand()))
            return nn.functional.dropout(super().forward(x), 0.5)

    model = wrapped(Draws(6, 3))
    step_of(model, step=5)
    first = model.module.weight.grad.numpy().copy()
    after = tenon.rand(1).item(), random.random(), np.random.rand()
    step_of(model, step=6)
    step_of(model, step=5)
    again = tenon.rand(1).item(), random.random(), np.random.rand()

    assert len(set(drawn)) == 8 and drawn[:4] == drawn[8:]
    assert (model.module.weight.grad.numpy() == first).all()
    assert after == again


def test_a_step_where_nothing_counts_has_no_mean_and_no_gradients():
    model = wrapped()
    for x in model.shards(INPUTS, step=0):
        model.backward(0.0 * model(x).sum(), 0)

    assert model.finish() is None and model.module.weight.grad is None


def test_a_copy_computes_the_same_also_after_somebody_changed_the_number_of_threads():
    model = wrapped(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)))
    step_of(model)
    made = copy.deepcopy(model)
    gradients = []

    for each in (model, made):
        tenon.set_num_threads(2)
        step_of(each, step=1)
        assert tenon.get_num_threads() == 1
        gradients.append(each.module[1].weight.grad.numpy())

    assert (gradients[0] == gradients[1]).all()


@pytest.mark.parametrize(
    ("shards", "ranks", "advice"),
    [(4, 3, "Start 1 or 2 or 4 ranks"), (12, 2, "Start 1 or 3 or 6 or 12 ranks"), (0, 1, "Choose a number")],
)
def test_ranks_that_cannot_hold_whole_branches_are_refused(shards, ranks, advice):
    with pytest.raises(
        CommunicatorError, match=f"shards={shards} cannot be shared by {ranks} ranks.*{advice}"
    ):
        check(shards, ranks, nn.Linear(2, 2))


def test_what_would_depend_on_the_number_of_ranks_is_refused():
    model = wrapped()
    for what in (
        lambda: model.register_comm_hook(None, "bf16"),
        lambda: model.no_sync().__enter__(),
        lambda: model.join_hook(),
        lambda: wrapped(nn.Sequential(nn.Linear(6, 3), nn.SyncBatchNorm(3))),
        lambda: wrapped(nn.Linear(6, 3).bfloat16()),
        lambda: wrapped(nn.Linear(6, 3).to("meta")),
    ):
        with pytest.raises(UnsupportedError, match='deterministic="world"'):
            what()


def test_compiled_functions_are_eager_in_shards():
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
    plain, model = wrapped(copy.deepcopy(net)), wrapped(net)
    compiled = tenon.compile(model.module)
    for _ in range(5):
        compiled(INPUTS[:6])  # a program for shards
    optimizers = [tenon.optim.AdamW(each.parameters(), lr=0.1) for each in (plain, model)]
    steps = optimizers[0].step, tenon.compile(optimizers[1].step)

    with pytest.warns(TenonWarning, match=r"changes parameter '0\.weight' of a model with deterministic"):
        for step in range(6):
            for x, y in plain.shards(INPUTS, TARGETS, step=step):
                plain.backward(mse_loss(plain(x), y, reduction="sum"), y.numel())
            for x, y in model.shards(INPUTS, TARGETS, step=step):
                model.backward(mse_loss(compiled(x), y, reduction="sum"), y.numel())
            assert model.finish() == plain.finish()
            for each in steps:
                each()

    assert compiled.programs and not steps[1].programs
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert one.detach().numpy().tobytes() == other.detach().numpy().tobytes()
    assert not tenon.equal(compiled(INPUTS[:6]), tenon.zeros(6, 3)) and copy.deepcopy(model.module)


def test_buffers_that_differ_between_ranks_are_reported_at_the_first_step():
    def work(communicator):
        net = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
        model = DistributedDataParallel(net, process_group=communicator, deterministic="world")
        net[1].running_var += communicator.rank
        with pytest.raises(CommunicatorError, match=r"different values of buffer '1\.running_var' before"):
            next(model.shards(INPUTS, step=0))

    tenon.manual_seed(0)
    run_ranks(2, work)


def test_a_wrong_order_of_calls_is_reported():
    model = wrapped()
    with pytest.raises(CommunicatorError, match="train in shards"):
        model(INPUTS)
    with pytest.raises(CommunicatorError, match="call backward inside the loop"):
        model.backward(model.module(INPUTS).sum(), 24)
    with pytest.raises(CommunicatorError, match=r"shard 0 ended without model\.backward"):
        for x in model.shards(INPUTS, step=0):
            model(x).sum().backward()
    for x in model.shards(INPUTS, step=0):
        model.backward(model(x).sum(), len(x))
        break
    with pytest.raises(CommunicatorError, match="after 0 of this rank's 4 shards"):
        model.finish()
    for x in model.shards(INPUTS, step=0):
        model.backward(model(x).sum(), len(x))
    with pytest.raises(CommunicatorError, match="the last step lacks its finish"):
        next(model.shards(INPUTS, step=1))
    with pytest.raises(CommunicatorError, match=r"hold \[5, 24\] samples"):
        model.finish()
        next(model.shards(INPUTS, TARGETS[:5], step=1))
    with pytest.raises(ArgumentError, match='must be None or "world"'):
        DistributedDataParallel(nn.Linear(2, 2), process_group=LocalCommunicator(), deterministic="yes")
    with pytest.raises(CommunicatorError, match="is for DistributedDataParallel"):
        DistributedDataParallel(nn.Linear(2, 2), process_group=LocalCommunicator()).finish()
