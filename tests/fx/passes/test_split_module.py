"""Splitting a graph by a function, or by tags."""

import operator

import pytest

import tenon
from tenon import nn
from tenon.fx import symbolic_trace
from tenon.fx.passes.split_module import Partition, split_module
from tenon.fx.passes.split_utils import getattr_recursive, setattr_recursive, split_by_tags


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(tenon.rand(3, 4))
        self.inner = nn.Sequential(nn.Linear(4, 5))

    def forward(self, x, y=None):
        z = self.inner[0](x + self.scale).clamp(min=0.0)
        w = self.inner[0](y).clamp(min=0.0)
        return z + w, {"z": z, "scale": self.scale}


def in_pairs():
    numbers = {}
    return lambda node: numbers.setdefault(node, len(numbers)) // 2


def test_the_parts_together_compute_what_the_whole_does():
    traced = symbolic_trace(Net())
    x, y = tenon.rand(3, 4), tenon.rand(3, 4)

    split = split_module(traced, None, in_pairs())

    out, named = split(x, y)
    expected, expected_named = traced(x, y)
    assert [name for name, _ in split.named_children()] == ["submod_0", "submod_1", "submod_2"]
    assert out.equal(expected) and named["z"].equal(expected_named["z"])
    assert named["scale"] is split.scale


def test_names_of_modules_and_of_arguments_can_be_told():
    traced, names = symbolic_trace(Net()), {}

    split = split_module(
        traced, None, in_pairs(), names, keep_original_input_name=False, partition_affix="part"
    )

    first = split.submod_part_0
    assert names == {"submod_part_0.inner_0": "inner.0", "submod_part_1.inner_0": "inner.0"}
    assert [n.target for n in first.graph.nodes if n.op == "placeholder"] == ["arg_0", "arg_1"]


def test_names_of_nodes_can_be_kept():
    traced = symbolic_trace(lambda x: (x + 1) + (x + 2))

    split = split_module(traced, None, lambda n: int(n.name[-1] == "2"), keep_original_node_name=True)

    assert [n.name for n in split.submod_1.graph.nodes if n.op == "call_function"] == ["add_2"]


def test_parts_return_tuples_where_asked_for():
    traced = symbolic_trace(lambda x: (x + 1) * 2)
    split = split_module(traced, None, lambda n: int(n.name == "mul"), tuple_return=True)

    assert isinstance(split.submod_0(tenon.ones(2)), tuple)
    assert split(tenon.ones(2)).tolist() == [4.0, 4.0]


def test_parts_that_need_each_other_are_refused():
    traced = symbolic_trace(lambda x: (x + 1).relu() + 1)

    with pytest.raises(RuntimeError, match=r"cycle exists between partitions.*submod_0.*submod_1"):
        split_module(traced, None, lambda n: int(n.op == "call_method"))


def test_order_of_the_calls_follows_the_program_where_asked_for():
    traced = symbolic_trace(lambda x, y: (x + 1, y * 2, x - 3))
    parts = {"add": 2, "mul": 1, "sub": 0}

    kept = split_module(traced, None, lambda n: parts[n.name], keep_original_order=True)

    assert [n.target for n in kept.graph.nodes if n.op == "call_module"] == [
        "submod_2",
        "submod_1",
        "submod_0",
    ]


def test_metadata_of_nodes_is_kept():
    traced = symbolic_trace(lambda x: (x + 1) * 2)
    for node in traced.graph.nodes:
        node.meta["from"] = node.name

    split = split_module(traced, None, lambda n: int(n.name == "mul"))

    assert [n.meta["from"] for n in split.submod_1.graph.nodes if n.op != "output"] == ["add", "mul"]


def test_a_part_without_results_returns_an_empty_tuple():
    def program(x):
        x.add_(1)

    split = split_module(symbolic_trace(program), None, lambda node: 1)
    x = tenon.zeros(2)

    assert split(x) is None and split.submod_1(x) == ()
    assert x.tolist() == [2.0, 2.0]


def test_a_partition_describes_itself():
    assert "partitions depended on: []" in repr(Partition("a"))


def test_parts_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    from torch.fx.passes.split_module import split_module as reference

    def program(x, y):
        total = x + y
        return (total * 2).relu(), total - y, {"y": y}

    ours = split_module(symbolic_trace(program), None, in_pairs())
    theirs = reference(torch.fx.symbolic_trace(program), None, in_pairs())

    assert ours.code == theirs.code
    assert [m.code for m in ours.children()] == [m.code for m in theirs.children()]


def tagged(program, tags):
    traced = symbolic_trace(program)
    for node in traced.graph.nodes:
        node.tag = tags.get(node.name, "b")
    return traced


def test_split_by_tags_calls_the_parts_in_the_order_of_the_tags():
    traced = tagged(lambda x, y: ((x + y) * 2, y - x), {"add": "a", "sub": "a"})

    split = split_by_tags(traced, ["a", "b"])

    assert [n.target for n in split.graph.nodes if n.op == "call_module"] == ["a", "b"]
    first, second = split(tenon.tensor(1.0), tenon.tensor(4.0))
    assert (first.item(), second.item()) == (10.0, 3.0)


def test_split_by_tags_tells_the_new_paths_of_modules():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))
    traced = symbolic_trace(net)
    for node in traced.graph.nodes:
        node.tag = "a" if node.name == "_0" else "b"

    split, names = split_by_tags(traced, ["a", "b"], return_fqn_mapping=True)

    x = tenon.rand(3, 2)
    assert names == {"0": "a.0", "1.0": "b.1.0"}
    assert split(x).equal(net(x))


def test_split_by_tags_refuses_a_use_of_a_later_part():
    traced = tagged(lambda x: (x + 1) * 2, {"mul": "a"})

    with pytest.raises(AssertionError, match=r"node mul of component 'a' uses add of 'b'"):
        split_by_tags(traced, ["a", "b"])


def test_split_by_tags_names_a_node_without_a_tag():
    traced = symbolic_trace(lambda x: x + 1)

    with pytest.raises(AssertionError, match=r"node add has no tag"):
        split_by_tags(traced, ["a"])


def test_attributes_are_read_and_set_by_paths():
    net = nn.Sequential(nn.Linear(2, 2))

    setattr_recursive(net, "0.note", {"deep": 7})

    assert getattr_recursive(net, "0.note.deep") == 7
    assert getattr_recursive(net, "0.missing") is None
    assert operator.is_(getattr_recursive(net, "0"), net[0])
