"""The gate of a relu before a maximum: on the pooled gradient, with the same result."""

import numpy as np
import pytest

from tenon.graph.passes.pooled_gate import pooled_gate
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
    m.returns(m.relu_grad(m.max_pool_grad(g, positive, pooled, **attrs), positive))
    return m


def result_of(m, backend):
    program = Program(m.graph, backend)
    program.bind(m.copies())
    program.run()
    return program.value(m.graph.outputs[0]).copy(), program.plan


@pytest.mark.parametrize("attrs", [SIDE_BY_SIDE, OVERLAPPING], ids=["side by side", "overlapping"])
def test_the_gate_moves_before_the_spread_and_the_gradient_stays_the_same(make, backend, attrs):
    want, before = result_of(graph_of(make, attrs), backend)
    m = graph_of(make, attrs)

    pooled_gate(m.graph)
    m.graph.verify()
    got, after = result_of(m, backend)

    assert [n.op.name for n in m.graph.calls] == ["relu", "max_pool", "relu_grad", "max_pool_grad"]
    np.testing.assert_array_equal(got, want)
    assert np.isinf(want).sum() == 0 and np.count_nonzero(want) > 50
    assert after.peak_bytes < before.peak_bytes, "the gradient takes the place of what was pooled"


def test_a_gradient_that_somebody_else_reads_is_left_alone(make):
    m = graph_of(make, SIDE_BY_SIDE)
    m.returns(*m.graph.outputs, m.graph.calls[2].out())

    pooled_gate(m.graph)

    assert [n.op.name for n in m.graph.calls][2:] == ["max_pool_grad", "relu_grad"]


def test_the_gate_of_another_relu_stays_behind(make):
    m = graph_of(make, SIDE_BY_SIDE)
    spread, gate = m.graph.calls[2:]
    gate.args = (spread.out(), m.graph.inputs[0].out())

    pooled_gate(m.graph)

    assert [n.op.name for n in m.graph.calls][2:] == ["max_pool_grad", "relu_grad"]
