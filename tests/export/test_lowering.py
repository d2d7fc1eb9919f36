"""``lower``: composites are decomposed as far as a target needs, and what cannot be is named at once."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import LoweringError
from tenon.export import capture, lower
from tenon.testing.suites.target_models import MODELS

#: Ops by which every model of the list but the recurrent ones can be written.
SMALL = {
    "abs", "adaptive_avg_pool", "add", "amax", "bitwise_not", "cast", "cat", "clamp", "conv", "conv_input_grad", "convolution",
    "div", "embedding", "erfc", "exp", "expand", "gt", "hardtanh", "index", "linear", "log", "matmul", "max_pool", "maximum", "mean",
    "minimum", "mul", "neg", "permute", "pow", "relu", "reshape", "resample", "rsqrt", "sigmoid", "split", "sqrt", "square", "sub", "sum",
    "tanh", "transpose", "where",
}  # fmt: skip
RECURRENT = {"lstm_tagger", "gru"}


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", sorted(set(MODELS) - RECURRENT))
def test_models_in_a_few_ops_compute_the_same(name):
    tenon.manual_seed(0)
    example = MODELS[name]()
    graph = capture(example.model, *example.args)

    small = lower(graph, SMALL)

    assert {node.name for node in small.calls} <= SMALL
    small.verify()
    with tenon.no_grad():
        for mine, own in zip(flat(small.run(*example.args)), flat(example.model(*example.args)), strict=True):
            assert np.abs(mine.numpy() - own.numpy()).max() < 1e-5


def test_only_what_the_target_lacks_is_decomposed():
    graph = capture(lambda x: tenon.softmax(nn.functional.gelu(x), 1), tenon.ones(2, 3))

    kept = lower(graph, {"gelu", "softmax"})
    apart = lower(graph, SMALL | {"softmax"})

    assert [node.name for node in kept.calls] == ["gelu", "softmax"]
    assert [node.name for node in apart.calls][-1] == "softmax" and len(apart.calls) > 2


def test_all_missing_ops_are_named_with_their_modules():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Conv2d(2, 2, 1)).eval()
    graph = capture(model, tenon.ones(1, 1, 8, 8))

    with pytest.raises(LoweringError) as caught:
        lower(graph, {"relu"})

    text = str(caught.value)
    assert "convolution (0 at" in text and ", 2 at" in text and "max_pool (1 at" in text


def test_a_rule_replaces_an_op_that_has_no_parts():
    graph = capture(lambda x: tenon.logical_not(x > 0), tenon.arange(-1.0, 2.0))
    rules = {"logical_not": lambda f, x: f.eq(x, False)}

    lowered = lower(graph, {"gt", "eq"}, rules)

    assert [node.name for node in lowered.calls] == ["gt", "eq"]
    assert lowered.run(tenon.arange(-1.0, 2.0)).tolist() == [True, True, False]


def test_the_graph_itself_stays_as_it_was():
    graph = capture(lambda x: tenon.softmax(x, 1), tenon.ones(2, 3))
    text = str(graph)

    lower(graph, SMALL)

    assert str(graph) == text


def test_a_training_step_is_lowered_with_its_residuals():
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 3))
    optimizer = tenon.optim.Adam(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batch = tenon.randn(5, 4), tenon.randint(0, 3, (5,))
    graph = capture(step, *batch, train=True)
    composites = [node.name for node in graph.calls if hasattr(node.op, "decompose")]
    primitive = {node.name for node in graph.calls} - {"gelu", "layer_norm"}

    lowered = lower(graph, primitive | SMALL)

    assert "gelu" in composites and not {"gelu", "layer_norm"} & {node.name for node in lowered.calls}
    assert lowered.run(*batch).item() == pytest.approx(graph.run(*batch).item(), abs=1e-6)


def test_composites_that_a_target_rejects_are_replaced_by_their_parts():
    graph = capture(lambda x: tenon.softmax(x, 1), tenon.ones(2, 3))
    asked = []

    def rejected(lowered):
        asked.append([node.name for node in lowered.calls])
        return [node for node in lowered.calls if node.name == "softmax"]

    lowered = lower(graph, {"softmax", "sub", "amax", "exp", "sum", "div"}, rejected=rejected)

    assert asked == [["softmax"], ["amax", "sub", "exp", "sum", "div"]]
    assert [node.name for node in lowered.calls] == asked[-1]


def test_a_rejected_call_without_parts_stays():
    graph = capture(lambda x: x.exp(), tenon.ones(2))

    assert [node.name for node in lower(graph, {"exp"}, rejected=lambda lowered: lowered.calls).calls] == [
        "exp"
    ]
