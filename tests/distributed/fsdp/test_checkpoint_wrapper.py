"""Blocks that are wrapped for recomputation, with ``fully_shard`` around them."""

import copy
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    CheckpointWrapper,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import fully_shard
from tenon.errors import ArgumentError

sys.path.insert(0, str(Path(__file__).parent))

from models import Block, assert_equal_states, batch, expected, net, part, sgd, shard, step, whole


@pytest.mark.parametrize("kind", CheckpointImpl)
@pytest.mark.parametrize("reshard", [True, False])
def test_wrapped_blocks_train_as_plain_ones(kind, reshard):
    base = net()
    losses, state = expected(base)
    calls = []

    def work(communicator):
        model = copy.deepcopy(base)
        for block in model.blocks:
            block.up.register_forward_hook(lambda *args: calls.append(1))
        apply_activation_checkpointing(
            model, lambda m: checkpoint_wrapper(m, kind), check_fn=lambda m: isinstance(m, Block)
        )
        assert all(isinstance(block, CheckpointWrapper) for block in model.blocks)
        shard(model, reshard_after_forward=reshard)
        optimizer = sgd(model)
        found = [step(model, optimizer, *part(batch(i), communicator)) for i in range(len(losses))]
        return found, whole(model)

    for _, found in run_ranks(2, work):
        assert_equal_states(found, state)
    assert len(calls) == 2 * 3 * len(losses) * 2  # twice: forward, and again in backward


def test_keys_and_names_are_those_of_the_wrapped_module():
    plain = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    wrapper = checkpoint_wrapper(copy.deepcopy(plain))
    model = nn.Sequential(wrapper, nn.Linear(2, 1))

    assert list(wrapper.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in wrapper.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert list(model.state_dict())[:2] == ["0.0.weight", "0.0.bias"]
    assert wrapper[0].in_features == 2 and wrapper.training

    other = nn.Sequential(checkpoint_wrapper(copy.deepcopy(plain)), nn.Linear(2, 1))
    other.load_state_dict(model.state_dict())
    assert_equal_states(other.state_dict(), model.state_dict())
    with pytest.raises(AttributeError, match="absent"):
        getattr(wrapper, "absent")  # noqa: B009


class Scaled(nn.Linear):
    def forward(self, x, *, scale):
        return super().forward(x) * scale


@pytest.mark.parametrize("kind", CheckpointImpl)
def test_keyword_arguments_of_a_wrapped_module(kind):
    model = checkpoint_wrapper(Scaled(2, 2), kind)
    x = torch.ones(1, 2, requires_grad=True)

    model(x, scale=torch.tensor(3.0)).sum().backward()

    assert torch.equal(model.weight.grad, torch.full((2, 2), 3.0))


def test_own_function_and_policy():
    calls = []

    def function(module, *args, name):
        calls.append(name)
        return module(*args)

    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    apply_activation_checkpointing(
        model,
        lambda m: checkpoint_wrapper(m, checkpoint_fn=function, name=type(m).__name__),
        auto_wrap_policy=lambda module, recurse, nonwrapped_numel: nonwrapped_numel > 0,
    )
    model(torch.ones(1, 2))

    assert calls == ["Linear"]
    with pytest.raises(ArgumentError, match="auto_wrap_policy is a int"):
        apply_activation_checkpointing(model, auto_wrap_policy=3)


def test_shared_module_is_wrapped_once():
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(shared))

    apply_activation_checkpointing(model, check_fn=lambda m: m is shared)

    assert model[0] is model[1][0] and isinstance(model[0], CheckpointWrapper)


def test_former_path_of_fully_shard():
    from tenon.distributed._composable.fsdp import fully_shard as former

    assert former is fully_shard


@pytest.mark.parametrize("first", [True, False])
def test_module_that_is_checkpointed_in_place_trains_as_the_plain_one(first):
    from tenon.distributed._composable import checkpoint

    base = net()
    _, state = expected(base)

    def work(communicator):
        model, calls = copy.deepcopy(base), []
        if first:
            for block in model.blocks:
                checkpoint(block)
        shard(model, reshard_after_forward=True)
        if not first:
            for block in model.blocks:
                checkpoint(block)
        model.blocks[0].norm.register_forward_hook(lambda *args: calls.append(1))
        optimizer = sgd(model)
        for i in range(3):
            step(model, optimizer, *part(batch(i), communicator))
        return whole(model), len(calls)

    for found, calls in run_ranks(2, work):
        assert calls == 6  # in forward and in backward
        assert_equal_states(found, state)


def test_copy_of_a_module_that_is_checkpointed_in_place_has_its_own_forward():
    from tenon.distributed._composable import checkpoint

    module = checkpoint(nn.Linear(2, 2))
    other = copy.deepcopy(module)
    nn.init.zeros_(other.weight)
    nn.init.zeros_(other.bias)
    assert not other(torch.ones(1, 2)).any() and module(torch.ones(1, 2)).any()
    with pytest.raises(
        NotImplementedError, match="use_reentrant=True is not supported in composable checkpoint"
    ):
        checkpoint(module, use_reentrant=True)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: early"):
        checkpoint(module, early=True)
