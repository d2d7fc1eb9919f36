"""The pass ``epilogue`` against the graph as it was: batch norm and residuals done by the convolution, a
bias by the product."""

import copy

import numpy as np
import pytest

import tenon
from tenon.engine.op import Composite, table
from tenon.graph.graph import Source, sources_of
from tenon.graph.interpreter import Interpreter
from tenon.graph.passes import default, run
from tenon.graph.passes.epilogue import epilogue
from tenon.graph.program import Program

ATTRS = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.fixture(autouse=True)
def blocks(backend):
    offer = backend.compiler.layouts()
    if offer is None or offer.blocked() == offer.PLAIN:
        pytest.skip("needs a backend with blocks of channels")


def normalised(m, y, affine=True):
    vectors = [m.input(32) if affine or i > 1 else None for i in range(4)]
    if vectors[3].node in m.arrays:
        m.arrays[vectors[3].node] = abs(m.arrays[vectors[3].node]) + 0.5
    return m.batch_norm_inference(y, *vectors, eps=1e-3)


def block(m, affine=True, bias=True, residual=True):
    x, weight = m.input(2, 16, 7, 6), m.input(32, 16, 3, 3)
    y = m.convolution(x, weight, m.input(32), **ATTRS) if bias else m.conv(x, weight, **ATTRS)
    y = normalised(m, y, affine)
    if residual:
        short = m.conv(x, m.input(32, 16, 1, 1), **(ATTRS | {"padding": (0, 0)}))
        y = m.add(normalised(m, short), y)
    m.returns(m.relu(y))


def names(m):
    return [n.op.name for n in m.graph.calls]


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_block_of_a_network_is_computed_as_without_the_pass(make, backend, affine, bias, residual):
    m = make()
    block(m, affine, bias, residual)
    (expected,), _ = Interpreter(m.graph, backend).run(m.copies())

    epilogue(m.graph, backend)

    m.graph.verify()
    assert "batch_norm_inference" not in names(m)
    assert "add" not in [n.op.name for n in m.graph.calls if len(n.avals[0].shape) == 4]
    (passed,), _ = Interpreter(m.graph, backend).run(m.copies())
    np.testing.assert_allclose(passed, expected, rtol=1e-4, atol=1e-4)
    program = Program(m.graph, backend, default(backend))
    program.bind(m.copies())
    program.run()
    np.testing.assert_allclose(program.value(m.graph.outputs[0]), expected, rtol=1e-4, atol=1e-4)
    assert "epilogue_" in program.source


def test_values_that_others_read_are_left_as_they_are(make, backend):
    m = make()
    x, weight, other = m.input(2, 16, 7, 6), m.input(32, 16, 3, 3), m.input(2, 32, 7, 6)
    y = m.conv(x, weight, **ATTRS)
    m.returns(m.add(y, other), y)
    before = names(m)

    epilogue(m.graph, backend)

    assert names(m) == before


def test_only_the_first_of_two_convolutions_takes_their_sum(make, backend):
    m = make()
    x = m.input(2, 16, 7, 6)
    one, other = (m.conv(x, m.input(32, 16, 3, 3), **ATTRS) for _ in range(2))
    m.returns(m.add(one, other))
    (expected,), _ = Interpreter(m.graph, backend).run(m.copies())

    epilogue(m.graph, backend)

    assert sorted(names(m)) == ["conv", "epilogue"]
    m.graph.verify()
    (passed,), _ = Interpreter(m.graph, backend).run(m.copies())
    np.testing.assert_allclose(passed, expected, rtol=1e-5, atol=1e-5)


def test_a_composite_that_reads_the_result_twice_is_left_alone(monkeypatch, make, backend):
    class ScaledAndAdded(Composite):
        inputs = ("x", "scale")

        def decompose(self, f, x, scale):
            return f.add(f.mul(x, scale), x)

    monkeypatch.setattr(table, "by_name", dict(table.by_name))
    monkeypatch.setattr(table, "scaled_and_added", None, raising=False)
    ScaledAndAdded()
    m = make()
    y = m.conv(m.input(2, 16, 7, 6), m.input(32, 16, 3, 3), **ATTRS)
    m.returns(m.scaled_and_added(y, m.input(32, 1, 1)))

    epilogue(m.graph, backend)

    assert names(m) == ["conv", "scaled_and_added"]


@pytest.mark.parametrize(
    "shape",
    [(32, 1, 1), (1, 32, 1, 1), (6,), (2, 32, 7, 1)],
    ids=["channels", "channels of 1", "row", "column"],
)
def test_sums_with_broadcasts_are_right_whether_taken_or_not(make, backend, shape):
    m = make()
    y = m.conv(m.input(2, 16, 7, 6), m.input(32, 16, 3, 3), **ATTRS)
    m.returns(m.add(y, m.input(*shape)))
    (expected,), _ = Interpreter(m.graph, backend).run(m.copies())

    run(m.graph, default(backend))

    (passed,), _ = Interpreter(m.graph, backend).run(m.copies())
    np.testing.assert_allclose(passed, expected, rtol=1e-4, atol=1e-4)


def test_a_sum_with_itself_is_not_an_epilogue(make, backend):
    m = make()
    y = m.conv(m.input(2, 16, 7, 6), m.input(32, 16, 3, 3), **ATTRS)
    m.returns(m.add(y, y))

    epilogue(m.graph, backend)

    assert names(m) == ["conv", "add"]


@pytest.mark.parametrize("rows, taken", [((8,), True), ((2, 4), True), ((1,), False), ((), False)])
def test_a_product_adds_its_bias_where_it_has_several_rows(make, backend, rows, taken):
    m = make()
    x, weight, bias = m.input(*rows, 48), m.input(48, 40), m.input(40)
    m.returns(m.add(bias, m.matmul(x, weight)), m.relu(m.add(m.matmul(x, weight), bias)))
    expected, _ = Interpreter(m.graph, backend).run(m.copies())

    epilogue(m.graph, backend)

    assert names(m).count("epilogue") == 2 * taken
    m.graph.verify()
    passed, _ = Interpreter(m.graph, backend).run(m.copies())
    program = Program(m.graph, backend, default(backend))
    program.bind(m.copies())
    program.run()
    for index, value in enumerate(expected):
        np.testing.assert_allclose(passed[index], value, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(program.value(m.graph.outputs[index]), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 40), (8, 1), (1,)], ids=["residual", "column", "number"])
def test_a_product_leaves_other_sums_to_what_follows(make, backend, shape):
    m = make()
    m.returns(m.add(m.matmul(m.input(8, 48), m.input(48, 40)), m.input(*shape)))

    epilogue(m.graph, backend)

    assert names(m) == ["matmul", "add"]


def test_statistics_that_change_reach_a_compiled_network():
    tenon.manual_seed(0)
    nn = tenon.nn
    net = nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU()).eval()
    twin, compiled = copy.deepcopy(net), tenon.compile(net)
    x = tenon.randn(2, 16, 8, 8)

    for turn in range(2):
        for each in (net, twin):
            each[1].running_mean.add_(0.5 * turn)
        for _ in range(4):
            with tenon.inference_mode():
                np.testing.assert_allclose(compiled(x).numpy(), twin(x).numpy(), rtol=1e-4, atol=1e-4)
    assert "epilogue" in compiled.programs[0].source


def test_an_epilogue_names_the_calls_that_it_was_made_of(make, backend):
    m = make()
    block(m, residual=False)
    for number, call in enumerate(m.graph.calls):
        call.module, call.where = f"layers.{number}", f"model.py:{number}"

    epilogue(m.graph, backend)

    (made,) = (n for n in m.graph.calls if n.op.name == "epilogue")
    assert sources_of(made) == (
        Source("convolution", "layers.0", "model.py:0", ""),
        Source("batch_norm_inference", "layers.1", "model.py:1", ""),
    )
    assert sources_of(*m.graph.calls)[-1] == Source("relu", "layers.2", "model.py:2", "")
