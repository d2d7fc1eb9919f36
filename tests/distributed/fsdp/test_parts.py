"""Modules of which a pass uses a part: groups of several modules, heads on parts of a batch, unused modules."""

import copy
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import MixedPrecisionPolicy, fully_shard, share_comm_ctx
from tenon.distributed.tensor import DTensor, Shard, distribute_tensor
from tenon.errors import ArgumentError, ModuleError

sys.path.insert(0, str(Path(__file__).parent))

from models import assert_equal_states, net, part, sgd, shard, whole


class Headed(nn.Module):
    """Embeds tokens; ``skip_head`` leaves the last layer to the caller. ``fails`` raises in the middle."""

    def __init__(self, tied=False):
        super().__init__()
        self.embed, self.body = nn.Embedding(12, 6), nn.Linear(6, 6, bias=False)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 12, bias=False)
        self.fails = False
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens, skip_head=False):
        hidden = self.norm(self.body(self.embed(tokens)))
        if self.fails:
            raise RuntimeError("boom")
        return hidden if skip_head else self.head(hidden)


TOKENS = torch.arange(16).reshape(4, 4) % 12


def train_by_parts(model, tokens):
    """Backward of the head on one half of the positions after another, then of the rest of the model."""
    hidden = model(tokens, skip_head=True)
    gradients, totals = [], []
    for half in torch.chunk(hidden.detach(), 2, dim=1):
        half.requires_grad_(True)
        model.head(half).square().mean().backward()
        gradients.append(half.grad)
        gradient = model.head.weight.grad
        totals.append((gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).clone())
    hidden.backward(torch.cat(gradients, dim=1))
    return totals


def gradients_of(model):
    return {
        n: None if p.grad is None else p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
        for n, p in model.named_parameters()
    }


@pytest.mark.parametrize("reshard", [True, False, 1])
@pytest.mark.parametrize("tied", [False, True])
def test_head_of_a_group_is_called_on_parts_of_the_output(tied, reshard):
    torch.manual_seed(0)
    base = Headed(tied)
    expected = copy.deepcopy(base)
    optimizer = sgd(expected)
    wanted = []
    for _ in range(3):
        optimizer.zero_grad()
        wanted.append(train_by_parts(expected, TOKENS))
        optimizer.step()

    def work(communicator):
        model = copy.deepcopy(base)
        group = [model.norm, model.head] + ([model.embed] if tied else [])
        fully_shard(group, reshard_after_forward=reshard)
        fully_shard(model, reshard_after_forward=reshard)
        optimizer, found = sgd(model), []
        for _ in range(3):
            optimizer.zero_grad()
            found.append(train_by_parts(model, TOKENS))
            optimizer.step()
        return found, whole(model)

    for found, state in run_ranks(2, work):
        for some, others in zip(found, wanted, strict=True):
            for a, b in zip(some, others, strict=True):
                torch.testing.assert_close(a, b)
        assert_equal_states(state, expected.state_dict())


def test_group_without_a_root_reduces_the_gradients_of_its_parts():
    torch.manual_seed(0)
    base = Headed()
    expected = copy.deepcopy(base)
    for _ in range(2):
        expected(TOKENS, skip_head=True).sum().backward()

    def work(communicator):
        model = copy.deepcopy(base)
        fully_shard([model.embed, model.body, model.norm, model.head])
        for _ in range(2):
            model(TOKENS, skip_head=True).sum().backward()
        return gradients_of(model)

    for found in run_ranks(2, work):
        for name, gradient in gradients_of(expected).items():
            if gradient is None:
                assert found[name] is None
            else:
                torch.testing.assert_close(found[name], gradient, msg=name)


@pytest.mark.parametrize("by_hand", [False, True])
def test_error_in_the_middle_of_a_group(by_hand):
    torch.manual_seed(0)
    base = Headed()

    def work(communicator):
        model = copy.deepcopy(base)
        fully_shard([model.norm, model.head])
        fully_shard(model)
        model.fails = True
        with pytest.raises(RuntimeError, match="boom"):
            model(TOKENS)
        model.fails = False
        if by_hand:
            model.reset_iter_state()
            with pytest.raises(ModuleError, match="must be called on the root FSDP module, not on 'norm'"):
                model.norm.reset_iter_state()
        model(TOKENS).sum().backward()
        return gradients_of(model)

    base(TOKENS).sum().backward()
    for found in run_ranks(2, work):
        for name, gradient in gradients_of(base).items():
            torch.testing.assert_close(found[name], gradient, msg=name)


def test_inner_module_that_was_called_before_the_model_is_an_error():
    model = shard(net())
    model.blocks[1](torch.ones(2, 6))

    with pytest.raises(ModuleError, match=r"already been lazily initialized for blocks\.1\n"):
        model(torch.ones(2, 5))


def test_inner_module_may_be_gathered_by_hand_before_the_model_is_called():
    model = shard(net(), reshard_after_forward=True)
    model.blocks[1].unshard()
    model.blocks[1].set_is_last_backward(True)
    model.blocks[1].reshard()

    assert model(torch.ones(2, 5)).shape == (2, 3)


class Fork(nn.Module):
    """Rank 0 uses another layer than the rest."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, x, choice):
        return self.layers[choice](x)


def test_ranks_that_use_different_modules():
    torch.manual_seed(0)
    base = Fork()
    x = torch.arange(6.0).reshape(2, 3)

    def work(communicator):
        model = copy.deepcopy(base)
        for layer in model.layers:
            fully_shard(layer, reshard_after_forward=False)
        fully_shard(model)
        for layer in model.layers:
            layer.unshard()  # the gathers are collective
        model.set_reduce_scatter_unused_params(True)
        found = []
        for choice in (min(communicator.rank, 1), 0):
            model.zero_grad()
            model(x, choice).sum().backward()
            found.append(gradients_of(model))
            for layer in model.layers:
                layer.unshard()
        return found

    for first, second in run_ranks(2, work):
        for layer in (0, 1):
            torch.testing.assert_close(first[f"layers.{layer}.weight"], x.sum(0).expand(3, 3) / 2)
            wanted = x.sum(0).expand(3, 3) * (1 - layer)
            torch.testing.assert_close(second[f"layers.{layer}.weight"], wanted)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_shards_of_gathered_parameters(set_to_none):
    model = fully_shard(nn.Linear(3, 3), reshard_after_forward=False)
    x = torch.ones(1, 3)
    model(x).sum().backward()
    with torch.no_grad():
        model(x)
    assert not isinstance(model.weight, DTensor)

    model.zero_grad(set_to_none)
    model(x).sum().backward()

    assert torch.equal(model.weight.grad.full_tensor(), torch.ones(3, 3))


def test_zero_grad_drops_gradients_that_wait_for_their_reduction():
    def work(communicator):
        model = fully_shard(nn.Linear(3, 3))
        model.set_requires_gradient_sync(False)
        model(torch.ones(1, 3)).sum().backward()
        model.zero_grad()
        model.set_requires_gradient_sync(True)
        model(torch.ones(1, 3)).sum().backward()
        return model.weight.grad.full_tensor()

    for found in run_ranks(2, work):
        assert torch.equal(found, torch.ones(3, 3))


def test_gradients_wait_for_their_reduction_in_its_dtype():
    torch.manual_seed(0)
    base = nn.Linear(3, 2, bias=False)
    parts = [torch.full((1, 3), value, dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0)]
    options = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}

    def work(communicator):
        model = fully_shard(copy.deepcopy(base), **options)
        for step in range(2):
            for i, x in enumerate(parts):
                model.set_requires_gradient_sync(i == 2)
                model(x).sum().backward()
                assert step or i == 2 or model.weight.grad is None
        return model.weight.grad.full_tensor()

    for found in run_ranks(2, work):
        assert torch.equal(found, torch.full((2, 3), 2 * 258.0))  # bfloat16 has 256 and 260


def test_sums_are_divided_by_the_number_of_ranks():
    def work(communicator):
        model = fully_shard(nn.Linear(2, 2, bias=False))
        model.set_force_sum_reduction_for_comms(True)
        model(torch.full((1, 2), float(communicator.rank))).sum().backward()
        return model.weight.grad.full_tensor()

    for found in run_ranks(4, work):
        assert torch.equal(found, torch.full((2, 2), 1.5))


def test_sums_of_float16_do_not_overflow():
    def work(communicator):
        model = fully_shard(nn.Linear(1, 1), mp_policy=MixedPrecisionPolicy(torch.float16))
        model.set_gradient_divide_factor(4.0)
        model(torch.full((1, 1), 40000.0)).sum().backward()
        return model.weight.grad.full_tensor().item()

    assert run_ranks(2, work) == [20000.0] * 2


def test_models_that_share_a_context():
    model = net()
    with pytest.raises(ArgumentError, match="Linear is not a fully_shard module"):
        share_comm_ctx([model.first])
    share_comm_ctx([fully_shard(model.first)])


def test_meta_model_is_loaded_in_pieces_on_to_the_cpu():
    whole_model = net(4)
    x = part([torch.ones(2, 5)], type("One", (), {"size": 1, "rank": 0}))[0]

    def work(communicator):
        with torch.device("meta"):
            model = shard(type(whole_model)())
        for name, own in model.state_dict().items():
            value = distribute_tensor(whole_model.state_dict()[name], own.device_mesh, own.placements)
            model.load_state_dict({name: value}, assign=True, strict=False)
        return model(x)

    for found in run_ranks(2, work):
        torch.testing.assert_close(found, whole_model(x))


class Viewer(nn.Module):
    """Takes its weight in another shape."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(32.0).reshape(4, 8) / 10)

    def forward(self, x):
        return x @ self.weight.view(8, 4).t()


def test_parameters_that_are_split_along_another_axis_are_contiguous():
    plain = Viewer()
    x = torch.arange(8.0).reshape(2, 4)
    plain(x).sum().backward()

    def work(communicator):
        model = fully_shard(Viewer(), shard_placement_fn=lambda p: Shard(1))
        optimizer = sgd(model)
        model(x).sum().backward()
        gradient = model.weight.grad
        optimizer.step()
        parts = (model.weight.to_local(), gradient.to_local())
        return [p.is_contiguous() for p in parts], gradient.full_tensor(), model.weight.full_tensor()

    for contiguous, gradient, weight in run_ranks(4, work):
        assert contiguous == [True, True]
        torch.testing.assert_close(gradient, plain.weight.grad)
        torch.testing.assert_close(weight, plain.weight - 0.1 * plain.weight.grad)


def test_optimizer_that_is_made_after_an_evaluation_trains_the_shards():
    model = fully_shard(nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model(torch.ones(1, 2))
    before = model.weight.full_tensor().clone()
    optimizer = sgd(model)

    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    torch.testing.assert_close(model.weight.full_tensor(), before - 0.1)


def test_sharded_parameters_are_compared_as_wholes():
    def work(communicator):
        one, other = fully_shard(nn.Linear(4, 4)), fully_shard(nn.Linear(4, 4))
        other.load_state_dict(one.state_dict())
        torch.testing.assert_close(one.weight, other.weight)
        with torch.no_grad():
            other.weight.add_(1)
        with pytest.raises(AssertionError, match="Mismatched elements: 16 / 16"):
            torch.testing.assert_close(one.weight, other.weight)

    run_ranks(2, work)


@pytest.mark.parametrize("ahead", ["in backward", "by hand"])
def test_parameters_that_were_gathered_ahead_of_an_optimizer_step_are_gathered_again(ahead):
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    x = torch.arange(8.0).reshape(2, 4) / 8

    def trained(model, optimizer, between=lambda model: None):
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            between(model)
            optimizer.step()
            losses.append(loss.item())
        return losses

    def work(communicator):
        model = copy.deepcopy(base)
        for module in (model[0], model[1], model):
            fully_shard(module)
        if ahead == "in backward":  # that of the second layer is over when that of the first begins
            model[0].set_modules_to_backward_prefetch([model[1]])
            return trained(model, sgd(model))
        return trained(model, sgd(model), lambda model: model[1].unshard(async_op=True))

    plain = copy.deepcopy(base)
    expected = trained(plain, sgd(plain))
    for found in run_ranks(2, work):
        assert found == pytest.approx(expected)
