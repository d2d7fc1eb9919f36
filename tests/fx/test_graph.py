"""Graphs that are built and changed by hand, and their generated code."""

import itertools
import operator
from typing import NamedTuple

import pytest

import tenon
from tenon import fx, nn
from tenon.fx.immutable_collections import immutable_dict, immutable_list
from tenon.fx.names import Namespace


def small():
    graph = fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(tenon.relu, (x,))
    return graph, x, relu, graph.call_method("neg", (relu,))


def test_nodes_go_where_the_insert_point_is():
    graph, x, relu, neg = small()

    with graph.inserting_before(relu):
        graph.create_node("call_method", "sin", (x,), name="before")
    with graph.inserting_after(relu):
        graph.create_node("call_method", "cos", (x,), name="after")
    graph.output(neg)

    names = ["x", "before", "relu", "after", "neg", "output"]
    assert [node.name for node in graph.nodes] == names and len(graph.nodes) == 6
    assert [node.name for node in reversed(graph.nodes)] == names[::-1]
    assert x < relu < neg and sorted([neg, x, relu]) == [x, relu, neg]


@pytest.mark.parametrize("seed", range(20))
def test_order_of_nodes_is_kept_by_moves(seed):
    generator = tenon.Generator().manual_seed(seed)
    graph = fx.Graph()
    nodes = [graph.placeholder(f"p{k}") for k in range(6)]
    for _ in range(40):
        a, b = tenon.randint(6, (2,), generator=generator).tolist()
        (nodes[a].append if seed % 2 else nodes[a].prepend)(nodes[b])

    order = list(graph.nodes)
    assert len(order) == 6 and all(first < second for first, second in itertools.pairwise(order))


def test_users_follow_the_arguments():
    graph, x, relu, neg = small()

    neg.args = (x, [relu, {"k": slice(relu, None)}])
    assert list(relu.users) == [neg] and list(x.users) == [relu, neg]
    neg.replace_input_with(relu, x)
    assert list(relu.users) == [] and neg.args == (x, [x, {"k": slice(x, None)}])
    graph.erase_node(relu)
    assert list(x.users) == [neg] and relu not in list(graph.nodes)
    with pytest.raises(RuntimeError, match="still had 1 users"):
        graph.erase_node(x)


def test_dead_code_goes_and_side_effects_stay():
    graph, x, relu, neg = small()
    graph.call_function(operator.setitem, (x, 0, 1))
    graph.call_function(tenon._assert, (x, "message"))
    graph.call_function(tenon.rand, (2,))
    graph.output(relu)

    assert graph.eliminate_dead_code()

    assert [node.name for node in graph.nodes] == ["x", "relu", "setitem", "_assert", "rand", "output"]
    assert not graph.eliminate_dead_code()
    assert neg not in graph.find_nodes(op="call_method") and graph.find_nodes(op="placeholder") == [x]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda graph, x, relu: x.prepend(relu), "used before it has been defined"),
        (lambda graph, x, relu: setattr(relu, "name", "x"), "redefined name x"),
        (lambda graph, x, relu: setattr(relu, "args", (fx.Graph().placeholder("y"),)), "does not belong"),
    ],
)
def test_lint_finds_what_is_wrong(spoil, message):
    graph, x, relu, _ = small()
    spoil(graph, x, relu)

    with pytest.raises(RuntimeError, match=message):
        graph.lint()


def test_names_are_those_that_pytorch_gives():
    torch_graph = pytest.importorskip("torch.fx.graph")
    wanted = [
        "add",
        "add_1",
        "add_2",
        "add_1_1",
        "add_0",
        "a.b",
        "2x",
        "len",
        "inf",
        "",
        "_",
        "x_",
        "_1",
        "1_2",
    ]

    for seed in range(100):
        generator = tenon.Generator().manual_seed(seed)
        ours, theirs = Namespace(), torch_graph._Namespace()
        for index in tenon.randint(len(wanted), (30,), generator=generator).tolist():
            assert ours.create_name(wanted[index], None) == theirs.create_name(wanted[index], None)


class Pair(NamedTuple):
    x: object
    y: object


def test_generated_code_imports_what_it_names_and_knows_its_lines():
    graph, _, _, neg = small()
    pair = graph.call_function(Pair, (neg, float("inf")))
    graph.output({"pair": pair, "literal": Pair(1, neg), "kinds": [tenon.float32, tenon.device("cpu"), None]})
    module = fx.GraphModule(nn.Module(), graph)

    result = module(tenon.ones(2))

    assert result["pair"].y == float("inf") and result["literal"].x == 1
    assert result["kinds"] == [tenon.float32, tenon.device("cpu"), None]
    lines = module.code.split("\n")
    for line, index in module._lineno_map.items():
        node = list(graph.nodes)[index]
        assert node.op == "output" or node.name in lines[module._prologue_start + line - 1]


def test_a_transformer_of_lines_changes_the_code_within_its_block(capsys):
    graph, _, _, neg = small()
    graph.output(neg)

    with graph.on_generate_code(lambda _: lambda lines: ["print('called')\n", *lines]):
        fx.GraphModule(nn.Module(), graph)(tenon.ones(1))
    fx.GraphModule(nn.Module(), graph)(tenon.ones(1))

    assert capsys.readouterr().out == "called\n"


def test_arguments_cannot_be_changed_in_place():
    for change in (
        lambda: immutable_list([1]).append(2),
        lambda: immutable_list([1]).__setitem__(0, 2),
        lambda: immutable_dict(a=1).update(b=2),
    ):
        with pytest.raises(TypeError, match="new_args"):
            change()
    assert {immutable_list([1, 2]): 1}[immutable_list([1, 2])] == 1
