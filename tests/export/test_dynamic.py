"""Sizes that may change: expressions in the graph, checks at run time, and what is refused."""

import math

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.engine.aval import Aval
from tenon.errors import ArgumentError, BundleError, CaptureError, LoweringError, ShapeError
from tenon.export import Runner, capture, lower, save, sizes, verify
from tenon.export.bundle import load
from tenon.testing.suites.reference_target import ReferenceTarget
from tenon.testing.suites.target_models import MODELS

pytestmark = pytest.mark.together


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(0)


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


#: Model -> axis of the batch in each argument.
BATCH = {"gru": 1}
NAMES = {"net": "x", "dynamic_net": "x", "digits": "images", "resnet": "x", "mobilenet": "x", "vit": "x",
         "gpt": "tokens", "unet": "x", "lstm_tagger": "words", "gru": "x"}  # fmt: skip


FEW = {"net", "resnet", "bert", "lstm_tagger"}
"""Models of different kinds."""


def with_batch(name):
    axis = BATCH.get(name, 0)
    if name == "bert":
        return {"tokens": {0: "batch"}, "mask": {0: "batch"}}
    return {NAMES[name]: {axis: "batch"}}


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_every_model_takes_any_batch(name):
    example = MODELS[name]()

    graph = capture(example.model, *example.args, dynamic=with_batch(name))

    axis = BATCH.get(name, 0)
    for size in (1, 4):
        args = [tenon.cat([arg.narrow(axis, 0, 1)] * size, axis) for arg in example.args]
        with tenon.no_grad():
            expected = flat(example.model(*args))
        for mine, own in zip(flat(graph.run(*args)), expected, strict=True):
            assert tenon.allclose(mine, own, atol=1e-5)


def test_sizes_are_resolved_once_until_the_graph_is_edited(monkeypatch):
    graph = capture(lambda x: (x * 2).reshape(-1) + 1, tenon.ones(3, 4), dynamic={"x": {0: "batch"}})
    resolved = []
    at = type(graph).at
    monkeypatch.setattr(type(graph), "at", lambda self, **sizes: resolved.append(sizes) or at(self, **sizes))

    for size in (2, 5, 2, 5):
        assert graph.run(tenon.ones(size, 4)).tolist() == [3.0] * 4 * size
    assert resolved == [{"batch": 2}, {"batch": 5}]
    mul, _, add = graph.calls
    for edit, result in (
        (lambda: setattr(mul, "args", (mul.args[0], 3.0)), 4.0),
        (lambda: setattr(add, "op", tenon.ops.sub), 2.0),
        (lambda: graph.outputs.__setitem__(0, mul.out()), 3.0),
    ):
        edit()
        for _ in range(2):
            assert graph.run(tenon.ones(2, 4)).ravel().tolist() == [result] * 8
    assert len(resolved) == 5
    with pytest.raises(ShapeError, match="does not hold for batch = 2"):
        del graph.symbolic[graph.calls[1]]
        graph.outputs[0] = add.out()
        graph.run(tenon.ones(2, 4))


def test_arguments_that_are_edited_in_place_are_resolved_anew():
    graph = capture(lambda x: x.split([1, 3], 1)[0] * 1.5, tenon.ones(3, 4), dynamic={"x": {0: "batch"}})
    assert graph.run(tenon.ones(2, 4)).shape == (2, 1)
    split, mul = graph.calls
    graph.symbolic = {node: dict(sizes) for node, sizes in graph.symbolic.items()}

    split.attrs["sizes"] = [2, 2]
    split.avals = tuple(type(a)((3, 2), a.dtype) for a in split.avals)
    mul.avals = split.avals[:1]
    assert graph.run(tenon.ones(2, 4)).shape == (2, 2)
    split.attrs["sizes"][:] = [1, 3]

    with pytest.raises(ShapeError, match="does not hold"):
        graph.run(tenon.ones(2, 4))


def test_calls_that_are_added_have_the_sizes_of_their_arguments():
    dynamic = {"x": {0: "batch"}, "y": {0: "batch"}}
    graph = capture(lambda x, y: (x * 2, y + 1), tenon.ones(3, 4), tenon.ones(3, 4), dynamic=dynamic)
    (x, y), f = graph.outputs, tenon.ops
    size = graph.with_sizes(x.node).avals[0].shape[0]

    swapped = graph.call(f.transpose, (y,), {"axis0": 0, "axis1": 1}, (Aval((4, 3), x.aval.dtype),))
    product = graph.call(f.matmul, (x, swapped.out()), {}, (Aval((3, 3), x.aval.dtype),))
    joined = graph.call(f.cat, (x, y), {"axis": 0}, (Aval((6, 4), x.aval.dtype),))
    flat = graph.call(
        f.reshape, (product.out(),), {"shape": (size, 1, size)}, (Aval((size, 1, size), x.aval.dtype),)
    )
    graph.outputs = [flat.out(), joined.out()]

    graph.verify()
    text = str(graph)
    assert "float32[batch, batch] = matmul" in text and "float32[2*batch, 4] = cat" in text
    assert "float32[batch, 1, batch] = reshape(%5, shape=(batch, 1, batch))" in text
    for batch in (1, 2, 5):
        a, b = tenon.randn(batch, 4), tenon.randn(batch, 4)
        mine = graph.run(a, b)
        tenon.testing.assert_close(mine[0], ((a * 2) @ (b + 1).T)[:, None])
        tenon.testing.assert_close(mine[1], tenon.cat([a * 2, b + 1]))


def test_shapes_are_found_again_after_an_edit():
    graph = capture(lambda x: x.sum(1).exp(), tenon.ones(3, 4), dynamic={"x": {0: "batch"}})
    total, exp = graph.calls
    total.attrs["axes"], total.avals, exp.avals = (0,), *[(Aval((4,), total.avals[0].dtype),)] * 2

    with pytest.raises(ShapeError, match=r"does not hold for batch = 2: .*graph\.infer_sizes\(\)"):
        graph.run(tenon.ones(2, 4))
    graph.infer_sizes()

    assert "float32[4] = sum" in str(graph) and "batch" not in str(graph).splitlines()[2]
    tenon.testing.assert_close(graph.run(tenon.ones(2, 4)), tenon.full((4,), math.exp(2)))


def test_the_text_shows_expressions():
    graph = capture(lambda x: x.reshape(-1), tenon.ones(3, 4), dynamic={"x": {0: "batch"}})

    assert str(graph).splitlines()[0] == "%0: float32[batch, 4] = input  # x"
    assert "float32[4*batch] = reshape(%0, shape=(4*batch,))" in str(graph)
    assert graph.symbols["batch"].example == 3 and graph.arguments[0].avals[0].shape == (3, 4)


@pytest.mark.slow
def test_images_of_any_size():
    example = MODELS["resnet"]()
    axes = {"x": {0: "batch", 2: "height", 3: "width"}}

    graph = capture(example.model, *example.args, dynamic=axes)

    assert "(height + 1)//2" in str(graph) and "(width + 7)//8" in str(graph)
    for shape in ((1, 3, 33, 47), (3, 3, 64, 40)):
        x = tenon.randn(*shape)
        with tenon.no_grad():
            assert tenon.allclose(graph.run(x), example.model(x), atol=1e-5)


@pytest.mark.slow
def test_text_of_any_length_with_a_causal_mask():
    example = MODELS["gpt"]()

    graph = capture(example.model, *example.args, dynamic={"tokens": {0: "batch", 1: "length"}})

    for shape in ((1, 1), (3, 17), (2, 64)):
        tokens = tenon.randint(0, 40, shape)
        with tenon.no_grad():
            assert tenon.allclose(graph.run(tokens), example.model(tokens), atol=1e-5)


def test_sizes_are_checked_with_names():
    def function(x, y):
        return x @ y

    axes = {"x": {0: "rows", 1: "inner"}, "y": {0: "inner"}}
    graph = capture(function, tenon.ones(2, 3), tenon.ones(3, 4), dynamic=axes)

    assert tuple(graph.run(tenon.ones(5, 6), tenon.ones(6, 4)).shape) == (5, 4)
    with pytest.raises(
        ShapeError,
        match=r"dimension 0 of argument 'y' is 5, but inner = 6 in dimension 1 of argument 'x'",
    ):
        graph.run(tenon.ones(2, 6), tenon.ones(5, 4))
    with pytest.raises(ShapeError, match="dimension 1 is 5, not 4"):
        graph.run(tenon.ones(2, 3), tenon.ones(3, 5))


def test_a_graph_at_given_sizes_is_plain():
    example = MODELS["digits"]()
    graph = capture(example.model, *example.args, dynamic={"images": {0: "batch"}})

    plain = graph.at(batch=7)

    assert not plain.symbols and plain.arguments[0].avals[0].shape == (7, 1, 8, 8)
    assert graph.arguments[0].avals[0].shape == (3, 1, 8, 8)
    with pytest.raises(ShapeError, match=r"\[3, 1, 8, 8\], but \[7, 1, 8, 8\]"):
        plain.run(*example.args)
    with pytest.raises(ArgumentError, match="no size 'width'; those that may change are batch"):
        graph.at(width=2)


@pytest.mark.slow
def test_lowered_graphs_keep_their_expressions():
    example = MODELS["gpt"]()
    graph = capture(example.model, *example.args, dynamic={"tokens": {0: "batch", 1: "length"}})
    ops = {node.name for node in graph.calls} - {"layer_norm", "softmax", "gelu"} | {
        "sub", "exp", "sum", "div", "amax", "mean", "rsqrt", "mul", "add", "square", "sqrt", "tanh", "pow", "var",
    }  # fmt: skip

    lowered = lower(graph, ops)

    assert "softmax" not in {node.name for node in lowered.calls} and lowered.symbols == graph.symbols
    tokens = tenon.randint(0, 40, (3, 11))
    with tenon.no_grad():
        assert tenon.allclose(lowered.run(tokens), example.model(tokens), atol=1e-5)


def test_a_loop_over_a_size_is_refused_with_the_line():
    def function(x):
        for _ in range(x.shape[0]):
            x = x.relu() + 1
        return x * 2

    with pytest.raises(CaptureError, match=r"test_dynamic\.py:\d+"):
        capture(function, tenon.ones(3), dynamic={"x": {0: "n"}})


def test_a_number_that_depends_on_a_size_is_refused_with_the_line():
    with pytest.raises(CaptureError, match=r"mul at .*test_dynamic\.py:\d+ depends on the sizes in a way"):
        capture(lambda x: x * math.cos(x.shape[0]), tenon.ones(3), dynamic={"x": {0: "n"}})


@pytest.mark.parametrize(
    "number",
    [
        lambda n, m: 1.0 / n,
        lambda n, m: 0.5 * n * m,
        lambda n, m: 3.0 / (n * m - 1),
        lambda n, m: 0.1 * n / (n - 1),
        lambda n, m: 1.0 / ((n + 1) // 2),
        lambda n, m: 1.0 / math.sqrt(m),
        lambda n, m: math.sqrt(n * m) * 0.3,
        lambda n, m: 1.5 + 0.25 / m,
    ],
)
def test_numbers_computed_from_sizes_are_written_as_ops(number):
    def function(x):
        return x * number(*x.shape)

    graph = capture(function, tenon.ones(4, 6), dynamic={"x": {0: "n", 1: "m"}})

    for shape in ((3, 5), (8, 2), (31, 17)):
        x = tenon.randn(shape)
        assert tenon.allclose(graph.run(x), function(x), rtol=1e-6)


def test_batch_norm_trains_with_any_batch():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2))
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = tenon.randn(4, 1, 6, 6), tenon.tensor([0, 1, 1, 0])
    graph = capture(step, x, y, train=True, dynamic={"x": {0: "batch"}, "y": {0: "batch"}})
    runner = Runner(graph)

    for size in (2, 4, 7):
        x, y = tenon.randn(size, 1, 6, 6), tenon.arange(size) % 2
        assert runner(x, y).item() == pytest.approx(step(x, y).item(), rel=1e-5)
    assert np.allclose(runner.state["1.running_var"], model[1].running_var.numpy(), rtol=1e-6)


def test_a_function_that_fails_at_other_sizes_is_refused():
    linear = nn.Linear(4, 2)

    with pytest.raises(CaptureError, match=r"fails at other sizes than the example's \(width = 4\)"):
        capture(linear, tenon.ones(3, 4), dynamic={"input": {1: "width"}})


@pytest.mark.parametrize(
    ("dynamic", "match"),
    [
        ({"y": {0: "n"}}, "names 'y'; the arguments that are tensors are x"),
        ({"x": {3: "n"}}, "axis 3 of 'x'"),
        ({"x": {0: "a b"}}, "which is not a name"),
        ({"x": {0: "class"}}, "'class', which is not a name"),
        ({"x": {0: "n", 1: "n"}}, "dimension 1 of argument 'x' is 3, but n = 2 in dimension 0"),
    ],
)
def test_wrong_requests_are_refused(dynamic, match):
    with pytest.raises(ArgumentError, match=match):
        capture(lambda x: x + 1, tenon.ones(2, 3), dynamic=dynamic)


def test_a_training_step_with_any_batch():
    model = nn.Linear(3, 2)
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    graph = capture(
        step, tenon.randn(4, 3), tenon.randn(4, 2), train=True, dynamic={"x": {0: "n"}, "y": {0: "n"}}
    )
    runner = Runner(graph)

    for size in (1, 7):
        x, y = tenon.randn(size, 3), tenon.randn(size, 2)
        assert runner(x, y).item() == pytest.approx(step(x, y).item(), rel=1e-5)


class Flexible(ReferenceTarget):
    dynamic = True


def test_bundles_keep_sizes_that_change(tmp_path):
    example = MODELS["digits"]()
    graph = capture(example.model, *example.args, dynamic={"images": {0: "batch"}})
    calls = [(tenon.randn(size, 1, 8, 8),) for size in (1, 3, 5)]

    folder = save(graph, tmp_path / "digits", targets=[Flexible()], calls=calls)

    assert verify(folder, found=[Flexible()]).passed
    read = load(folder).graph
    assert read.symbols == graph.symbols and read.dynamic == graph.dynamic
    assert "float32[batch, 10]" in str(read)


def test_a_target_of_fixed_sizes_says_so(tmp_path):
    example = MODELS["net"]()
    graph = capture(example.model, *example.args, dynamic={"x": {0: "batch"}})

    with pytest.raises(LoweringError, match=r"reference: it has fixed sizes.*graph\.at\(batch=5\)"):
        save(graph, tmp_path / "net", targets=[ReferenceTarget()])
    save(graph.at(batch=2), tmp_path / "net", targets=[ReferenceTarget()], calls=[(tenon.ones(2, 4),)])


@pytest.mark.parametrize(
    "text",
    [
        "batch",
        "4*batch",
        "batch + 1",
        "batch - 1",
        "(batch + 1)//2",
        "2*((batch - 1)//2) + 3",
        "batch*length",
        "7",
    ],
)
def test_sizes_are_read_as_they_are_printed(text):
    size = sizes.parse(text, ["batch", "length"])

    assert str(size) == text
    for values in ({"batch": 5, "length": 3}, {"batch": 8, "length": 2}):
        assert sizes.at(size, values) == eval(text, {}, values)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "batch**99",
        "batch//0",
        "batch//batch",
        "f(1)",
        "1.5",
        "x" * 300,
        "(" * 150,
        "other",
        "batch if 1 else 2",
    ],
)
def test_other_text_is_not_a_size(text):
    with pytest.raises(BundleError, match="a size is written"):
        sizes.parse(text, ["batch"])


@pytest.mark.parametrize(
    "expected",
    [
        "3*n",
        "n + 2",
        "n//2",
        "(n + 1)//2",
        "(n + 3)//4",
        "(n - 1)//2",
        "n*m",
        "2*n*m",
        "n*(m//2)",
        "n*n",
        "n + m",
        "5*n + 1",
    ],
)
def test_expressions_are_found(expected):
    samples = [{"n": n, "m": m} for n, m in ((5, 7), (9, 7), (5, 11), (12, 7), (5, 17), (33, 38))]
    values = [eval(expected, {}, s) for s in samples]

    found = sizes.fit(values, samples)

    for n in range(1, 40):
        s = {"n": n, "m": 2 * n + 1}
        assert sizes.at(found, s) == eval(expected, {}, s)


def test_numbers_without_a_simple_expression_are_not_fitted():
    samples = [{"n": n} for n in (3, 5, 8, 13, 21)]

    assert sizes.fit([2 ** s["n"] for s in samples], samples) is None
    assert sizes.fit(list(np.random.default_rng(0).integers(0, 1000, 5)), samples) is None


def test_the_range_of_a_size_starts_where_the_graph_holds():
    graph = capture(
        lambda x, y: (x[:3], y * 2),
        tenon.randn(5, 2),
        tenon.randn(4),
        dynamic={"x": {0: "rows"}, "y": {0: "count"}},
    )

    assert {name: symbol.least for name, symbol in graph.symbols.items()} == {"rows": 3, "count": 0}
    with pytest.raises(ShapeError, match=r"rows .* = 2 is out of range: it may be 3 or more"):
        graph.run(tenon.randn(2, 2), tenon.randn(4))
    assert graph.run(tenon.randn(3, 2), tenon.randn(0))[1].shape == (0,)


def test_attention_is_one_op_at_all_sizes():
    layer = nn.TransformerEncoderLayer(64, 4, 96, batch_first=True).eval()

    graph = capture(layer, tenon.randn(3, 17, 64), dynamic={"src": {0: "batch"}})

    assert [node.name for node in graph.calls].count("attention") == 1
    for size in (0, 1, 3, 8, 20):
        x = tenon.randn(size, 17, 64)
        tenon.testing.assert_close(graph.run(x), layer(x), rtol=1e-4, atol=1e-5)
