"""Sizes that may change: the runner takes any, and checks that they fit one another."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.export import capture
from tenon.nn import functional as F
from tenon.testing.suites.target_models import BERT, GPT, Digits, Tagger, UNet, ViT
from tenon_target_numpy.program import Program
from tenon_target_numpy.source import runner_text
from tenon_target_numpy.target import NumpyTarget

pytestmark = pytest.mark.slow


def runner_of(graph):
    """Return the names of the written file, and a function that runs it."""
    program = Program(NumpyTarget().lowered(graph)).build()
    names = {"__name__": "runner", "__file__": "/runner.py"}
    exec(compile(runner_text(program, (1e-5, 1e-5)), "runner.py", "exec"), names)

    def run(*inputs):
        arrays = names["checked_inputs"](inputs, {})
        numbers = {name: value for name, (value, _) in names["NUMBERS"].items()}
        with np.errstate(all="ignore"):
            outputs, _ = names["compute"](program.arrays, numbers, *arrays)
        return outputs

    return names, run


def tokens(*shape):
    return tenon.randint(0, 20, shape)


CASES = {
    "digits": (Digits, {"images": {0: "batch"}}, lambda n: (tenon.randn(n, 1, 8, 8),)),
    "vit": (ViT, {"x": {0: "batch"}}, lambda n: (tenon.randn(n, 3, 16, 16),)),
    "unet": (UNet, {"x": {0: "batch"}}, lambda n: (tenon.randn(n, 1, 8, 8),)),
    "gpt": (GPT, {"tokens": {0: "batch", 1: "length"}}, lambda n: (tokens(n, n + 3),)),
    "bert": (
        BERT, {"tokens": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}},
        lambda n: (tokens(n, n + 4), tokens(n, n + 4) > 1),
    ),
    "tagger": (Tagger, {"words": {0: "batch"}}, lambda n: (tokens(n, 5),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_models_run_at_other_sizes(name):
    make, dynamic, example = CASES[name]
    tenon.manual_seed(0)
    model = make().eval()
    graph = capture(model, *example(3), dynamic=dynamic)

    _, run = runner_of(graph)

    for number in (1, 3, 8):
        inputs = example(number)
        (own,) = run(*(x.numpy() for x in inputs))
        np.testing.assert_allclose(own, model(*inputs).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_training_step_takes_any_batch():
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3))
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    dynamic = {"x": {0: "batch"}, "y": {0: "batch"}}
    graph = capture(step, tenon.randn(5, 4), tenon.randint(0, 3, (5,)), train=True, dynamic=dynamic)

    _, run = runner_of(graph)

    for number in (2, 9):
        x, y = tenon.randn(number, 4), tenon.randint(0, 3, (number,))
        np.testing.assert_allclose(run(x.numpy(), y.numpy())[0], graph.run(x, y).numpy(), rtol=1e-5)


def test_sizes_that_do_not_fit_are_named():
    dynamic = {"x": {0: "batch"}, "y": {0: "batch"}}
    graph = capture(lambda x, y: x + y, tenon.randn(4, 2), tenon.randn(4, 2), dynamic=dynamic)

    names, run = runner_of(graph)

    def ones(*shape):
        return np.ones(shape, np.float32)

    assert names["INPUTS"]["x"] == ("float32", ("batch", 2))
    assert run(ones(7, 2), ones(7, 2))[0].shape == (7, 2)
    with pytest.raises(
        ValueError, match="0 of the input 'y' has size 5; it must have 6, as 'batch' has in 'x'"
    ):
        run(ones(6, 2), ones(5, 2))
    with pytest.raises(ValueError, match="dimension 1 of the input 'x' has size 3; it must have 2"):
        run(ones(6, 3), ones(6, 2))
