"""``get_state_dict`` and ``set_state_dict``: the same names and values however a model is distributed."""

import copy
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import checkpoint as dcp
from tenon.distributed import init_device_mesh
from tenon.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from tenon.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    patch_model_state_dict,
    patch_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.distributed.tensor import DTensor
from tenon.errors import ArgumentError, StateDictError
from tenon.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parent))

FULL = StateDictOptions(full_state_dict=True)


class Net(nn.Module):
    """A model with a buffer, tied weights and a frozen layer."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU())
        self.head = nn.Linear(7, 6, bias=False)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)

    def forward(self, x):
        return self.frozen(self.head(self.body(x)))


def base(seed=0):
    torch.manual_seed(seed)
    return Net()


def shard(model):
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for layer in (model.body[0], model.head):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def hybrid(model):
    size = torch.distributed.get_world_size()
    return fully_shard(model, mesh=init_device_mesh("cpu", (2, size // 2)))


WRAPPINGS = {
    "plain": lambda model: model,
    "data parallel": DistributedDataParallel,
    "compiled": torch.compile,
    "sharded": shard,
    "hybrid": hybrid,
    "wrapper": FullyShardedDataParallel,
}


def trained(model, optimizer, steps=2):
    """Some steps on the same data on every rank."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        x = torch.randn(8, 6, generator=generator)
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def adam(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


@pytest.fixture(scope="module")
def expected():
    model = base()
    optimizer = adam(model)
    trained(model, optimizer)
    state, of_optimizer = copy.deepcopy(get_state_dict(model, optimizer))
    trained(model, optimizer, 1)
    return state, of_optimizer, get_model_state_dict(model)


def assert_close(found, expected):
    assert list(found) == list(expected) or set(found) == set(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(found[name].to(value.dtype), value, rtol=1e-4, atol=1e-5)
        else:
            assert found[name] == value


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
def test_names_and_values_are_those_of_the_plain_model(expected, wrap):
    plain = base()

    def work(communicator):
        model = wrap(copy.deepcopy(plain))
        optimizer = adam(model)
        trained(model, optimizer)
        state, of_optimizer = get_state_dict(model, optimizer, options=FULL)
        assert not any(isinstance(value, DTensor) for value in state.values())
        assert_close(state, expected[0])
        assert set(of_optimizer["state"]) == set(expected[1]["state"])
        for name, entry in expected[1]["state"].items():
            assert set(of_optimizer["state"][name]) == set(entry)
        assert of_optimizer["param_groups"] == expected[1]["param_groups"]

    run_ranks(4, work)


@pytest.mark.parametrize("saved", WRAPPINGS)
@pytest.mark.parametrize(
    "loaded",
    [
        "sharded",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("plain", "data parallel", "wrapper")),
    ],
)
def test_a_checkpoint_continues_training_in_another_wrapping(expected, tmp_path, saved, loaded):
    plain, other = base(), base(1)

    def save(communicator):
        model = WRAPPINGS[saved](copy.deepcopy(plain))
        optimizer = adam(model)
        trained(model, optimizer)
        dcp.save(dict(zip("mo", get_state_dict(model, optimizer), strict=True)), checkpoint_id=tmp_path)

    def load(communicator):
        model = WRAPPINGS[loaded](copy.deepcopy(other))
        optimizer = adam(model)
        state = dict(zip("mo", get_state_dict(model, optimizer), strict=True))
        dcp.load(state, checkpoint_id=tmp_path)
        set_state_dict(model, optimizer, model_state_dict=state["m"], optim_state_dict=state["o"])
        trained_on = torch.Generator().manual_seed(3)
        x = torch.randn(8, 6, generator=trained_on)
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        return get_model_state_dict(model, options=FULL)

    run_ranks(4, save)
    for state in run_ranks(3, load):
        assert_close(state, expected[2])


def test_sharded_state_dicts_have_dtensors():
    def work(communicator):
        model = shard(base())
        state = get_model_state_dict(model)
        assert isinstance(state["head.weight"], DTensor)
        on_root = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        return len(on_root)

    assert run_ranks(2, work) == [len(base().state_dict()), 0]


def test_zero_redundancy_keeps_each_rank_its_share():
    plain = base()

    def work(communicator):
        model = DistributedDataParallel(copy.deepcopy(plain))
        optimizer = ZeroRedundancyOptimizer(
            [p for p in model.parameters() if p.requires_grad], torch.optim.AdamW, lr=0.01
        )
        trained(model, optimizer)
        own = get_optimizer_state_dict(model, optimizer)
        full = get_optimizer_state_dict(model, optimizer, options=FULL)
        return list(own["state"]), list(full["state"])

    found = run_ranks(2, work)
    assert set(found[0][0]).isdisjoint(found[1][0])
    assert set(found[0][0]) | set(found[1][0]) == set(found[0][1]) == set(found[1][1])


def test_the_state_of_the_optimizer_alone_is_set(expected):
    model, kept = base(1), base(1).state_dict()
    optimizer = adam(model)
    keys = set_state_dict(model, optimizer, model_state_dict={}, optim_state_dict=expected[1])

    assert keys.missing_keys == keys.unexpected_keys == []
    assert torch.equal(model.head.weight, kept["head.weight"])
    saved = expected[1]["state"]["head.weight"]["exp_avg"]
    assert torch.equal(optimizer.state[model.head.weight]["exp_avg"], saved)


@pytest.mark.parametrize(
    "wrap", [lambda model: model, DistributedDataParallel], ids=["plain", "data parallel"]
)
def test_state_dicts_of_submodules_are_deprecated(wrap):
    def first_layer(model):
        return (model if isinstance(model, Net) else model.module).body[0]

    model, other = wrap(base()), wrap(base(1))
    only = {"submodules": {first_layer(model)}}
    with pytest.warns(FutureWarning, match="Getting submodules only"):
        part = get_model_state_dict(model, **only)
    with pytest.warns(FutureWarning, match="Getting submodules only"):
        options = StateDictOptions(keep_submodule_prefixes=False)
        short, _ = get_state_dict(model, adam(model), **only, options=options)
    assert set(part) == {"body.0.weight", "body.0.bias"} and set(short) == {"weight", "bias"}
    with pytest.warns(FutureWarning, match="Passing model_state_dict as a "):
        set_model_state_dict(other, {first_layer(other): short}, options=StateDictOptions(strict=False))
    assert torch.equal(first_layer(other).weight, part["body.0.weight"])
    with pytest.raises(ArgumentError, match="is not in the model"), pytest.warns(FutureWarning):
        get_model_state_dict(model, submodules={nn.Linear(1, 1)})


def test_frozen_parameters_can_be_left_out():
    state = get_model_state_dict(base(), options=StateDictOptions(ignore_frozen_params=True))

    assert "frozen.weight" not in state and "head.weight" in state
    model = base(1)
    kept = model.frozen.weight.clone()
    set_model_state_dict(model, state, options=StateDictOptions(ignore_frozen_params=True))
    assert torch.equal(model.frozen.weight, kept) and torch.equal(model.head.weight, state["head.weight"])


def test_both_names_of_a_frozen_weight_are_left_out():
    model = Tied()
    model.embedding.weight.requires_grad_(False)
    state = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))

    assert set(state) == {"block.0.weight", "block.0.bias"}


def test_rank_0_sends_whole_tensors(expected):
    plain = base(1)

    def work(communicator):
        model = shard(copy.deepcopy(plain))
        optimizer = adam(model)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        own = (expected[0], expected[1]) if communicator.rank == 0 else ({}, {})
        set_state_dict(model, optimizer, model_state_dict=own[0], optim_state_dict=own[1], options=options)
        state, of_optimizer = get_state_dict(model, optimizer, options=FULL)
        assert_close(state, expected[0])
        entry = expected[1]["state"]["head.weight"]
        assert torch.equal(of_optimizer["state"]["head.weight"]["exp_avg"], entry["exp_avg"])

    run_ranks(3, work)


def test_a_model_on_meta_gets_its_parameters():
    state = base().state_dict()

    def work(communicator):
        with torch.device("meta"):
            model = Net()
        set_model_state_dict(model, state, options=FULL)
        return torch.equal(model.head.weight, state["head.weight"])

    assert run_ranks(1, work) == [True]


def test_flat_optimizer_state_dicts(expected):
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    model = base()
    optimizer = adam(model)
    trained(model, optimizer)
    flat = get_optimizer_state_dict(model, optimizer, options=options)
    assert "state.head.weight.exp_avg" in flat and flat["param_groups.head.weight.lr"] == 0.01
    other = adam(model)
    set_optimizer_state_dict(model, other, flat, options=options)

    assert torch.equal(
        other.state[model.head.weight]["exp_avg"], optimizer.state[model.head.weight]["exp_avg"]
    )


def test_two_optimizers_of_one_model():
    model = base()
    both = [torch.optim.Adam(model.body.parameters()), torch.optim.SGD(model.head.parameters(), 0.1, 0.9)]
    model(torch.ones(4, 6)).sum().backward()
    for optimizer in both:
        optimizer.step()
    merged = get_optimizer_state_dict(model, both)
    assert len(merged["param_groups"]) == 2 and "momentum_buffer" in merged["state"]["head.weight"]
    again = [torch.optim.Adam(model.body.parameters()), torch.optim.SGD(model.head.parameters(), 0.5, 0.9)]
    for p in model.parameters():
        p.grad = None
    set_optimizer_state_dict(model, again, merged)

    assert again[1].param_groups[0]["lr"] == 0.1
    buffer = again[1].state[model.head.weight]["momentum_buffer"]
    assert torch.equal(buffer, both[1].state[model.head.weight]["momentum_buffer"])


def test_what_is_refused(expected):
    model = base()
    optimizer = adam(model)
    incomplete = copy.deepcopy(expected[1])
    del incomplete["state"]["head.weight"]
    with pytest.raises(StateDictError, match=r"Missing optimizer state for parameter 'head\.weight'"):
        set_optimizer_state_dict(model, optimizer, incomplete)
    set_optimizer_state_dict(model, optimizer, incomplete, options=StateDictOptions(strict=False))
    with pytest.raises(StateDictError, match="is empty"):
        set_optimizer_state_dict(model, optimizer, {})
    with pytest.raises(ArgumentError, match="full_state_dict must be True"):
        StateDictOptions(broadcast_from_rank0=True)
    with pytest.raises(ArgumentError, match="is not of the model"):
        get_optimizer_state_dict(model, torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1))
    with pytest.raises(ArgumentError, match="is not an optimizer"):
        get_optimizer_state_dict(model, [model])
    with pytest.raises(StateDictError):
        set_model_state_dict(model, {"head.weight": torch.zeros(7, 6)})
    keys = set_model_state_dict(model, {}, options=StateDictOptions(strict=False))
    assert {"head.weight", "body.1.running_var"} < set(keys.missing_keys)


def test_models_and_optimizers_that_save_under_plain_names(expected, tmp_path):
    plain = base()

    def work(communicator):
        model = DistributedDataParallel(copy.deepcopy(plain))
        optimizer = adam(model)
        trained(model, optimizer)
        patch_model_state_dict(model)
        patch_optimizer_state_dict(model, optimizers=optimizer)
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=tmp_path)
        other = DistributedDataParallel(base(1))
        fresh = adam(other)
        patch_model_state_dict(other)
        patch_optimizer_state_dict(other, optimizers=[fresh])
        dcp.load({"model": other, "optimizer": fresh}, checkpoint_id=tmp_path)
        assert_close(other.state_dict(), expected[0])
        state, of_optimizer = get_state_dict(other, fresh)  # of the classes' own methods
        set_state_dict(other, fresh, model_state_dict=state, optim_state_dict=of_optimizer)
        assert_close(state, expected[0])
        return set(of_optimizer["state"])

    assert run_ranks(2, work)[0] == set(expected[1]["state"])
    assert "model.head.weight" in {
        f"model.{name}" for name in dcp.load_whole("model", checkpoint_id=tmp_path)["model"]
    }


@pytest.mark.parametrize("wrap", [DistributedDataParallel, shard], ids=["data parallel", "sharded"])
def test_keys_that_differ_are_named_as_in_the_plain_model(wrap):
    plain = base()

    def work(communicator):
        model = wrap(copy.deepcopy(plain))
        state = get_model_state_dict(model)
        state["abc"] = torch.zeros(10)
        with pytest.raises(RuntimeError, match="Unexpected key"):
            set_model_state_dict(model, state)
        del state["head.weight"]
        keys = set_model_state_dict(model, state, options=StateDictOptions(strict=False))
        assert keys.missing_keys == ["head.weight"] and keys.unexpected_keys == ["abc"]
        del state["abc"]
        with pytest.raises(RuntimeError, match="Missing key"):
            set_model_state_dict(model, state)

    run_ranks(2, work)


class Tied(nn.Module):
    """An embedding and an output layer of one weight, and a recomputed block between them."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.block = checkpoint_wrapper(nn.Sequential(nn.Linear(6, 6), nn.Tanh()))
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.block(self.embedding(x)))


@pytest.mark.parametrize(
    "wrap", [lambda m: m, DistributedDataParallel, fully_shard], ids=["plain", "data", "sharded"]
)
def test_tied_weights_and_recomputed_blocks(tmp_path, wrap):
    torch.manual_seed(0)
    plain = Tied()
    torch.manual_seed(1)
    other = Tied()

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.arange(7)).pow(2).mean().backward()
        optimizer.step()

    def work(communicator):
        model = wrap(copy.deepcopy(plain))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        step(model, optimizer)
        state, of_optimizer = get_state_dict(model, optimizer)
        assert set(state) == {"embedding.weight", "block.0.weight", "block.0.bias", "head.weight"}
        assert set(of_optimizer["state"]) == set(state) - {"head.weight"}
        dcp.save({"m": state, "o": of_optimizer}, checkpoint_id=tmp_path)
        again = wrap(copy.deepcopy(other))
        fresh = torch.optim.Adam(again.parameters(), lr=0.5)
        state, of_optimizer = get_state_dict(again, fresh)
        target = {"m": state, "o": of_optimizer}
        dcp.load(target, checkpoint_id=tmp_path)
        set_state_dict(again, fresh, model_state_dict=target["m"], optim_state_dict=target["o"])
        step(model, optimizer)
        step(again, fresh)
        assert_close(get_model_state_dict(again, options=FULL), get_model_state_dict(model, options=FULL))

    run_ranks(2, work)
