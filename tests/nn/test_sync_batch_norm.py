"""SyncBatchNorm over ranks against BatchNorm in one process on the whole batch."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import ModuleValueError
from tenon.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.together

PLAIN = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
SHAPES = {2: (3,), 3: (3, 5), 4: (3, 4, 2), 5: (3, 2, 2, 2)}


def samples(count, dims=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (3 + 2 * rng.standard_normal((count, *SHAPES[dims]))).astype(dtype)


def cut(array, counts):
    return np.split(array, np.cumsum(counts)[:-1])


def prepared(layer, dtype="float64"):
    with tenon.no_grad():
        if layer.weight is not None:
            layer.weight.copy_(tenon.tensor([0.5, -1.5, 2.0]))
            if layer.bias is not None:
                layer.bias.copy_(tenon.tensor([1.0, 0.0, -1.0]))
    return layer.to(getattr(tenon, dtype))


def state(layer):
    return {name: buffer.numpy().copy() for name, buffer in layer.named_buffers()}


def passed(layer, x, seeds, steps=1):
    """Output, input gradient, parameter gradients (sums over the batch) and buffers after training steps."""
    for _ in range(steps):
        given = tenon.from_numpy(np.array(x)).requires_grad_()
        layer.zero_grad()
        out = layer(given)
        (out * tenon.from_numpy(seeds)).sum().backward()
    gradients = {name: p.grad.numpy().copy() for name, p in layer.named_parameters()}
    return out.detach().numpy(), given.grad.numpy(), gradients, state(layer)


def over_ranks(counts, options, dims=4, dtype=np.float64, steps=1):
    x, seeds = samples(sum(counts), dims, 0, dtype), samples(sum(counts), dims, 1, dtype)

    def work(communicator):
        layer = prepared(nn.SyncBatchNorm(3, **options), np.dtype(dtype).name)
        rank = communicator.rank
        return passed(layer, cut(x, counts)[rank], cut(seeds, counts)[rank], steps)

    whole = passed(prepared(PLAIN[dims](3, **options), np.dtype(dtype).name), x, seeds, steps)
    return run_ranks(len(counts), work), whole


@pytest.mark.parametrize("counts", [(4, 4), (1, 7), (2, 0), (1, 1), (1, 2, 3), (3, 0, 1, 2)])
@pytest.mark.parametrize("dims", [2, 4])
def test_uneven_batches_give_what_one_process_computes_over_the_whole_batch(counts, dims):
    results, (out, grad, gradients, buffers) = over_ranks(counts, {}, dims)

    close = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(np.concatenate([r[0] for r in results]), out, **close)
    np.testing.assert_allclose(np.concatenate([r[1] for r in results]), grad, **close)
    for name, expected in gradients.items():
        np.testing.assert_allclose(sum(r[2][name] for r in results), expected, **close)
    for result in results:
        for name, expected in buffers.items():
            np.testing.assert_allclose(result[3][name], expected, **close)


@pytest.mark.parametrize("dims", [3, 5])
@pytest.mark.parametrize(
    "options",
    [
        {"affine": False},
        {"bias": False},
        {"momentum": None},
        {"momentum": 0.3, "eps": 0.1},
        {"track_running_stats": False},
    ],
    ids=str,
)
def test_every_option_does_what_it_does_in_batch_norm(dims, options):
    results, (out, grad, gradients, buffers) = over_ranks((2, 3), options, dims, steps=3)

    np.testing.assert_allclose(np.concatenate([r[0] for r in results]), out, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([r[1] for r in results]), grad, rtol=1e-10, atol=1e-12)
    assert results[0][2].keys() == gradients.keys() and results[0][3].keys() == buffers.keys()
    for name, expected in buffers.items():
        np.testing.assert_allclose(results[0][3][name], expected, rtol=1e-10)


def test_float32_statistics_do_not_cancel_far_from_zero():
    x = samples(8, 2, dtype=np.float32) + np.float32(1e4)

    def work(communicator):
        layer = nn.SyncBatchNorm(3)
        return layer(tenon.from_numpy(np.array(x[communicator.rank :: 2]))).detach().numpy()

    exact = (x.astype(np.float64) - x.mean(0, np.float64)) / x.astype(np.float64).std(0)
    for rank, out in enumerate(run_ranks(2, work)):
        np.testing.assert_allclose(out, exact[rank::2], atol=2e-3)


def test_bfloat16_is_normalised_in_float32():
    x = samples(8, 2, dtype=np.float32)

    def work(communicator):
        layer = nn.SyncBatchNorm(3)
        mine = tenon.from_numpy(np.array(x[communicator.rank :: 2])).bfloat16().requires_grad_()
        out = layer(mine)
        out.float().square().sum().backward()
        return out.dtype, out.detach().float().numpy(), mine.grad.dtype

    expected = nn.BatchNorm1d(3)(tenon.from_numpy(x)).detach().numpy()
    for rank, (dtype, out, grad_dtype) in enumerate(run_ranks(2, work)):
        assert dtype == grad_dtype == tenon.bfloat16
        np.testing.assert_allclose(out, expected[rank::2], atol=0.05)


def test_evaluation_uses_the_running_statistics_and_sends_nothing():
    def work(communicator):
        layer = nn.SyncBatchNorm(3).eval()
        if communicator.rank == 0:  # no other rank is needed
            return layer(tenon.ones(1, 3)).tolist()

    assert run_ranks(2, work)[0] == [pytest.approx([1.0] * 3, abs=1e-4)]


def test_one_rank_is_plain_batch_norm_bit_for_bit():
    x = samples(5, dtype=np.float32)

    sync, plain = nn.SyncBatchNorm(3), nn.BatchNorm2d(3)

    assert (sync(tenon.from_numpy(x)) == plain(tenon.from_numpy(x))).all()
    assert (sync.running_var == plain.running_var).all()


def test_groups_normalise_apart():
    x = samples(8)

    def work(communicator):
        group = communicator.split(communicator.rank // 2)
        layer = nn.SyncBatchNorm(3, process_group=group, dtype=tenon.float64)
        return layer(tenon.from_numpy(np.array(cut(x, (2, 2, 2, 2))[communicator.rank]))).detach().numpy()

    results = run_ranks(4, work)

    for half in (0, 1):
        alone = nn.BatchNorm2d(3, dtype=tenon.float64)(tenon.from_numpy(x[4 * half : 4 * half + 4]))
        both = np.concatenate(results[2 * half : 2 * half + 2])
        np.testing.assert_allclose(both, alone.detach().numpy(), rtol=1e-10)


def network():
    tenon.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Sequential(nn.BatchNorm2d(3)), nn.Flatten()
    ).to(tenon.float64)


def test_convert_keeps_parameters_buffers_and_mode():
    plain = network().eval()
    kept = plain[1].weight

    made = nn.SyncBatchNorm.convert_sync_batchnorm(plain)

    assert [type(m).__name__ for m in made.modules()].count("SyncBatchNorm") == 2
    assert made[1].weight is kept and not made[1].training
    assert list(made.state_dict()) == list(network().state_dict())
    assert type(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2, affine=False))) is nn.SyncBatchNorm


def test_a_converted_network_trains_over_ranks_as_one_process_does():
    x = samples(12)

    def train(model, mine, steps=4):
        for _ in range(steps):
            model.zero_grad()
            model(tenon.from_numpy(np.array(mine))).square().sin().mean().backward()
            with tenon.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}

    # Made before the ranks, which are threads and share one stream of random numbers.
    networks = [network() for _ in range(3)]

    def work(communicator):
        converted = nn.SyncBatchNorm.convert_sync_batchnorm(networks[communicator.rank])
        model = DistributedDataParallel(converted)
        return train(model, cut(x, (4, 4, 4))[communicator.rank])

    expected = train(network(), x)
    for result in run_ranks(3, work):
        for name, value in expected.items():
            np.testing.assert_allclose(result[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    "shape,words", [((3,), "expected at least 2D input"), ((2, 0), "input channels should be non-zero")]
)
def test_wrong_inputs_are_refused_as_in_torch(shape, words):
    def work(communicator):
        nn.SyncBatchNorm(shape[-1])(tenon.ones(shape))

    with pytest.raises(ModuleValueError, match=words):
        run_ranks(2, work)


def test_batches_that_are_empty_everywhere_are_refused():
    def work(communicator):
        nn.SyncBatchNorm(3)(tenon.ones(0, 3))

    with pytest.raises(ModuleValueError, match="batches of all ranks are empty"):
        run_ranks(2, work)


def test_a_second_derivative_is_refused():
    def work(communicator):
        layer = nn.SyncBatchNorm(3)
        x = tenon.from_numpy(samples(2, 2, communicator.rank, np.float32)).requires_grad_()
        (g,) = tenon.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()

    run_ranks(2, work)


@pytest.mark.oracle
def test_the_signature_and_the_printed_form_are_torchs():
    import inspect

    torch = pytest.importorskip("torch")

    ours, theirs = nn.SyncBatchNorm, torch.nn.SyncBatchNorm
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert repr(ours(4, eps=0.1)) == repr(theirs(4, eps=0.1))
    torch_state = theirs(3).state_dict()
    assert list(ours(3).state_dict()) == list(torch_state)
