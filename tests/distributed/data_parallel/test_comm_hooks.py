"""Communication hooks: what they see, what they return, and the compression that is built in."""

import pickle
import types

import numpy as np
import pytest

import tenon
from tenon.distributed.algorithms.ddp_comm_hooks import default_hooks
from tenon.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.replicas.comm_hooks import GradBucket
from tenon.errors import CommunicatorError, PluginNotFoundError
from tenon.extend import hookimpl
from tenon.futures import Future
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel
from tenon.plugins.manager import host

pytestmark = pytest.mark.together


class Weights(Module):
    """A matrix, a vector, and a gradient that the test decides."""

    def __init__(self, rows=24, columns=16):
        super().__init__()
        self.matrix = Parameter(tenon.zeros(rows, columns))
        self.vector = Parameter(tenon.zeros(5))

    def forward(self, matrix, vector):
        return (self.matrix * matrix).sum() + (self.vector * vector).sum()


def gradients_for(rank, rows=24, columns=16, step=0):
    rng = np.random.default_rng(100 * step + rank)
    left, right = rng.standard_normal((rows, 2)), rng.standard_normal((2, columns))
    return (left @ right).astype(np.float32), rng.standard_normal(5).astype(np.float32)


def mean_gradients(size, step=0):
    found = [gradients_for(rank, step=step) for rank in range(size)]
    return [np.mean([f[i] for f in found], axis=0) for i in (0, 1)]


def backward(model, rank, step=0):
    model.zero_grad()
    model(*map(tenon.from_numpy, gradients_for(rank, step=step))).backward()
    return model.module.matrix.grad.numpy().copy(), model.module.vector.grad.numpy().copy()


def run_hook(hook, state=None, size=2, steps=1):
    def work(communicator):
        model = DistributedDataParallel(Weights())
        model.register_comm_hook(state(communicator) if callable(state) else state, hook)
        return [backward(model, communicator.rank, step) for step in range(steps)]

    return run_ranks(size, work)


@pytest.mark.parametrize(
    "hook,tolerance",
    [
        ("allreduce", 0),
        ("bf16", 2**-8),
        ("fp16", 2**-11),
        (default_hooks.allreduce_hook, 0),
        (default_hooks.bf16_compress_hook, 2**-8),
        (default_hooks.fp16_compress_hook, 2**-11),
        (default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook), 2**-8),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 2**-11),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_built_in_hooks_give_the_mean_to_the_precision_of_what_they_send(hook, tolerance, size):
    results = run_hook(hook, size=size)

    largest = max(abs(g).max() for rank in range(size) for g in gradients_for(rank))
    for result in results:
        for got, expected in zip(result[0], mean_gradients(size), strict=True):
            assert abs(got - expected).max() <= 2 * largest * tolerance + 1e-6
        assert all((a == b).all() for a, b in zip(result[0], results[0][0], strict=True))


def test_sixteen_bit_hooks_do_send_sixteen_bits():
    sent = []

    def spy(state, bucket):
        sent.append((bucket.buffer().dtype, [g.dtype for g in bucket.gradients()]))
        return default_hooks.allreduce_hook(state, bucket)

    run_hook(default_hooks.bf16_compress_wrapper(spy))

    assert sent == [(tenon.bfloat16, [tenon.bfloat16] * 2)] * 2


def test_a_hook_sees_the_bucket_and_what_it_returns_becomes_the_gradient():
    seen = []

    def hook(state, bucket: GradBucket):
        shapes = [tuple(g.shape) for g in bucket.gradients()]
        same = [p.shape == g.shape for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True)]
        seen.append((state, bucket.index(), bucket.is_last(), shapes, same))
        future = Future()
        future.set_result(bucket.buffer() * 0 + 7)
        return future.then(lambda done: done.value() + 1)

    for matrix, vector in run_hook(hook, state="mine", size=1)[0]:
        assert (matrix == 8).all() and (vector == 8).all()

    assert seen == [("mine", 0, True, [(5,), (24, 16)], [True, True])]


def test_a_hook_written_for_torch_runs():
    def half_of_it(group, bucket: GradBucket) -> Future[tenon.Tensor]:
        group = tenon.distributed.group.WORLD if group is None else group
        size = tenon.distributed.get_world_size(group)
        compressed = bucket.buffer().to(tenon.float16).div_(size)
        future = tenon.distributed.all_reduce(compressed, group=group, async_op=True).get_future()

        def decompress(future):
            buffer = bucket.buffer()
            buffer.copy_(future.value()[0])
            return buffer

        return future.then(decompress)

    for result in run_hook(half_of_it):
        for got, expected in zip(result[0], mean_gradients(2), strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


def test_hooks_run_for_every_bucket_in_order():
    indices = []

    def work(communicator):
        model = DistributedDataParallel(Weights(), bucket_cap_mb=1e-5)

        def hook(state, bucket):
            if communicator.rank == 0:
                indices.append((bucket.index(), bucket.is_last()))
            return default_hooks.allreduce_hook(None, bucket)

        model.register_comm_hook(None, hook)
        backward(model, communicator.rank)

    run_ranks(2, work)

    assert indices == [(0, False), (1, True)]


@pytest.mark.parametrize(
    "hook,error,words",
    [
        (3, TypeError, "must be callable"),
        ("no_such_hook", PluginNotFoundError, "powersgd"),
        (lambda state, bucket: 5, CommunicatorError, "returned 5"),
        (lambda state, bucket: tenon.ones(3), CommunicatorError, "Return a tensor like"),
        ("powersgd", CommunicatorError, "PowerSGDState"),
    ],
)
def test_what_is_not_a_hook_is_refused(hook, error, words):
    with pytest.raises(error, match=words):
        run_hook(hook, size=1)


def test_a_wrong_annotation_is_refused_as_in_torch():
    def hook(state, bucket: int):
        return bucket

    with pytest.raises(ValueError, match=r"bucket annotation should be dist\.GradBucket"):
        DistributedDataParallel(Weights()).register_comm_hook(None, hook)


def test_a_second_hook_is_refused():
    model = DistributedDataParallel(Weights())
    model.register_comm_hook(None, "bf16")

    with pytest.raises(CommunicatorError, match="can only be called once"):
        model.register_comm_hook(None, "bf16")


def sign_hook(state, bucket):
    """Majority vote: what a plugin's author might write."""
    votes = bucket.buffer().sign()
    tenon.distributed.all_reduce(votes)
    return votes.sign()


def test_a_plugin_offers_a_hook_by_name():
    module = types.ModuleType("tenon_votes")
    module.sign_hook = sign_hook

    @hookimpl
    def tenon_comm_hooks():
        return {"majority": f"{__name__}:sign_hook"}

    module.tenon_comm_hooks = tenon_comm_hooks
    host().register(module, "tenon_votes")
    try:
        results = run_hook("majority", size=3)
    finally:
        host().unregister("tenon_votes")

    expected = np.sign(sum(np.sign(gradients_for(rank)[0]) for rank in range(3)))
    for result in results:
        assert (result[0][0] == expected).all()


def power_state(**options):
    return lambda communicator: powerSGD.PowerSGDState(communicator, start_powerSGD_iter=2, **options)


def test_power_sgd_is_plain_until_it_starts_and_then_exact_for_matrices_of_its_rank():
    # Each rank's gradient has rank 2, their mean rank 4: a rank-4 approximation loses nothing.
    state = power_state(matrix_approximation_rank=4, min_compression_rate=1)
    results = run_hook(powerSGD.powerSGD_hook, state, steps=4)

    for step in range(4):
        expected = mean_gradients(2, step)
        for result in results:
            for got, mean in zip(result[step], expected, strict=True):
                np.testing.assert_allclose(got, mean, rtol=1e-4, atol=1e-5)
        assert (results[0][step][0] == results[1][step][0]).all()


def test_power_sgd_compresses_and_counts_what_it_sent():
    states = {}

    def state(communicator):
        made = powerSGD.PowerSGDState(communicator, start_powerSGD_iter=2)
        return states.setdefault(communicator.rank, made)

    results = run_hook("powersgd", state, steps=3)

    assert np.linalg.matrix_rank(results[0][2][0], tol=1e-4) == 1
    np.testing.assert_allclose(results[0][2][1], mean_gradients(2, 2)[1], rtol=1e-5)
    rate, before, after = states[0].compression_stats()
    assert after == 24 + 16 + 5 and before >= 24 * 16 + 5
    assert rate == before / after


@pytest.mark.parametrize("hook", ["powersgd", "batched_powersgd"])
def test_error_feedback_makes_up_for_what_compression_leaves_out(hook):
    """The same gradient again and again: the sum of what was applied approaches the sum of the gradients."""

    def work(communicator, feedback):
        model = DistributedDataParallel(Weights())
        state = powerSGD.PowerSGDState(communicator, start_powerSGD_iter=2, use_error_feedback=feedback)
        model.register_comm_hook(state, hook)
        applied = [backward(model, communicator.rank)[0] for _ in range(42)][2:]
        return np.mean(applied, axis=0)

    expected = mean_gradients(2)[0]
    error = {
        feedback: abs(run_ranks(2, work, feedback)[0] - expected).max() / abs(expected).max()
        for feedback in (True, False)
    }

    assert error[True] < 0.5 * error[False]


def test_warm_start_finds_the_directions_that_a_random_start_misses():
    """A rank-1 approximation of one fixed matrix: power iteration goes on from step to step."""

    def work(communicator, warm):
        model = DistributedDataParallel(Weights())
        state = powerSGD.PowerSGDState(
            communicator, start_powerSGD_iter=2, use_error_feedback=False, warm_start=warm
        )
        model.register_comm_hook(state, "powersgd")
        return [backward(model, communicator.rank)[0] for _ in range(12)][-1]

    expected = mean_gradients(2)[0]
    best = np.linalg.svd(expected)[1][1:]
    missed = {warm: np.linalg.norm(run_ranks(2, work, warm)[0] - expected) for warm in (True, False)}

    assert missed[True] == pytest.approx(np.linalg.norm(best), rel=1e-2)
    assert missed[False] > missed[True]


def test_gram_schmidt_replaces_qr():
    state = power_state(matrix_approximation_rank=4, min_compression_rate=1, orthogonalization_epsilon=1e-12)

    results = run_hook(powerSGD.powerSGD_hook, state, steps=3)

    np.testing.assert_allclose(results[0][2][0], mean_gradients(2, 2)[0], rtol=1e-3, atol=1e-4)


def test_a_state_survives_pickling_without_its_group():
    state = powerSGD.PowerSGDState(None, matrix_approximation_rank=3)
    state.iter = 5

    copied = pickle.loads(pickle.dumps(state))

    assert (copied.iter, copied.matrix_approximation_rank, copied.process_group) == (5, 3, None)


@pytest.mark.oracle
def test_the_state_takes_torchs_arguments():
    import inspect

    pytest.importorskip("torch")
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState as theirs

    assert list(inspect.signature(powerSGD.PowerSGDState.__init__).parameters) == list(
        inspect.signature(theirs.__init__).parameters
    )
    for options in ({"start_powerSGD_iter": 1}, {"start_powerSGD_iter": 0, "use_error_feedback": False}):
        for cls in (powerSGD.PowerSGDState, theirs):
            with pytest.raises(ValueError, match="start_powerSGD_iter"):
                cls(None, **options)
