"""`tenon plan` of a graph: a bundle, an exported program, or what ``capture`` returns."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

import tenon
from tenon import nn
from tenon.cli import main
from tenon.data.collate import fetch
from tenon.errors import ArgumentError
from tenon.export import CompiledRunner, Runner, capture, export, save
from tenon.extend import run_parts
from tenon.testing.suites.target_models import MODELS
from tenon.training.data_parallel import make_synchronizer
from tenon.training.plan import step_graph
from tenon.training.plan.graph_plan import GraphPlan
from tenon.training.step import train_step


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


def session_of(folder, *settings):
    config, _ = run_parts.resolve("digits", settings, None)
    return run_parts.open_session(config, run_parts.recipe_named("digits"), None, folder / "run")


@pytest.mark.slow
def test_the_graph_of_a_recipes_step_is_planned_as_a_bundle_of_it_is(tmp_path):
    session = session_of(tmp_path, "batch_size=8")

    found = json.loads(json.dumps(step_graph.plan(session)))

    inputs, targets = run_parts.unpack(fetch(session.data.train, range(8)))
    graph = capture(lambda x, y: run_parts.local_step(session, [(x, y)]), inputs, targets, train=True)
    one, other = GraphPlan.read(found["plan"]), GraphPlan.of(graph)
    assert (one.state, one.calls, one.operations, one.arena) == (
        other.state, other.calls, other.operations, other.arena
    )  # fmt: skip
    assert one.plain() == found["plan"] and found["remark"] == ""
    assert one.state["parameter"] == sum(4 * p.numel() for p in session.model.parameters())
    assert one.operations > 3 * 2 * 8 * 16 * 9 * 32 * 16  # its second convolution, three times


def test_a_step_on_micro_batches_clips_and_computes_as_the_run_does(tmp_path):
    optimizer = ("optimizer.name=SGD", "clip_grad_norm=0.01")
    session = session_of(tmp_path, "batch_size=8", "accumulate=2", "model_options.dropout=0.0", *optimizer)
    session.optimizer.param_groups[0]["lr"] = 0.5  # not what the schedule begins with

    graph, remark = step_graph.captured(session)

    assert remark == ""
    before = {name: p.detach().clone() for name, p in session.model.named_parameters()}
    runner = Runner(graph)
    runner.run(graph.example)
    session.communicator.step = 0
    synchronizer = make_synchronizer(session.config, session.model, session.communicator)
    train_step(session, synchronizer, list(range(8)))
    steps = [(p - before[name]).norm() for name, p in session.model.named_parameters()]
    assert abs(tenon.stack(steps).norm().item() - 0.5 * 0.01) < 1e-4  # the norm of all gradients is clipped
    for name, parameter in session.model.named_parameters():
        np.testing.assert_allclose(runner.state[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_step_that_reads_values_is_planned_as_it_ran(tmp_path):
    session = session_of(tmp_path, "batch_size=4")
    loss = session.loss
    session.loss = lambda out, y: loss(out, y) * (2 if out.sum() > 0 else 3)

    found = step_graph.plan(session)

    assert "of this one batch" in found["remark"] and "test_plan_graph.py" in found["remark"]
    assert GraphPlan.read(found["plan"]).operations > 0


def test_a_step_that_cannot_be_captured_is_planned_without_its_graph(tmp_path):
    session = session_of(tmp_path, "batch_size=4")
    scheduler = tenon.optim.lr_scheduler.StepLR(session.optimizer, 1)
    session.model.register_forward_hook(lambda *_: scheduler.step())

    found = step_graph.plan(session)

    assert set(found) == {"remark"} and "a scheduler's step before" in found["remark"]


@pytest.mark.slow
def test_the_plan_of_a_recipe_shows_the_graph_of_its_step():
    done = run("digits", "--set", "batch_size=8", "--json")

    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["graph"]
    assert found["calls"] > 100 and any("convolution" in kernel["ops"] for kernel in found["kernels"])
    shown = run("digits", "--set", "batch_size=8", "-n", "1").output
    assert "graph of a step" in shown and "calls of ops" in shown and "the largest of" in shown


def test_what_does_not_fit_a_graph_is_refused_by_name(tmp_path):
    save(network(), tmp_path / "fixed", (tenon.ones(4, 64),))

    refused = {
        ("-n", "2"): "-n applies to training runs only, and this is a graph",
        ("--set", "lr=1"): "--set applies to training runs only",
        ("--size", "batch=2"): "all sizes of .*fixed are fixed",
        ("--size", "batch"): "--size 'batch' does not name a size. Write e.g. --size batch=64",
    }

    for options, message in refused.items():
        done = run(tmp_path / "fixed", *options)
        assert done.exit_code != 0
        assert re.search(message, done.output), done.output
    assert "--size applies to bundles only" in run("digits", "--size", "batch=2").output
    with pytest.raises(ArgumentError, match="has no size 'batch'"):
        GraphPlan.of(capture(network(), tenon.ones(4, 64)), batch=2)
