"""ReLU, its gradient and sums of gradients moved to fewer elements around max pooling, with the same result."""

import numpy as np
import pytest

from tenon.graph.passes.gate_before_unpool import gate_before_unpool
from tenon.graph.passes.relu_after_pool import relu_after_pool
from tenon.graph.passes.sum_before_unpool import sum_before_unpool
from tenon.graph.program import Program

SIDE_BY_SIDE = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
OVERLAPPING = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)}


def graph_of(make, attrs):
    """The gradient of ``max_pool(relu(x))``; some numbers are NaN, zero or infinite, some windows all closed."""
    m = make()
    x = m.input(2, 16, 8, 8)
    given = m.arrays[x.node]
    given[0, 0, 0, 0], given[0, 0, 3:, 3:], given[1] = np.nan, -1, np.round(given[1])
    positive = m.relu(x)
    pooled = m.max_pool(positive, **attrs)
    g = m.input(*pooled.aval.shape)
    m.arrays[g.node][0, 0, 2, 2] = np.inf
    m.returns(m.relu_grad(m.max_pool_grad(g, positive, pooled, **attrs), positive), pooled)
    return m


def result_of(m, backend):
    program = Program(m.graph, backend)
    program.bind(m.copies())
    program.run()
    return [program.value(ref).copy() for ref in m.graph.outputs], program.plan


def ops_of(m):
    return [n.op.name for n in m.graph.calls]


@pytest.mark.parametrize("attrs", [SIDE_BY_SIDE, OVERLAPPING], ids=["side by side", "overlapping"])
def test_the_gate_moves_before_the_spread_and_the_gradient_stays_the_same(make, backend, attrs):
    (want, _), before = result_of(graph_of(make, attrs), backend)
    m = graph_of(make, attrs)

    gate_before_unpool(m.graph)
    m.graph.verify()
    (got, _), after = result_of(m, backend)

    assert ops_of(m) == ["relu", "max_pool", "relu_grad", "max_pool_grad"]
    np.testing.assert_array_equal(got, want)
    assert np.isinf(want).sum() == 0 and np.count_nonzero(want) > 50
    assert after.peak_bytes < before.peak_bytes, "the gradient takes the place of what was pooled"


def test_a_gradient_that_somebody_else_reads_is_left_alone(make):
    m = graph_of(make, SIDE_BY_SIDE)
    m.returns(*m.graph.outputs, m.graph.calls[2].out())

    gate_before_unpool(m.graph)

    assert ops_of(m)[2:] == ["max_pool_grad", "relu_grad"]


def test_the_gate_of_another_relu_stays_behind(make):
    m = graph_of(make, SIDE_BY_SIDE)
    spread, gate = m.graph.calls[2:]
    gate.args = (spread.out(), m.graph.inputs[0].out())

    gate_before_unpool(m.graph)

    assert ops_of(m)[2:] == ["max_pool_grad", "relu_grad"]


@pytest.mark.parametrize("attrs", [SIDE_BY_SIDE, OVERLAPPING], ids=["side by side", "overlapping"])
def test_the_relu_moves_after_the_maximum_and_all_results_stay_the_same(make, backend, attrs):
    want, _ = result_of(graph_of(make, attrs), backend)
    m = graph_of(make, attrs)

    for transform in (gate_before_unpool, relu_after_pool):
        transform(m.graph)
        m.graph.verify()
    got, _ = result_of(m, backend)

    assert ops_of(m) == ["max_pool", "relu", "relu_grad", "max_pool_grad"]
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "transforms", [[relu_after_pool], [gate_before_unpool, relu_after_pool]], ids=["open", "read outside"]
)
def test_a_relu_whose_gradient_is_open_or_that_is_read_outside_stays(make, transforms):
    m = graph_of(make, SIDE_BY_SIDE)
    if gate_before_unpool in transforms:
        m.returns(*m.graph.outputs, m.graph.calls[0].out())

    for transform in transforms:
        transform(m.graph)

    assert ops_of(m)[:2] == ["relu", "max_pool"]


def test_a_relu_that_is_one_kernel_with_what_comes_before_stays(make):
    m = make()
    m.returns(m.max_pool(m.relu(m.exp(m.input(2, 16, 8, 8))), **SIDE_BY_SIDE))

    relu_after_pool(m.graph)

    assert ops_of(m) == ["exp", "relu", "max_pool"]


@pytest.mark.parametrize("attrs", [SIDE_BY_SIDE, OVERLAPPING], ids=["side by side", "overlapping"])
@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (0, 3)], ids=str)
def test_a_sum_over_all_that_is_pooled_is_one_of_the_pooled_gradient(make, backend, axes, attrs):
    def graph():
        m = make()
        x = m.input(2, 16, 8, 8)
        pooled = m.max_pool(x, **attrs)
        spread = m.max_pool_grad(m.input(*pooled.aval.shape), x, pooled, **attrs)
        m.returns(m.sum(spread, axes=axes, keepdims=True))
        return m

    want, _ = result_of(graph(), backend)
    m = graph()

    sum_before_unpool(m.graph)
    m.graph.verify()
    got, _ = result_of(m, backend)

    assert (m.graph.calls[-1].args[0] == m.graph.inputs[1].out()) == (2 in axes)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
