"""Sizes that may change: one module, run at several of them, in models, in a training step and op by op."""

import inspect

import pytest
from tests.plugins.target_stablehlo.programs import check, needs_jax

import tenon as t
from tenon import nn
from tenon.errors import ShapeError
from tenon.export import capture
from tenon.nn import functional as F
from tenon.testing.suites.target_models import MODELS
from tenon_target_stablehlo.target import StableHloTarget

pytestmark = [needs_jax, pytest.mark.slow]


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_any_batch(name, tmp_path):
    example, axis = MODELS[name](), 1 if name == "gru" else 0
    names = list(inspect.signature(example.model.forward).parameters)[: len(example.args)]
    graph = capture(example.model, *example.args, dynamic={each: {axis: "batch"} for each in names})
    longer = tuple(t.cat([a, a, a], axis) for a in example.args)

    check(tmp_path, graph, calls=[example.args, longer])


def test_gpt_takes_any_batch_and_any_length(tmp_path):
    example = MODELS["gpt"]()
    graph = capture(example.model, *example.args, dynamic={"tokens": {0: "batch", 1: "time"}})

    check(tmp_path, graph, calls=[example.args, (t.randint(0, 40, (3, 5)),)])


def test_a_convolutional_net_takes_images_of_any_size(tmp_path):
    example = MODELS["resnet"]()
    graph = capture(example.model, *example.args, dynamic={"x": {2: "height", 3: "width"}})

    check(tmp_path, graph, calls=[example.args, (t.randn(2, 3, 24, 40),)])


def test_a_training_step_takes_any_batch(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = t.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    small, large = ((t.randn(n, 4), t.randint(0, 3, (n,))) for n in (5, 9))
    graph = capture(step, *small, train=True, dynamic={"x": {0: "batch"}, "y": {0: "batch"}})

    check(tmp_path, graph, calls=[small, large, small], tolerance=1e-4)


def test_ops_along_an_axis_whose_size_may_change(tmp_path):
    functions = [
        lambda a: a.softmax(0), lambda a: a.flip(0), lambda a: a[0], lambda a: a[-1], lambda a: a[:2], lambda a: a[1:], lambda a: a[-2:],
        lambda a: a[: a.shape[0] - 1], lambda a: a[a.shape[0] // 2], lambda a: t.cat([a, a], 0), lambda a: a.mean(), lambda a: a.mean(0),
        lambda a: a.reshape(-1, 35), lambda a: a.transpose(0, 1) @ a.permute(1, 2, 0), lambda a: a.argmax(0), t.tril,
        lambda a: a[:, t.tensor([0, 3])], lambda a: a.unbind(1)[2], lambda a: t.stack([a, a], 1), lambda a: a.split((2, 3), 1)[1],
        lambda a: F.pad(a, (1, 2)), lambda a: a.cumsum(0), lambda a: a.sort(1)[0], lambda a: a.gather(1, (a[:, :2] > 0).long()),
        lambda a: t.arange(a.shape[0]), lambda a: t.zeros(a.shape[0], 2), lambda a: a * a.shape[0], lambda a: a.expand(2, *a.shape),
        lambda a: F.max_pool1d(a.permute(1, 2, 0), 2), lambda a: F.adaptive_avg_pool1d(a.permute(1, 2, 0), 1), lambda a: a.repeat(2, 1, 1),
    ]  # fmt: skip

    def function(a):
        return [each(a) for each in functions]

    graph = capture(function, t.randn(3, 5, 7), dynamic={"a": {0: "n"}})

    check(tmp_path, graph, calls=[(t.randn(n, 5, 7),) for n in (3, 4, 8)])


def test_a_size_out_of_range_is_named(tmp_path):
    graph = capture(nn.Linear(4, 3), t.ones(5, 4), dynamic={"input": {0: "batch"}})
    graph.symbols["batch"] = graph.symbols["batch"].bounded(2, 8)
    target = StableHloTarget()
    target.write(target.lowered(graph), None, tmp_path)

    with pytest.raises(ShapeError, match="batch is 9; it may be 2 to 8"):
        target.run(tmp_path, [[t.ones(9, 4).numpy()]])
    with pytest.raises(ShapeError, match=r"input 'input' has shape \[5, 3\]; it must have \['batch', 4\]"):
        target.run(tmp_path, [[t.ones(5, 3).numpy()]])
