"""Training with ``fully_shard`` is plain training on the whole batch, in every arrangement of shards."""

import copy
import dataclasses
import statistics
import sys
import types
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from tenon.distributed.fsdp.contents import tensors_in
from tenon.distributed.tensor import DTensor, Replicate, Shard

sys.path.insert(0, str(Path(__file__).parent))

from models import assert_equal_states, batch, expected, net, part, sgd, shard, step, whole

pytestmark = pytest.mark.together

#: Ranks, the shape of the mesh, options of fully_shard.
ARRANGEMENTS = {
    "one rank": (1, (1,), {}),
    "default": (2, (2,), {}),
    "released after every forward": (2, (2,), {"reshard_after_forward": True}),
    "kept until backward": (2, (2,), {"reshard_after_forward": False}),
    "uneven": (4, (4,), {}),
    "kept in pairs": (4, (4,), {"reshard_after_forward": 2}),
    "replicated pairs": (4, (2, 2), {}),
    "replicas only": (2, (2, 1), {}),
    "last axis": (4, (4,), {"shard_placement_fn": lambda p: Shard(p.ndim - 1)}),
}


@pytest.mark.parametrize(
    ("arrangement", "recompute"),
    [
        *((name, False) for name in ARRANGEMENTS),
        ("released after every forward", True),
        *(
            pytest.param(name, True, marks=pytest.mark.slow)
            for name in ARRANGEMENTS
            if name != "released after every forward"
        ),
    ],
)
def test_losses_and_weights_are_those_of_plain_training(arrangement, recompute):
    size, sizes, options = ARRANGEMENTS[arrangement]
    base = net(recompute=recompute)
    losses, state = expected(base)

    def work(communicator):
        mesh = init_device_mesh("cpu", sizes)
        model = shard(copy.deepcopy(base), mesh=mesh, **options)
        optimizer = sgd(model)
        found = [step(model, optimizer, *part(batch(i), communicator)) for i in range(3)]
        return found, whole(model)

    results = run_ranks(size, work)

    for found in zip(*(found for found, _ in results), strict=True):
        assert statistics.mean(found) == pytest.approx(losses.pop(0), rel=1e-5)
    for _, found in results:
        assert_equal_states(found, state)


def test_a_step_sends_three_times_the_parameters(monkeypatch):
    sent, size = [], 2
    counting = []

    def count(group, call, perform, args):
        if group.rank == 0 and counting:
            item = 1 if call.dtype == "bytes" else np.dtype(call.dtype).itemsize
            length = call.shape[1] if call.kind == "reduce_scatter" else call.shape[0]
            sent.append((call.kind, length * item * (size - 1)))
        group.agree(call)
        return perform(*args)

    def work(communicator):
        model = shard(net(width=64, blocks=4), reshard_after_forward=True)
        optimizer = sgd(model)
        step(model, optimizer, *batch())
        if communicator.rank == 0:
            counting.append(True)
        step(model, optimizer, *batch())

    monkeypatch.setattr("tenon.distributed.communication.communicator.around_call", count)
    run_ranks(size, work)

    parameters = sum(p.numel() for p in net(width=64, blocks=4).parameters())
    assert sorted({kind for kind, _ in sent}) == ["all_gather", "reduce_scatter"]
    assert len(sent) == 5 * 3  # of four blocks and the outermost module
    # Sharded rows are padded, and each parameter has a flag.
    assert 1 <= sum(n for _, n in sent) / (3 * 4 * parameters * (size - 1) / size) < 1.02


def test_parameters_gradients_and_optimizer_state_are_shards():
    def work(communicator):
        model = shard(net())
        optimizer = torch.optim.AdamW(model.parameters())
        step(model, optimizer, *part(batch(), communicator))
        weight = model.blocks[0].up.weight
        nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
        state = optimizer.state[weight]
        return [
            (type(t), t.placements, tuple(t.to_local().shape))
            for t in (weight, weight.grad, state["exp_avg"])
        ]

    for found in run_ranks(4, work):
        kinds = {(issubclass(kind, DTensor), placements) for kind, placements, _ in found}
        assert kinds == {(True, (Shard(0),))}
        assert len({shape for _, _, shape in found}) == 1
        assert found[0][2][0] in (3, 1)  # 10 rows: 3, 3, 3, 1


def test_module_gets_a_class_of_its_own_and_keeps_its_methods():
    model = shard(net())

    assert isinstance(model, FSDPModule) and type(model).__name__ == "FSDPNet"
    assert isinstance(model.blocks[0], FSDPModule)
    assert fully_shard(nn.Linear(2, 3)).extra_repr() == nn.Linear(2, 3).extra_repr()
    part_of = fully_shard(nn.Sequential(nn.ReLU(), nn.ReLU()))[:1]
    assert type(part_of) is nn.Sequential


def test_mesh_of_two_dimensions_replicates_over_the_first():
    def work(communicator):
        model = fully_shard(nn.Linear(4, 4), mesh=init_device_mesh("cpu", (2, 2)))
        return model.weight.placements

    assert run_ranks(4, work) == [(Replicate(), Shard(0))] * 4


def test_gradients_accumulate_over_micro_batches_without_communication():
    base = net()
    _, state = expected(base, 1)

    def work(communicator):
        model = shard(copy.deepcopy(base))
        optimizer = sgd(model)
        x, y = part(batch(0), communicator)
        for half, last in ((slice(0, 2), False), (slice(2, 4), True)):
            model.set_requires_gradient_sync(last)
            (nn.functional.cross_entropy(model(x[half]), y[half]) / 2).backward()
        optimizer.step()
        return whole(model)

    for found in run_ranks(2, work):
        assert_equal_states(found, state)


def test_gradients_accumulate_in_the_shards_over_micro_batches():
    base = net()
    _, state = expected(base, 1)

    def work(communicator):
        model = shard(copy.deepcopy(base))
        optimizer = sgd(model)
        x, y = part(batch(0), communicator)
        for half in (slice(0, 2), slice(2, 4)):
            (nn.functional.cross_entropy(model(x[half]), y[half]) / 2).backward()
        optimizer.step()
        return whole(model)

    for found in run_ranks(2, work):
        assert_equal_states(found, state)


def test_replicas_reduce_only_the_last_micro_batch():
    base = net()
    _, state = expected(base, 1)

    def work(communicator):
        model = shard(copy.deepcopy(base), mesh=init_device_mesh("cpu", (2, 2)))
        optimizer = sgd(model)
        x, y = part(batch(0), communicator)
        for half, last in ((slice(0, 1), False), (slice(1, 2), True)):
            model.set_requires_all_reduce(last)
            (nn.functional.cross_entropy(model(x[half]), y[half]) / 2).backward()
        optimizer.step()
        return whole(model)

    for found in run_ranks(4, work):
        assert_equal_states(found, state)


def test_clipping_uses_the_norm_of_the_whole_model():
    plain = net()
    nn.functional.cross_entropy(plain(batch()[0]), batch()[1]).backward()
    norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.01)
    gradients = {name: p.grad for name, p in plain.named_parameters()}

    def work(communicator):
        model = shard(net())
        x, y = part(batch(), communicator)
        nn.functional.cross_entropy(model(x), y).backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        return total.full_tensor(), {name: p.grad.full_tensor() for name, p in model.named_parameters()}

    for total, found in run_ranks(2, work):
        torch.testing.assert_close(total, norm)
        assert_equal_states(found, gradients)


def test_frozen_and_shared_parameters():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 6)
            self.block = nn.Linear(6, 6)
            self.frozen = nn.Linear(6, 6).requires_grad_(False)
            self.head = nn.Linear(6, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.frozen(self.block(self.embed(x)).relu()))

    torch.manual_seed(0)
    base, x = Tied(), torch.arange(8) % 7
    plain = copy.deepcopy(base)
    optimizer = sgd(plain)
    for _ in range(2):
        step(plain, optimizer, x, x)

    def work(communicator):
        model = copy.deepcopy(base)
        fully_shard(model.block)
        fully_shard(model)
        optimizer = sgd(model)
        for _ in range(2):
            step(model, optimizer, *part((x, x), communicator))
        assert model.head.weight is model.embed.weight
        assert model.frozen.weight.grad is None and not model.frozen.weight.requires_grad
        return whole(model)

    for found in run_ranks(2, work):
        assert_equal_states(found, plain.state_dict())


def test_parameters_without_a_gradient_on_some_ranks_or_all():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x, branch):
            return self.a(x) + (self.b(x) if branch else 0)

    torch.manual_seed(0)
    base, x = Branches(), torch.ones(3, 2)
    plain = copy.deepcopy(base)
    ((plain(x, True).sum() + plain(x, False).sum()) / 2).backward()

    def work(communicator):
        model = fully_shard(copy.deepcopy(base))
        model(x, communicator.rank == 0).sum().backward()
        return {n: None if p.grad is None else p.grad.full_tensor() for n, p in model.named_parameters()}

    for found in run_ranks(2, work):
        for name, parameter in plain.named_parameters():
            if name[0] == "c":
                assert found[name] is None
            else:
                torch.testing.assert_close(found[name], parameter.grad)


def test_module_called_twice_before_backward():
    torch.manual_seed(0)
    base, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.ones(2, 4)
    plain = copy.deepcopy(base)
    plain(plain(x)).sum().backward()

    def work(communicator):
        model = nn.ModuleDict({"layer": fully_shard(copy.deepcopy(base))})
        layer = model["layer"]
        layer(layer(x)).sum().backward()
        return {n: p.grad.full_tensor() for n, p in layer.named_parameters()}

    for found in run_ranks(2, work):
        assert_equal_states(found, {n: p.grad for n, p in plain.named_parameters()})


def test_second_backward_through_a_kept_graph():
    torch.manual_seed(0)
    base, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), torch.ones(2, 4)
    plain = copy.deepcopy(base)
    loss = plain(x).pow(2).sum()
    loss.backward(retain_graph=True)
    loss.backward()

    def work(communicator):
        model = copy.deepcopy(base)
        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
        loss = model(x).pow(2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return {n: p.grad.full_tensor() for n, p in model.named_parameters()}

    for found in run_ranks(2, work):
        assert_equal_states(found, {n: p.grad for n, p in plain.named_parameters()})


def test_list_of_modules_is_one_group():
    base = net()
    _, state = expected(base, 2)

    def work(communicator):
        model = copy.deepcopy(base)
        fully_shard([model.first, model.blocks[0]])
        fully_shard([model.blocks[1], model.blocks[2], model.last])
        fully_shard(model)
        optimizer = sgd(model)
        found = [step(model, optimizer, *part(batch(i), communicator)) for i in range(2)]
        return found, whole(model)

    for _, found in run_ranks(2, work):
        assert_equal_states(found, state)


@pytest.mark.parametrize("reduce_dtype", [None, torch.float32])
def test_mixed_precision_computes_in_16_bits_and_steps_in_32(reduce_dtype):
    seen = []

    def work(communicator):
        model = net()
        for block in model.blocks:
            fully_shard(block, mp_policy=MixedPrecisionPolicy(torch.bfloat16, reduce_dtype))
        fully_shard(
            model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, reduce_dtype, output_dtype=torch.float32)
        )
        model.last.register_forward_hook(
            lambda m, args, out: seen.append((m.weight.dtype, args[0].dtype, out.dtype))
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = [step(model, optimizer, *part(batch(), communicator)) for _ in range(10)]
        kinds = {p.dtype for p in model.parameters()}, {p.grad.dtype for p in model.parameters()}
        return losses, model(batch()[0]).dtype, *kinds

    for losses, output, parameters, gradients in run_ranks(2, work):
        assert losses[-1] < losses[0]
        assert output == torch.float32 and parameters == gradients == {torch.float32}
    assert set(seen) == {(torch.bfloat16,) * 3}


@dataclasses.dataclass(frozen=True)
class Features:
    x: object


class Named(OrderedDict):
    """A dictionary with more methods, as models return."""


class Wrapping(nn.Module):
    """A block that takes and returns features in an object of a user's class."""

    def __init__(self, wrap, unwrap):
        super().__init__()
        self.linear, self.wrap, self.unwrap = nn.Linear(5, 5), wrap, unwrap

    def forward(self, features):
        return self.wrap(self.linear(self.unwrap(features)).tanh())


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize(
    "wrap, unwrap",
    [
        (Features, lambda f: f.x),
        (lambda x: Named(x=x), lambda f: f["x"]),
        (lambda x: types.SimpleNamespace(x=[x]), lambda f: f.x[0]),
    ],
    ids=["dataclass", "dictionary", "unknown object"],
)
def test_outputs_in_objects_of_users_are_trained(wrap, unwrap, reshard):
    torch.manual_seed(0)
    base = nn.Sequential(*(Wrapping(wrap, unwrap) for _ in range(3)))
    x = batch()[0]

    def train(model, x, reduce):
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for _ in range(2):
            optimizer.zero_grad()
            unwrap(model(wrap(x))).square().mean().backward()
            optimizer.step()
        return whole(model) if reduce else model.state_dict()

    def work(communicator):
        model = copy.deepcopy(base)
        for block in (*model, model):
            fully_shard(block, reshard_after_forward=reshard)
        return train(model, *part([x], communicator), True)

    state = train(copy.deepcopy(base), x, False)
    for found in run_ranks(2, work):
        assert_equal_states(found, state)


@pytest.mark.parametrize(
    "wrap", [Features, lambda x: Named(x=x), lambda x: [x], lambda x: Features(Features(x))]
)
def test_inputs_and_outputs_in_objects_of_users_are_cast(wrap):
    seen = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 5)

        def forward(self, features):
            seen.extend(t.dtype for t in tensors_in(features))
            return features

    def work(communicator):
        policy = MixedPrecisionPolicy(torch.bfloat16, output_dtype=torch.float16)
        given = wrap(torch.ones(5))
        made = fully_shard(Model(), mp_policy=policy)(given)
        assert type(made) is type(given) and made is not given
        return [t.dtype for t in (*tensors_in(given), *tensors_in(made))]

    assert run_ranks(1, work) == [[torch.float32, torch.float16]] and seen == [torch.bfloat16]


def test_evaluation_without_gradients():
    base = net()
    with torch.no_grad():
        wanted = base(batch()[0])

    def work(communicator):
        model = shard(copy.deepcopy(base), reshard_after_forward=True)
        with torch.no_grad():
            found = model(batch()[0])
        assert isinstance(model.last.weight, DTensor)
        return found

    for found in run_ranks(2, work):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("size", [2, 4])
def test_large_shards_are_updated_by_one_kernel(name, size):
    torch.manual_seed(0)
    base, x = nn.Sequential(nn.Linear(8, 3001), nn.ReLU(), nn.Linear(3001, 3)), torch.randn(8, 8)
    y = torch.arange(8) % 3

    def train(model, x, y):
        optimizer = getattr(torch.optim, name)(model.parameters(), 1e-3)
        for _ in range(8):
            step(model, optimizer, x, y)
        return optimizer

    plain = copy.deepcopy(base)
    train(plain, x, y)

    def work(communicator):
        model = fully_shard(copy.deepcopy(base))  # the last rank of four has no row of the last layer
        optimizer = train(model, *part((x, y), communicator))
        (plan,) = optimizer._fused.values()
        return whole(model), [len(each.members) for each in plan.sets]

    for found, fused in run_ranks(size, work):
        assert fused == [4]
        for key, value in plain.state_dict().items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=2e-4)


def test_gradients_are_computed_where_they_are_reduced(monkeypatch):
    from tenon.distributed.fsdp import gradient_buffer

    copies = []
    write = gradient_buffer.GradientBuffer.write

    def watched(self, index, gradient):
        if gradient is not None:
            part = self._parameters[index].whole_of(self.rows(index))
            copies.append((gradient.shape, gradient.ctypes.data != part.ctypes.data))
        return write(self, index, gradient)

    monkeypatch.setattr(gradient_buffer.GradientBuffer, "write", watched)

    def work(communicator):
        model = fully_shard(nn.Linear(300, 200))
        model(torch.ones(300, 300)).sum().backward()

    run_ranks(2, work)

    assert copies and not any(copied for _, copied in copies)


@pytest.mark.parametrize("size", [1, 2])
def test_parameters_that_stay_gathered_are_those_of_the_last_step(size):
    base = net()
    _, state = expected(base)

    def work(communicator):
        model = copy.deepcopy(base)
        optimizer = sgd(shard(model))
        model.set_reshard_after_backward(False)
        for i in range(3):
            x, y = part(batch(i), communicator)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return whole(model)

    for found in run_ranks(size, work):
        assert_equal_states(found, state)


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_weights_that_change_between_forward_and_backward_are_an_error(size, release):
    def work(communicator):
        model = fully_shard(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), reshard_after_forward=release)
        parameters = list(model.parameters())
        loss = model(torch.ones(1, 2)).sum()
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(3.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    run_ranks(size, work)
