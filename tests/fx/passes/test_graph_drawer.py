"""Drawings of graphs, and what a pass creates and erases."""

import copy
import xml.etree.ElementTree as Xml

import tenon
from tenon import nn
from tenon.fx import subgraph_rewriter, symbolic_trace
from tenon.fx.passes.graph_drawer import FxGraphDrawer
from tenon.fx.passes.graph_transform_observer import GraphTransformObserver
from tenon.fx.passes.shape_prop import ShapeProp


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = symbolic_trace(nn.Sequential(nn.Linear(4, 3)))
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x):
        return self.linear(self.inner(x)).clamp(min=0.0)


class Leaves(tenon.fx.Tracer):
    def is_leaf_module(self, m, qualified_name):
        return True


def drawer(**options):
    net = Outer()
    traced = tenon.fx.GraphModule(net, Leaves().trace(net))
    ShapeProp(traced).propagate(tenon.rand(5, 4))
    return FxGraphDrawer(traced, "net", **options)


def test_a_drawing_has_a_box_for_each_node_and_parameter():
    drawing = drawer().get_dot_graph()

    assert [n.get_name() for n in drawing.get_nodes()] == [
        "x",
        "inner",
        "linear",
        "linear.weight",
        "clamp",
        "output",
    ]
    assert ("linear.weight", "linear") in drawing.edges and ("inner", "linear") in drawing.edges
    label = drawing.nodes[4].get_label()
    assert "op_code=call_method" in label and "shape=(5, 2)" in label and "min" in label


def test_traced_submodules_have_drawings_of_their_own():
    drawings = drawer().get_all_dot_graphs()

    assert list(drawings) == ["net", "net_inner"]
    assert "_0.bias" in {n.name for n in drawings["net_inner"].nodes}


def test_parameters_can_be_left_out():
    drawing = drawer(ignore_parameters_and_buffers=True).get_dot_graph()

    assert "linear.weight" not in {n.name for n in drawing.nodes}


def test_the_text_is_in_graphviz_language():
    text = drawer().get_dot_graph().to_string()

    assert text.startswith("digraph net {") and text.endswith("}\n")
    assert '"linear.weight" -> linear;' in text


def test_the_svg_has_each_box_below_those_that_it_comes_from(tmp_path):
    drawing = drawer().get_dot_graph()

    drawing.write(tmp_path / "net.svg")

    svg = Xml.parse(tmp_path / "net.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    boxes = svg.findall(f"{space}rect")
    tops = {node.name: int(box.get("y")) for node, box in zip(drawing.nodes, boxes, strict=True)}
    assert len(svg.findall(f"{space}path")) == len(drawing.edges)
    assert all(tops[a] < tops[b] for a, b in drawing.edges)


def test_an_observer_hears_of_nodes_and_draws_before_and_after(tmp_path):
    traced = symbolic_trace(lambda x: tenon.neg(x) * 2)

    with GraphTransformObserver(traced, "swap", log_url=str(tmp_path)) as observer:
        subgraph_rewriter.replace_pattern(traced, lambda x: tenon.neg(x), lambda x: tenon.relu(x))

    count = GraphTransformObserver.get_current_pass_count()
    assert observer.created_nodes == {"relu"} and observer.erased_nodes == {"neg"}
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"pass_{count}_swap_input_graph.dot",
        f"pass_{count}_swap_output_graph.dot",
    ]
    traced.graph.call_function(tenon.exp, (next(iter(traced.graph.nodes)),))
    assert "exp" not in observer.created_nodes


def test_copies_made_under_observation_are_observed_until_the_block_ends():
    traced = symbolic_trace(lambda x: -x)
    with GraphTransformObserver(traced, "copied") as observer:
        copied = copy.deepcopy(traced)
        with copied.graph.inserting_before():
            copied.graph.call_function(tenon.zeros, (1,))
    copied.graph.call_function(tenon.ones, (1,))

    assert observer.created_nodes == {"zeros"}
