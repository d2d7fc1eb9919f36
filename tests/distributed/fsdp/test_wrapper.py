"""``FullyShardedDataParallel``: strategies, wrap policies, whole and sharded state dicts, whole parameters."""

import copy
import functools
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import (
    CPUOffload,
    FSDPModule,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from tenon.distributed.fsdp.wrap import (
    CustomPolicy,
    ModuleWrapPolicy,
    always_wrap_policy,
    enable_wrap,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
    wrap,
)
from tenon.distributed.tensor import DTensor
from tenon.errors import ArgumentError, UnsupportedError

sys.path.insert(0, str(Path(__file__).parent))

from models import Block, assert_equal_states, batch, expected, net, part, sgd, step

BLOCKS = ModuleWrapPolicy({Block})


@pytest.mark.parametrize("strategy", list(ShardingStrategy))
def test_every_strategy_trains_as_the_plain_model(strategy):
    base = net()
    losses, state = expected(base)

    def work(communicator):
        model = FullyShardedDataParallel(
            copy.deepcopy(base), sharding_strategy=strategy, auto_wrap_policy=BLOCKS
        )
        optimizer = sgd(model)
        for i in range(3):
            step(model, optimizer, *part(batch(i), communicator))
        return model.state_dict()

    for found in run_ranks(2, work):
        assert_equal_states(found, state)
    assert len(losses) == 3


def sharded(policy, model=None):
    """The names of the modules that a policy selects."""
    model = FullyShardedDataParallel(net() if model is None else model, auto_wrap_policy=policy)
    return [name for name, m in model.module.named_modules() if isinstance(m, FSDPModule)]


def test_policies_select_modules():
    blocks = ["", "blocks.0", "blocks.1", "blocks.2"]
    assert sharded(None) == [""]
    assert sharded(BLOCKS) == blocks
    assert sharded(functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})) == blocks
    by_kind = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, Block))
    assert sharded(by_kind) == blocks
    assert sharded(functools.partial(size_based_auto_wrap_policy, min_num_params=140)) == blocks
    assert sharded(functools.partial(size_based_auto_wrap_policy, min_num_params=10**6)) == [""]
    assert sharded(CustomPolicy(lambda m: isinstance(m, nn.LayerNorm))) == [
        "",
        *(f"blocks.{i}.norm" for i in range(3)),
    ]
    assert len(sharded(always_wrap_policy)) == 15  # all but the list
    with pytest.raises(ArgumentError, match="is not a policy"):
        sharded(3)
    with pytest.raises(ArgumentError, match="has to return True, False or a dict"):
        sharded(CustomPolicy(lambda m: 3))


def test_custom_policies_give_options():
    strategy = ShardingStrategy.SHARD_GRAD_OP
    policy = CustomPolicy(lambda m: {"sharding_strategy": strategy} if isinstance(m, Block) else False)
    model = FullyShardedDataParallel(net(), auto_wrap_policy=policy)

    assert not model.blocks[0]._state.group.reshard_after_forward
    assert model.module._state.group.reshard_after_forward


def test_wrap_uses_what_enable_wrap_says():
    with enable_wrap(wrapper_cls=FullyShardedDataParallel, sharding_strategy=ShardingStrategy.NO_SHARD):
        inner = wrap(nn.Linear(2, 2))
        other = wrap(nn.Linear(2, 2), sharding_strategy=ShardingStrategy.FULL_SHARD)

    assert inner.sharding_strategy is ShardingStrategy.NO_SHARD
    assert other.sharding_strategy is ShardingStrategy.FULL_SHARD
    assert type(wrap(nn.Linear(2, 2))) is nn.Linear


def test_state_dicts_are_whole_or_sharded():
    wanted = net().state_dict()

    def work(communicator):
        model = FullyShardedDataParallel(net(), auto_wrap_policy=BLOCKS)
        whole = model.state_dict()
        first = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, first):
            alone = model.state_dict()
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            parts = model.state_dict()
        other = FullyShardedDataParallel(net(1), auto_wrap_policy=BLOCKS)
        other.load_state_dict(parts)
        again = FullyShardedDataParallel(net(2), auto_wrap_policy=BLOCKS)
        again.load_state_dict({f"_fsdp_wrapped_module.{name}": value for name, value in whole.items()})
        kinds = {type(value) for value in parts.values()}
        return whole, alone, other.state_dict(), again.state_dict(), kinds

    for rank, (whole, alone, other, again, kinds) in enumerate(run_ranks(2, work)):
        assert_equal_states(whole, wanted)
        assert_equal_states(alone, {} if rank else wanted)
        assert_equal_states(other, wanted)
        assert_equal_states(again, wanted)
        assert all(issubclass(kind, DTensor) for kind in kinds)


WRAPS = {
    "inside": lambda layers: nn.Sequential(FullyShardedDataParallel(layers[0]), layers[1]),
    "twice": lambda layers: FullyShardedDataParallel(
        nn.Sequential(FullyShardedDataParallel(layers[0]), layers[1])
    ),
    "compiled": lambda layers: torch.compile(FullyShardedDataParallel(layers)),
    "of compiled": lambda layers: FullyShardedDataParallel(torch.compile(layers)),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_models_that_contain_wrappers_load_their_state(wrap):
    base = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    wanted = {name: torch.randn(value.shape) for name, value in base.state_dict().items()}

    def work(communicator):
        model = wrap(copy.deepcopy(base))
        set_model_state_dict(model, wanted)
        state = model.state_dict()
        other = wrap(copy.deepcopy(base))
        other.load_state_dict(state)
        out = other(torch.ones(1, 4))
        return get_model_state_dict(other, options=StateDictOptions(full_state_dict=True)), out.detach()

    base.load_state_dict(wanted)
    for state, out in run_ranks(2, work):
        assert_equal_states(state, wanted)
        torch.testing.assert_close(out, base(torch.ones(1, 4)).detach())


def test_state_of_the_optimizer_goes_to_another_number_of_ranks():
    def trained(communicator):
        model = FullyShardedDataParallel(net(), auto_wrap_policy=BLOCKS)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for i in range(2):
            step(model, optimizer, *part(batch(i), communicator))
        return model.state_dict(), FullyShardedDataParallel.optim_state_dict(model, optimizer)

    state, optim_state = run_ranks(2, trained)[0]
    assert set(optim_state["state"]) == set(state)
    assert optim_state["state"]["first.weight"]["exp_avg"].shape == (6, 5)

    def resumed(communicator):
        model = FullyShardedDataParallel(net(5), auto_wrap_policy=BLOCKS)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        model.load_state_dict(state)
        FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, optim_state, load_directly=True)
        step(model, optimizer, *part(batch(2), communicator))
        with pytest.raises(ArgumentError, match="has no parameter 'other'"):
            wrong = {"state": {"other": {}}, "param_groups": []}
            FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, wrong)
        return model.state_dict()

    once = run_ranks(1, resumed)[0]
    for found in run_ranks(4, resumed):
        assert_equal_states(found, once)


def test_whole_parameters_can_be_read_and_changed():
    def work(communicator):
        model = FullyShardedDataParallel(net(), auto_wrap_policy=BLOCKS)
        nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            shapes = {n: (type(p), p.shape == p.grad.shape) for n, p in model.named_parameters()}
            with torch.no_grad():
                model.first.weight.fill_(2.0)
                model.first.weight.grad.fill_(3.0)
                model.blocks[1].up.bias.fill_(4.0)
        with FullyShardedDataParallel.summon_full_params(model, writeback=False), torch.no_grad():
            model.first.weight.fill_(7.0)
        grad = model.first.weight.grad.full_tensor()
        state = model.state_dict()
        return shapes, state["first.weight"], grad, state["blocks.1.up.bias"]

    for shapes, weight, grad, bias in run_ranks(2, work):
        assert set(shapes.values()) == {(nn.Parameter, True)}
        assert torch.equal(weight, torch.full((6, 5), 2.0))
        assert torch.equal(grad, torch.full((6, 5), 3.0))
        assert torch.equal(bias, torch.full((10,), 4.0))


def test_apply_initializes_whole_parameters():
    def zero(module):
        if isinstance(module, nn.Linear):
            with torch.no_grad():
                module.weight.zero_()

    def work(communicator):
        return FullyShardedDataParallel(net(), auto_wrap_policy=BLOCKS).apply(zero).state_dict()

    for state in run_ranks(2, work):
        assert all(not state[name].any() for name in ("first.weight", "blocks.2.down.weight"))


def test_model_on_the_meta_device_is_initialized_module_by_module():
    def give(module):
        module.to_empty(device="cpu", recurse=False)
        for parameter in module.parameters(recurse=False):
            nn.init.constant_(parameter, 0.5)

    def work(communicator):
        model = FullyShardedDataParallel(net(device="meta"), auto_wrap_policy=BLOCKS, param_init_fn=give)
        return model.state_dict()

    for state in run_ranks(2, work):
        assert all(bool((value == 0.5).all()) for value in state.values())


def test_modules_are_made_alike_by_a_broadcast():
    def work(communicator):
        return FullyShardedDataParallel(net(communicator.rank), sync_module_states=True).state_dict()

    for state in run_ranks(2, work):
        assert_equal_states(state, net(0).state_dict())


def test_groups_of_ranks_train_models_of_their_own():
    states = [expected(net(seed))[1] for seed in (0, 1)]

    def work(communicator):
        which = communicator.rank % 2
        groups = [torch.distributed.new_group(ranks) for ranks in ([0, 2], [1, 3])]
        seed = which if communicator.rank < 2 else 9
        model = FullyShardedDataParallel(net(seed), groups[which], sync_module_states=True)
        optimizer = sgd(model)
        for i in range(3):
            step(model, optimizer, *part(batch(i), groups[which]))
        return model.state_dict()

    for rank, found in enumerate(run_ranks(4, work)):
        assert_equal_states(found, states[rank % 2])


def test_gradients_accumulate_in_no_sync():
    base = net()
    _, state = expected(base, 1)

    def work(communicator):
        model = FullyShardedDataParallel(copy.deepcopy(base), auto_wrap_policy=BLOCKS)
        optimizer = sgd(model)
        x, y = part(batch(0), communicator)
        with model.no_sync():
            (nn.functional.cross_entropy(model(x[:2]), y[:2]) / 2).backward()
        (nn.functional.cross_entropy(model(x[2:]), y[2:]) / 2).backward()
        optimizer.step()
        return model.state_dict()

    for found in run_ranks(2, work):
        assert_equal_states(found, state)


def test_precision_of_parameters_buffers_and_ignored_classes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x):
            self.seen = x.dtype, self.layer.weight.dtype, self.norm.weight.dtype, self.scale.dtype
            return self.norm(self.layer(x).float())

    precision = MixedPrecision(torch.bfloat16, torch.float32, torch.float16)
    model = FullyShardedDataParallel(
        Model(), mixed_precision=precision, auto_wrap_policy=ModuleWrapPolicy({nn.BatchNorm1d})
    )
    model(torch.randn(3, 4)).sum().backward()

    # The normalization's weights are released outside of its own forward.
    assert model.module.seen == (torch.bfloat16, torch.bfloat16, torch.float32, torch.float16)
    assert model.norm.running_mean.dtype == torch.float32
    assert model.layer.weight.grad.dtype == torch.float32


def test_the_norm_of_clipping_is_whole():
    model = FullyShardedDataParallel(net(), cpu_offload=CPUOffload(True))
    nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()

    norm = model.clip_grad_norm_(1e-3)

    assert type(norm) is torch.Tensor and norm > 1e-3


def test_attributes_and_names_are_those_of_the_model():
    model = FullyShardedDataParallel(net())

    assert len(model.blocks) == 3 and model.recompute is False
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in net().named_parameters()]
    assert FullyShardedDataParallel(nn.Sequential(nn.ReLU()))[0].__class__ is nn.ReLU
    assert FullyShardedDataParallel.fsdp_modules(model) == [model.module] and model.check_is_root()
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing


def test_the_first_forward_decides_which_module_is_the_root():
    inner = FullyShardedDataParallel(nn.Linear(2, 2))
    outer = FullyShardedDataParallel(nn.Sequential(inner, nn.ReLU()))
    outer(torch.ones(1, 2))

    assert outer.check_is_root() and not inner.check_is_root()


def test_wrong_arguments():
    model = FullyShardedDataParallel(net())
    with pytest.raises(ArgumentError, match="has to be a ShardingStrategy"):
        FullyShardedDataParallel(net(), sharding_strategy=1)
    with pytest.raises(UnsupportedError, match="Pass device_mesh"):
        FullyShardedDataParallel(net(), torch.distributed.get_communicator(), ShardingStrategy.HYBRID_SHARD)
    with pytest.raises(ArgumentError, match="should be parameters or modules, but has a int"):
        FullyShardedDataParallel(net(), ignored_states=[3])
    refused = pytest.raises(UnsupportedError, match="rank0_only=True is not supported")
    with refused, model.summon_full_params(model, rank0_only=True):
        pass
    with pytest.raises(UnsupportedError, match="LOCAL_STATE_DICT"):
        model.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
    with pytest.raises(ArgumentError, match="does not go with a ShardedStateDictConfig"):
        model.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, ShardedStateDictConfig())
    with pytest.raises(ArgumentError, match="has no FullyShardedDataParallel module"):
        model.get_state_dict_type(nn.Linear(1, 1))
    with pytest.raises(UnsupportedError, match="communication hooks"):
        model.register_comm_hook(None, None)
    with pytest.raises(ArgumentError, match="is not of the model"):
        model.optim_state_dict(model, torch.optim.SGD(net().parameters()))
    with pytest.raises(ArgumentError, match="some are on the meta device"):
        FullyShardedDataParallel(net(device="meta"), sync_module_states=True)
