"""Data parallel over threads: the mean over ranks, whatever each rank's batch and branches did."""

import copy
import warnings

import numpy as np
import pytest

import tenon
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.errors import (
    CollectiveMismatchError,
    CommunicatorError,
    ModuleError,
    ShapeError,
    TenonWarning,
    UnsupportedError,
)
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel


class Affine(Module):
    def __init__(self, inputs=3, outputs=2, seed=0, dtype="float32"):
        super().__init__()
        rng = np.random.default_rng(seed)
        self.weight = Parameter(tenon.tensor(rng.standard_normal((inputs, outputs)).astype(dtype)))
        self.bias = Parameter(tenon.tensor(rng.standard_normal(outputs).astype(dtype)))

    def forward(self, x):
        return x @ self.weight + self.bias


class Model(Module):
    """Two layers, a spare one that only a flag uses, and a buffer."""

    def __init__(self, seed=0):
        super().__init__()
        self.first = Affine(3, 4, seed)
        self.second = Affine(4, 2, seed + 1)
        self.spare = Affine(2, 2, seed + 2)
        self.register_buffer("calls", tenon.zeros(1))

    def forward(self, x, use_spare=True):
        with tenon.no_grad():
            self.calls += 1
        y = self.second(self.first(x) * self.first(x))
        return self.spare(y) if use_spare else y


DATA = np.random.default_rng(7).standard_normal((12, 3)).astype(np.float32)


def batch(rank, size):
    return tenon.tensor(DATA[rank::size])


def gradients(module):
    return {name: p.grad.numpy().copy() for name, p in module.named_parameters() if p.grad is not None}


def whole_batch_gradients(use_spare=True):
    model = Model()
    model(tenon.tensor(DATA), use_spare).square().mean().backward()
    return gradients(model)


def assert_close(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("cap", [None, 1e-5])
def test_gradients_are_those_of_the_whole_batch(size, cap):
    def work(communicator):
        model = DistributedDataParallel(Model(seed=communicator.rank * 10), bucket_cap_mb=cap)
        model(batch(communicator.rank, size)).square().mean().backward()
        return gradients(model.module)

    results = run_ranks(size, work)

    for result in results:
        assert_close(result, whole_batch_gradients())
        assert all((result[name] == results[0][name]).all() for name in result)


def test_construction_copies_parameters_and_buffers_of_rank_0():
    def work(communicator):
        model = Model(seed=communicator.rank)
        model.calls += communicator.rank
        model.first.bias.requires_grad_(False)
        DistributedDataParallel(model)
        return {name: value.numpy().copy() for name, value in model.state_dict().items()}

    first, second = run_ranks(2, work)

    assert all((first[name] == second[name]).all() for name in first)


def test_buffers_follow_rank_0_while_training_only():
    def work(communicator):
        model = DistributedDataParallel(Model())
        x = batch(communicator.rank, 2)
        model.module.calls += 100 * communicator.rank
        model(x)
        training = model.module.calls.item()
        model.eval()
        model.module.calls += 100 * communicator.rank
        model(x)
        return training, model.module.calls.item()

    assert run_ranks(2, work) == [(1, 2), (1, 102)]


def test_buffers_can_be_left_alone():
    def work(communicator):
        model = DistributedDataParallel(Model(), forward_sync_buffers=False)
        model.module.calls += 100 * communicator.rank
        model(batch(communicator.rank, 2))
        return model.module.calls.item()

    assert run_ranks(2, work) == [1, 101]


def test_the_older_option_of_buffers_leaves_them_from_the_start():
    def work(communicator):
        seen = []
        for options in (
            {"broadcast_buffers": False},
            {"broadcast_buffers": False, "forward_sync_buffers": True},
        ):
            plain = Model()
            plain.calls += 100 * communicator.rank
            model = DistributedDataParallel(plain, **options)
            assert model.broadcast_buffers is model.forward_sync_buffers is (len(options) == 2)
            seen.append(plain.calls.item())
        return seen

    with pytest.warns(FutureWarning, match="broadcast_buffers"):
        assert run_ranks(2, work) == [[0, 0], [100, 0]]


def test_ignored_layers_may_differ_between_ranks():
    def work(communicator):
        plain = tenon.nn.Sequential(tenon.nn.Linear(2, 2), tenon.nn.Linear(2, 3 + communicator.rank))
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(plain, ["1.weight", "1.bias"])
        model = DistributedDataParallel(plain)
        model(tenon.full((1, 2), float(communicator.rank))).sum().backward()
        with pytest.raises(RuntimeError, match="before training loop starts"):
            model._set_static_graph()
        return plain[0].bias.shape, plain[1].weight.shape

    assert run_ranks(2, work) == [((2,), (3, 2)), ((2,), (4, 2))]


def test_no_sync_adds_up_locally_and_the_next_backward_averages_the_sums():
    def work(communicator):
        model = DistributedDataParallel(Model())
        with model.no_sync():
            model(batch(communicator.rank, 4)).square().mean().backward()
        local = gradients(model.module)
        model(batch(communicator.rank + 2, 4)).square().mean().backward()
        return local, gradients(model.module)

    (local, total), (other_local, other_total) = run_ranks(2, work)

    assert not np.allclose(local["first.weight"], other_local["first.weight"])
    assert_close(total, {name: 2 * value for name, value in whole_batch_gradients().items()})
    assert_close(other_total, total)


def test_a_parameter_that_some_ranks_leave_unused_counts_as_zero_there_with_one_warning():
    def work(communicator):
        model = DistributedDataParallel(Model())
        for _ in range(3):
            model.zero_grad()
            model(batch(communicator.rank, 2), use_spare=communicator.rank == 0).square().mean().backward()
        return gradients(model.module)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = run_ranks(2, work)
    alone = Model()
    alone(batch(0, 2)).square().mean().backward()

    messages = [str(w.message) for w in caught if issubclass(w.category, TenonWarning)]
    assert len(messages) == 1
    assert "spare.weight, spare.bias" in messages[0]
    np.testing.assert_allclose(first["spare.weight"], gradients(alone)["spare.weight"] / 2, rtol=1e-5)
    assert_close(first, second)


def test_a_parameter_that_no_rank_uses_keeps_no_gradient():
    def work(communicator):
        model = DistributedDataParallel(Model())
        model(batch(communicator.rank, 2), use_spare=False).square().mean().backward()
        return model.module.spare.weight.grad, gradients(model.module)

    with pytest.warns(TenonWarning, match=r"spare\.weight, spare\.bias"):
        results = run_ranks(2, work)
    for spare, result in results:
        assert spare is None
        assert_close(result, whole_batch_gradients(use_spare=False))


def test_a_backward_that_fails_midway_does_not_leak_into_the_next():
    def work(communicator):
        model = DistributedDataParallel(Model())
        x = batch(communicator.rank, 2)
        loss = model(x).square().mean()
        handle = model.module.first.weight.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        handle.remove()
        model.zero_grad()
        model(x).square().mean().backward()
        return gradients(model.module)

    for result in run_ranks(2, work):
        assert_close(result, whole_batch_gradients())


def test_different_models_raise_on_all_ranks_and_name_what_differs():
    seen = []

    def work(communicator):
        model = Model()
        if communicator.rank == 1:
            model.spare = Affine(2, 5)
            model.extra = Parameter(tenon.zeros(3))
        try:
            DistributedDataParallel(model)
        except CollectiveMismatchError as error:
            seen.append(str(error))
            raise

    with pytest.raises(CollectiveMismatchError):
        run_ranks(3, work)
    assert len(seen) == 3
    for text in seen:
        assert "rank 1 against rank 0" in text
        assert "'extra: torch.float32[3]'" in text
        assert "'spare.weight: torch.float32[2, 5]'" in text and "'spare.weight: torch.float32[2, 2]'" in text


@pytest.mark.parametrize("difference", ["order", "cap", "frozen"])
def test_other_differences_between_ranks_are_named(difference):
    def work(communicator):
        model = Module()
        names = ["a", "b"]
        if difference == "order" and communicator.rank == 1:
            names.reverse()
        for name in names:
            model.register_parameter(name, Parameter(tenon.zeros(2)))
        if difference == "frozen" and communicator.rank == 1:
            model.a.requires_grad_(False)
        cap = 3.0 if difference == "cap" and communicator.rank == 1 else 25.0
        DistributedDataParallel(model, bucket_cap_mb=cap)

    words = {"order": "the order 'b: ", "cap": "bucket_cap_mb=3", "frozen": "a: .* frozen"}[difference]
    with pytest.raises(CollectiveMismatchError, match=words):
        run_ranks(2, work)


def test_mixed_dtypes_get_buckets_of_their_own():
    def work(communicator):
        model = Module()
        for name, dtype in [
            ("a", tenon.float32),
            ("b", tenon.float64),
            ("c", tenon.bfloat16),
            ("d", tenon.float32),
        ]:
            model.register_parameter(name, Parameter(tenon.ones(2, dtype=dtype)))
        synchronizer = GradientSynchronizer(model.named_parameters())
        for parameter in model.parameters():
            parameter.grad = tenon.full((2,), communicator.rank + 1.0, dtype=parameter.dtype)
        synchronizer.synchronize()
        return len(synchronizer.buckets), [(p.grad.dtype, p.grad.tolist()) for p in model.parameters()]

    dtypes = [tenon.float32, tenon.float64, tenon.bfloat16, tenon.float32]
    for buckets, found in run_ranks(2, work):
        assert buckets == 3
        assert found == [(dtype, [1.5, 1.5]) for dtype in dtypes]


def test_averaged_gradients_show_their_bucket_and_who_keeps_one_keeps_its_values():
    def work(communicator):
        model = Module()
        for name in ("small", "large", "unused_here", "unused"):
            model.register_parameter(name, Parameter(tenon.zeros(3 if name == "small" else 100_000)))
        synchronizer = GradientSynchronizer(model.named_parameters())
        for step in range(4):
            model.zero_grad()
            for parameter in (model.small, model.large):
                parameter.grad = tenon.full(parameter.shape, communicator.rank + 1.0 + step)
            if communicator.rank == 0:
                model.unused_here.grad = tenon.ones(100_000)
            synchronizer.synchronize()
            flat = synchronizer.buckets[0].flat
            assert np.shares_memory(flat, model.large.grad.numpy())
            if step == 0:
                first = flat
            if step == 1:
                assert flat is first
                kept, part = model.small.grad, model.large.grad[5:7]
        assert (kept.tolist(), part.tolist()) == ([2.5] * 3, [2.5] * 2)
        model.small.grad.add_(1)
        model.small.grad += communicator.rank
        synchronizer.synchronize()
        assert model.unused.grad is None
        named = (model.small, model.large, model.unused_here)
        return len(synchronizer.buckets), [set(parameter.grad.tolist()) for parameter in named]

    with pytest.warns(TenonWarning, match="unused_here, unused"):
        results = run_ranks(2, work)
    assert results == [(1, [{6.0}, {4.5}, {0.5}])] * 2


def test_weights_make_uneven_batches_count_every_sample_once():
    def work(communicator):
        rows = DATA[:3] if communicator.rank == 0 else DATA[3:]
        model = Model()
        synchronizer = GradientSynchronizer(model.named_parameters())
        model(tenon.tensor(rows)).square().mean().backward()
        synchronizer.synchronize(weight=len(rows))
        return gradients(model)

    for result in run_ranks(2, work):
        assert_close(result, whole_batch_gradients())


def test_a_rank_without_samples_takes_part_with_weight_zero():
    def work(communicator):
        model = Model()
        synchronizer = GradientSynchronizer(model.named_parameters())
        if communicator.rank == 0:
            model(tenon.tensor(DATA)).square().mean().backward()
        synchronizer.synchronize(weight=12 if communicator.rank == 0 else 0)
        return gradients(model)

    for result in run_ranks(3, work):
        assert_close(result, whole_batch_gradients())


@pytest.mark.parametrize("weight", [-1.0, float("nan"), 0.0])
def test_impossible_weights_are_refused(weight):
    def work(communicator):
        synchronizer = GradientSynchronizer(Model().named_parameters())
        synchronizer.synchronize(weight=weight)

    with pytest.raises(CommunicatorError, match="weight"):
        run_ranks(2, work)


def test_state_dict_has_the_keys_of_the_unwrapped_model():
    wrapped = DistributedDataParallel(Model(seed=1))

    assert list(wrapped.state_dict()) == list(Model().state_dict())
    assert next(name for name, _ in wrapped.named_parameters()) == "module.first.weight"


@pytest.mark.parametrize("prefix", ["", "module."])
def test_both_forms_of_state_dict_load(prefix):
    source = Model(seed=5)
    state = {prefix + key: value for key, value in source.state_dict().items()}
    wrapped = DistributedDataParallel(Model(seed=6))

    result = wrapped.load_state_dict(state)

    assert str(result) == "<All keys matched successfully>"
    assert (wrapped.module.first.weight == source.first.weight).all()


@pytest.mark.parametrize("prefix", ["", "module."])
def test_both_forms_load_inside_another_module(prefix):
    outer = Module()
    outer.net = DistributedDataParallel(Model(seed=6))
    source = Model(seed=5)
    state = {f"net.{prefix}{key}": value for key, value in source.state_dict().items()}

    outer.load_state_dict(state)

    assert list(outer.state_dict()) == [f"net.{key}" for key in source.state_dict()]
    assert (outer.net.module.first.weight == source.first.weight).all()


def test_a_model_with_a_child_called_module_round_trips():
    inner = Module()
    inner.module = Affine(seed=1)
    wrapped = DistributedDataParallel(inner)
    other = Module()
    other.module = Affine(seed=2)

    wrapped.load_state_dict(other.state_dict())

    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert (inner.module.weight == other.module.weight).all()


def test_a_state_dict_that_does_not_fit_changes_nothing():
    wrapped = DistributedDataParallel(Model(seed=1))
    before = wrapped.module.first.weight.detach().numpy().copy()
    state = Model(seed=2).state_dict()
    state["spare.bias"] = tenon.zeros(9)

    with pytest.raises((RuntimeError, ShapeError), match=r"spare\.bias"):
        wrapped.load_state_dict(state)
    assert (wrapped.module.first.weight.detach().numpy() == before).all()


def test_a_deep_copy_averages_its_own_gradients():
    def work(communicator):
        model = DistributedDataParallel(Model()).eval()
        twin = copy.deepcopy(model)
        assert not twin.training
        twin(batch(communicator.rank, 2)).square().mean().backward()
        return gradients(model.module), gradients(twin.module)

    for original, twin in run_ranks(2, work):
        assert original == {}
        assert_close(twin, whole_batch_gradients())


def test_a_model_without_trainable_parameters_is_refused_as_in_torch():
    model = Affine().requires_grad_(False)

    with pytest.raises(ModuleError, match="is not needed when a module doesn't have any parameter that"):
        DistributedDataParallel(model)


def test_options_without_a_meaning_here_are_refused():
    with pytest.raises(UnsupportedError, match="device_mesh"):
        DistributedDataParallel(Affine(), device_mesh=object())
    for cap in (0, -1.0, float("nan"), float("inf"), True, "3"):
        with pytest.raises(CommunicatorError, match=f"bucket_cap_mb={cap!r} must be positive and finite"):
            DistributedDataParallel(Affine(), bucket_cap_mb=cap)


@pytest.mark.oracle
def test_the_signature_is_torchs():
    import inspect

    torch = pytest.importorskip("torch")
    theirs = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__).parameters
    ours = inspect.signature(DistributedDataParallel.__init__).parameters
    assert [*ours][: len(theirs)] == [*theirs]
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in [*ours][len(theirs) :])
