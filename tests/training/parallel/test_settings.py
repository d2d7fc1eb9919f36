"""Mistakes in the section [parallel] are named by their path, before anything is created."""

import pytest

from tenon import nn
from tenon.distributed.tensor.parallel import RowwiseParallel
from tenon.errors import ConfigError
from tenon.training.config import resolve
from tenon.training.parallel.build import check
from tenon.training.parallel.mesh import Sizes
from tenon.training.parallel.modules import gathered_alone
from tenon.training.parallel.tensor_plan import plan_of

BASE = {"model": "m:Net", "data": "m:load"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(200, 200)
        self.layers = nn.ModuleList(
            [nn.Linear(200, 200), nn.LayerNorm(200), nn.Sequential(nn.Linear(200, 200))]
        )


def config(**parallel):
    return resolve([BASE, {"parallel": parallel}])


@pytest.mark.parametrize(
    "given, ranks, sizes",
    [
        ({}, 6, (1, 6, 1, 1)),
        ({"shard": 2}, 6, (1, 3, 2, 1)),
        ({"shard": -1}, 6, (1, 1, 6, 1)),
        ({"shard": -1, "data": 2, "pipeline": 3}, 6, (3, 2, 1, 1)),
        ({"tensor": 2, "pipeline": 2}, 8, (2, 2, 1, 2)),
    ],
    ids=str,
)
def test_sizes_multiply_to_the_ranks(given, ranks, sizes):
    assert Sizes.of(config(**given).parallel, ranks).shape == sizes


@pytest.mark.parametrize(
    "given, ranks, words",
    [
        ({"shard": 4}, 6, "shard = 4, tensor = 1 need a multiple of 4 ranks, but there are 6"),
        ({"shard": 2, "data": 2}, 8, "data = 2, shard = 2, tensor = 1 need 4 ranks, but there are 8"),
        ({"shard": -1, "tensor": 4}, 2, "need a multiple of 4 ranks, but there are 2"),
        ({"tensor": 2}, 2, "needs a plan of which layers .* give Net the attribute tensor_parallel_plan"),
        (
            {"tensor": 2, "tensor_plan": {"first": "column"}},
            2,
            r"'first' = 'column' is no style\. Known: colwise",
        ),
        (
            {"tensor": 2, "tensor_plan": {"frist": "rowwise"}},
            2,
            r"'frist' matches no module of Net\. Did you mean 'first'",
        ),
        ({"shard": 2, "modules": ["blocks.*"]}, 2, r"modules: 'blocks\.\*' matches no module of Net"),
        ({"pipeline": 4}, 4, r"parallel\.pipeline = 4: .*has 3 members"),
        (
            {"pipeline": 2, "split": ["first", "layers.1"]},
            2,
            "has 2 paths: of a pipeline of 2 stages, name the 1",
        ),
        ({"pipeline": 2, "split": ["layer.1"]}, 2, "no module 'layer.1'. Did you mean 'layers.1'"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_model_or_the_ranks(given, ranks, words):
    with pytest.raises(ConfigError, match=words):
        check(config(**given), Net(), ranks)


def test_logical_shards_fit_the_mesh_and_not_only_the_number_of_ranks():
    world = {"deterministic": "world", "batch_size": 24}
    check(resolve([BASE, {**world, "shards": 12, "parallel": {"shard": 4}}]), Net(), 4)
    with pytest.raises(ConfigError, match=r"shards=12 cannot be shared by 8 ranks"):
        check(resolve([BASE, {**world, "shards": 12, "parallel": {"shard": 8}}]), Net(), 8)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"parallel": {"shard": 0}}, r"parallel\.shard = 0: must be a number of ranks, or -1"),
        ({"parallel": {"tensor": 0}}, r"parallel\.tensor = 0"),
        ({"parallel": {"shards": 2}}, r"unknown key 'parallel\.shards'\. Did you mean 'parallel\.shard'"),
        ({"parallel": {"schedule": "2F2B"}}, r"parallel\.schedule = '2F2B'"),
        ({"parallel": {"tensor": 2}, "deterministic": "world"}, "allows data and shard only"),
        ({"parallel": {"pipeline": 2}, "deterministic": "world"}, "allows data and shard only"),
        ({"parallel": {"shard": 2}, "prune": {"amount": 0.5}}, "prune needs the whole model"),
        ({"parallel": {"tensor": 2}, "data_parallel": {"comm_hook": "bf16"}}, "comm_hook needs the whole"),
        ({"parallel": {"shard": -1}, "data_parallel": {"shard_optimizer": True}}, "shard_optimizer needs"),
        ({"parallel": {"shard": 2}, "log": {"histograms": 5}}, r"log\.histograms needs the whole model"),
        ({"parallel": {"pipeline": 2}, "accumulate": 2}, r"set parallel\.microbatches, not accumulate"),
        ({"parallel": {"pipeline": 2}, "data_parallel": {"sync_batch_norm": True}}, "stages of a pipeline"),
    ],
    ids=str,
)
def test_what_contradicts_itself(settings, words):
    with pytest.raises(ConfigError, match=words):
        resolve([BASE, settings])


def test_a_plan_may_be_a_method_and_have_styles():
    class Planned(Net):
        def tensor_parallel_plan(self):
            return {"first": RowwiseParallel(), "layers.0": "colwise"}

    plan = plan_of(Planned(), {})
    assert list(plan) == ["first", "layers.0"] and isinstance(plan["first"], RowwiseParallel)
    assert list(plan_of(Planned(), {"layers.0": "colwise"})) == ["layers.0"]


def test_members_of_lists_are_gathered_one_at_a_time_but_for_small_ones():
    model = Net()

    assert gathered_alone(model, []) == [model.layers[0], model.layers[2]]
    assert gathered_alone(model, ["layers.2*", "first"]) == [model.first, model.layers[2][0], model.layers[2]]
