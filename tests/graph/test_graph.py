"""Graphs: their text, and the errors of ``verify`` for invalid ones."""

import numpy as np
import pytest

import tenon
from tenon.engine.aval import Aval
from tenon.engine.op import table
from tenon.errors import GraphError
from tenon.graph.graph import Graph, Node, Ref, Write
from tenon.graph.passes import run


def built(make):
    """``relu(x @ w)``, and ``w <- w * rate``."""
    m = make()
    x, w, rate = m.input(2, 3, label="x"), m.input(3, 4, label="weight"), m.scalar("rate")
    product = m.matmul(x, w)
    out = m.relu(product)
    product.node.module, product.node.where = "layers.0", "train.py:12"
    m.returns(out)
    m.writes(w, m.mul(w, rate))
    return m


def test_a_graph_prints_shapes_modules_lines_and_writes(make):
    assert str(built(make).graph).splitlines() == [
        "%0: float32[2, 3] = input  # x",
        "%1: float32[3, 4] = input  # weight",
        "%2: float = input()  # rate",
        "%3: float32[2, 4] = matmul(%0, %1)  # layers.0 train.py:12",
        "%4: float32[2, 4] = relu(%3)",
        "%5: float32[3, 4] = mul(%1, %2)",
        "return %4",
        "weight <- %5",
    ]


def swap(graph):
    graph.nodes[3], graph.nodes[4] = graph.nodes[4], graph.nodes[3]


def drop(graph):
    del graph.nodes[3]


def repeat(graph):
    graph.nodes.append(graph.nodes[3])


def read_an_output_too_many(graph):
    graph.nodes[4].args = (Ref(graph.nodes[3], 1),)


def return_what_is_gone(graph):
    graph.outputs = [Node("input").out()]


def return_an_output_too_many(graph):
    graph.outputs = [Ref(graph.nodes[4], 3)]


def write_to_a_call(graph):
    graph.writes = [Write(graph.nodes[3], graph.nodes[4].out())]


def write_another_shape(graph):
    graph.writes = [Write(graph.nodes[1], graph.nodes[4].out())]


def write_twice(graph):
    graph.writes *= 2


def claim_another_shape(graph):
    graph.nodes[4].avals = (Aval((5, 5), np.dtype(np.float32)),)


def claim_another_dtype(graph):
    graph.nodes[3].avals = (Aval((2, 4), np.dtype(np.float64)),)


def feed_what_does_not_fit(graph):
    graph.nodes[3].args = (graph.nodes[0].out(), graph.nodes[0].out())


def change_a_constant(graph):
    node = Node("constant")
    node.avals, node.value = (Aval((2,), np.dtype(np.float32)),), np.zeros(3, np.float32)
    graph.nodes.append(node)


def use_an_unknown_number(graph):
    graph.scalar("cosine", (1.0,))


BROKEN = [
    (swap, "reads <matmul float32[2, 4]>, which does not come before it"),
    (drop, "reads <matmul float32[2, 4]>, which does not come before it"),
    (repeat, "is in the graph twice"),
    (read_an_output_too_many, "reads output 1 of <matmul float32[2, 4]>"),
    (return_what_is_gone, "which is not in the graph"),
    (return_an_output_too_many, "output 3 of <relu float32[2, 4]>"),
    (write_to_a_call, "which is not an input of the graph"),
    (write_another_shape, "a write of float32[2, 4] does not fit 'weight'"),
    (write_twice, "written twice"),
    (claim_another_shape, "is float32[2, 4], but the node states float32[5, 5]"),
    (claim_another_dtype, "is float32[2, 4], but the node states float64[2, 4]"),
    (feed_what_does_not_fit, "matmul"),
    (change_a_constant, "constant"),
    (use_an_unknown_number, "'cosine'"),
]


@pytest.mark.parametrize("damage, message", BROKEN, ids=[damage.__name__ for damage, _ in BROKEN])
def test_a_broken_graph_is_refused_with_what_is_wrong_and_the_pass_that_did_it(make, damage, message):
    graph = built(make).graph
    graph.verify()

    with pytest.raises(GraphError) as refused:
        run(graph, [damage])

    assert message in str(refused.value)
    assert refused.value.__notes__ == [f"after the pass {damage.__name__!r}"]


def test_an_empty_graph_is_sound():
    graph = Graph()

    graph.verify()

    assert (str(graph), len(graph), list(graph.roots())) == ("return ", 0, [])


def test_replaced_values_are_read_by_all(make):
    m = built(make)
    graph = m.graph
    other = m.abs(graph.nodes[3].out())

    graph.replace({graph.outputs[0]: other})
    graph.erase({graph.nodes[4]})
    graph.verify()

    assert graph.outputs == [other]
    assert table.relu not in [n.op for n in graph.calls]


def test_a_fused_cluster_is_printed_step_by_step_with_the_names_of_the_graph():
    compiled = tenon.compile(lambda x: (x * 2).exp().sum())

    for _ in range(3):
        compiled(tenon.ones(8, 8))

    text = str(compiled.programs[0].graph)
    assert "= fused(%0)  # mul+exp+sum" in text and "Step(" not in text
    assert "\n    .1: float32[8, 8] = exp(.0)\n    .2: float32[] = sum(.1, " in text
    assert "\n    return .2\n" in text
