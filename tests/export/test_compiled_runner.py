"""``CompiledRunner``: a captured graph as a compiled program computes what the graph computes."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import CaptureError, ShapeError
from tenon.export import CompiledRunner, Runner, capture, export
from tenon.export.runner import KEPT
from tenon.testing.suites.target_models import MODELS
from tenon.utils._pytree import tree_leaves


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_computed_as_op_by_op(name):
    example = MODELS[name]()
    graph = capture(example.model, *example.args)
    text = str(graph)
    runner = CompiledRunner(graph)

    for _ in range(2):
        found = runner(*example.args)

    for mine, own in zip(tree_leaves(found), tree_leaves(graph.run(*example.args)), strict=True):
        np.testing.assert_allclose(mine.numpy(), own.numpy(), rtol=1e-4, atol=1e-5)
    assert str(graph) == text, "passes ran on a copy"
    assert runner.program().plan.peak_bytes > 0


def test_a_training_step_learns_as_op_by_op():
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = tenon.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = tenon.randn(8, 6), tenon.randint(0, 3, (8,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = capture(step, x, y, train=True)
    compiled, plain = CompiledRunner(graph), Runner(graph)

    for number in range(5):
        compiled.scalars["optimizer.lr"] = plain.scalars["optimizer.lr"] = 0.01 / (1 + number)
        assert compiled(x, y).item() == pytest.approx(plain(x, y).item(), rel=1e-5)

    assert compiled.scalars == plain.scalars
    for name, array in plain.state.items():
        np.testing.assert_allclose(compiled.state[name], array, rtol=1e-4, atol=1e-6)
    assert all(tenon.equal(before[name], value) for name, value in model.state_dict().items())


def test_sizes_that_change_have_a_program_each():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).eval()
    runner = CompiledRunner(capture(model, tenon.ones(3, 4), dynamic={"input": {0: "batch"}}))

    for count in (3, 5, 3):
        x = tenon.randn(count, 4)
        tenon.testing.assert_close(runner(x), model(x))

    assert runner.program() is runner.program(batch=3) is not runner.program(batch=5)
    with pytest.raises(ShapeError, match=r"dimension 1 is 5, not 4"):
        runner(tenon.randn(3, 5))


def test_as_many_programs_as_graphs_are_cached():
    runner = CompiledRunner(capture(lambda x: x * 2.0, tenon.ones(3), dynamic={"x": {0: "n"}}))

    for count in range(2, KEPT + 5):
        assert runner(tenon.ones(count)).tolist() == [2.0] * count
        assert len(runner._bound) == len(runner._at) <= KEPT


def test_arguments_that_the_function_changes_are_changed():
    class Counting(nn.Module):
        def forward(self, x, y):
            before = x.clone()
            x.add_(1.0)
            return before, x * y

    y = tenon.full((3,), 2.0)
    runner = CompiledRunner(export(Counting(), (tenon.ones(3), y)).captured)

    x = tenon.zeros(3)
    for count in (0.0, 1.0):
        before, product = runner(x, y)
        assert before.tolist() == [count] * 3
        assert product.tolist() == [2 * count + 2] * 3
        assert x.tolist() == [count + 1] * 3


def test_a_guard_is_checked():
    runner = CompiledRunner(capture(lambda x: x if x.sum() > 0 else -x, tenon.ones(3), guards=True))

    assert runner(tenon.ones(3)).tolist() == [1.0] * 3
    with pytest.raises(CaptureError, match="it was True when the function was captured and is False now"):
        runner(-tenon.ones(3))
