"""`tenon plan` of a graph: a bundle, an exported program, or what ``capture`` returns."""

import json
import re

import pytest
from click.testing import CliRunner

import tenon
from tenon import nn
from tenon.cli import main
from tenon.errors import ArgumentError
from tenon.export import CompiledRunner, capture, export, save
from tenon.testing.suites.target_models import MODELS
from tenon.training.plan.graph_plan import GraphPlan


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def network():
    return nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8)).eval()


def test_bytes_and_operations_follow_from_the_graph():
    graph = capture(network(), tenon.ones(16, 64))

    plan = GraphPlan.of(graph)

    assert plan.state == {"parameter": 4 * plan.parameters} and plan.parameters == 65 * 32 + 33 * 8
    assert (plan.arguments, plan.results, plan.calls) == (16 * 64 * 4, 16 * 8 * 4, 3)
    memory = CompiledRunner(graph).program().plan
    assert (plan.arena, plan.alive) == (memory.peak_bytes, memory.lower_bound)
    assert 4 * 16 * (32 + 8) <= plan.alive <= plan.arena < 3 * 4 * 16 * 32
    products = 2 * 16 * (64 * 32 + 32 * 8)
    assert products < plan.operations < 1.2 * products
    assert plan.seconds > 0 and plan.runs >= 3


@pytest.mark.parametrize("name", ["digits", "gpt", "lstm_tagger"])
def test_kernels_name_all_ops_of_the_graph_with_their_modules(name):
    example = MODELS[name]()
    graph = capture(example.model, *example.args)

    plan = GraphPlan.of(graph)

    modules = {node.module for node in graph.calls if node.module and not node.op.view}
    named = {module for kernel in plan.kernels for module in kernel.modules}
    assert len(named & modules) > 0.6 * len(modules)
    assert all(kernel.ops and kernel.seconds > 0 for kernel in plan.kernels)
    assert sum(kernel.seconds for kernel in plan.kernels) < 5 * plan.seconds + 1e-3


def test_a_graph_of_the_pruned_model_needs_less():
    model, x = network(), tenon.randn(16, 64)
    before = GraphPlan.of(capture(model, x))
    tenon.prune.mask_channels(model, x, 0.5)
    tenon.prune.compact(model, x, seconds=0)

    after = GraphPlan.of(capture(model, x))

    assert after.parameters < 0.6 * before.parameters and after.arena < before.arena
    assert after.operations < 0.6 * before.operations


def test_a_bundle_of_a_training_step_has_optimizer_state(tmp_path):
    model = network().train()
    optimizer = tenon.optim.Adam(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    save(step, tmp_path / "step", (tenon.randn(4, 64),), train=True)

    done = run(tmp_path / "step", "--json")

    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    state = found["memory"]["state"]
    assert state["parameter"] == 4 * found["parameters"] and 2 * state["parameter"] <= state["optimizer"]
    assert any("sqrt" in kernel["ops"] for kernel in found["kernels"])


def test_a_program_is_planned_at_the_sizes_that_are_asked_for(tmp_path):
    shapes = {"input": {0: tenon.export.Dim("batch")}}
    save(export(network(), (tenon.ones(4, 64),), dynamic_shapes=shapes), tmp_path / "net.pt2")

    small, large = (
        json.loads(run(tmp_path / "net.pt2", "--json", *size).stdout) for size in ((), ("--size", "batch=64"))
    )

    assert (small["sizes"], large["sizes"]) == ({"batch": 4}, {"batch": 64})
    assert large["memory"]["arguments"] == 64 * 64 * 4 and large["operations"] == 16 * small["operations"]
    done = run(tmp_path / "net.pt2", "--size", "batch=64")
    assert "batch = 64" in done.output and "the largest of" in done.output and "linear" in done.output


def test_what_does_not_fit_a_graph_is_refused_by_name(tmp_path):
    save(network(), tmp_path / "fixed", (tenon.ones(4, 64),))

    refused = {
        ("-n", "2"): "-n is of training runs, and this is a graph",
        ("--set", "lr=1"): "--set is of training runs",
        ("--size", "batch=2"): "all sizes of .*fixed are fixed",
        ("--size", "batch"): "--size 'batch' is no size. Write e.g. --size batch=64",
    }

    for options, message in refused.items():
        done = run(tmp_path / "fixed", *options)
        assert done.exit_code != 0
        assert re.search(message, done.output), done.output
    assert "--size is of bundles" in run("digits", "--size", "batch=2").output
    with pytest.raises(ArgumentError, match="has no size 'batch'"):
        GraphPlan.of(capture(network(), tenon.ones(4, 64)), batch=2)
