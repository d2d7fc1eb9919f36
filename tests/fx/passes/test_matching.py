"""Finding a pattern in a graph, fusing nodes into modules, and parts by what they were traced from."""

import operator

import pytest

import tenon
from tenon import nn
from tenon.fx import symbolic_trace
from tenon.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from tenon.fx.passes.operator_support import (
    OperatorSupport,
    OpSupports,
    any_chain,
    chain,
    create_op_support,
)
from tenon.fx.passes.shape_prop import ShapeProp
from tenon.fx.passes.utils.fuser_utils import fuse_by_partitions, topo_sort, validate_partition
from tenon.fx.passes.utils.matcher_utils import SubgraphMatcher, compare_graphs
from tenon.fx.passes.utils.source_matcher_utils import check_subgraphs_connected, get_source_partitions


def matches(program, pattern, **options):
    return SubgraphMatcher(symbolic_trace(pattern).graph, **options).match(symbolic_trace(program).graph)


def test_a_placeholder_stands_for_any_node_or_value():
    found = matches(lambda x: (x * 2 + 3).relu(), lambda a, b: (a + b).relu())

    (match,) = found
    assert [str(v) for v in match.placeholder_nodes] == ["mul", "3"]
    assert [n.name for n in match.returning_nodes] == ["relu"]


def test_what_is_used_elsewhere_inside_of_a_match_prevents_it():
    assert matches(lambda x: ((x + 1).relu(), x + 1), lambda a: (a + 1).relu())

    def leaking(x):
        total = x + 1
        return total.relu(), total * 2

    assert matches(leaking, lambda a: (a + 1).relu()) == []


def test_literals_are_compared_unless_ignored():
    def program(x):
        return x + 1

    assert matches(program, lambda a: a + 2) == []
    assert len(matches(program, lambda a: a + 2, ignore_literals=True)) == 1


def test_overlapping_matches_are_left_out_unless_asked_for():
    def program(x):
        return x.neg().neg().neg()

    def pattern(x):
        return x.neg().neg()

    assert len(matches(program, pattern)) == 1
    assert len(matches(program, pattern, remove_overlapping_matches=False)) == 2


def test_defaults_count_as_stated_arguments():
    found = matches(lambda x: tenon.sum(x, 0), lambda x, d: tenon.sum(x, d, keepdim=False))

    assert len(found) == 1


def test_a_pattern_that_needs_its_own_result_does_not_match():
    def program(x, w):
        a = x @ w
        return a * a.sigmoid()

    def pattern(x, w, c):
        a = x @ w
        return a, a * c

    assert matches(program, pattern) == []


def test_patterns_must_have_nodes_and_no_dead_ones():
    with pytest.raises(ValueError, match="empty pattern"):
        SubgraphMatcher(tenon.fx.Graph())

    def wasteful(x):
        x.neg()
        return x.relu()

    with pytest.raises(AssertionError, match=r"dead code: \['neg'\] have no users"):
        SubgraphMatcher(symbolic_trace(wasteful).graph)


def test_graphs_are_compared_up_to_names():
    assert compare_graphs(symbolic_trace(lambda x: x + 1).graph, symbolic_trace(lambda y: y + 1).graph)
    assert not compare_graphs(symbolic_trace(lambda x: x + 1).graph, symbolic_trace(lambda y: y - 1).graph)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(tenon.rand(4))
        self.linear = nn.Linear(4, 4)

    def forward(self, a, b):
        add = a + b
        lin = self.linear(add)
        add_1 = add + self.weight
        return add_1 + lin, add_1


@pytest.mark.parametrize(
    "names",
    [
        ["add", "linear"],
        ["add_1", "weight"],
        ["add_2", "add_1"],
        ["linear", "add_2", "add", "add_1", "weight"],
    ],
    ids=str,
)
def test_fused_nodes_compute_the_same(names):
    net = Chain()
    traced = symbolic_trace(net)
    by_name = {node.name: node for node in traced.graph.nodes}
    a, b = tenon.rand(4), tenon.rand(4)

    fused = fuse_by_partitions(traced, [dict.fromkeys(by_name[name] for name in names)])

    assert isinstance(fused.fused_0, tenon.fx.GraphModule)
    assert all(x.equal(y) for x, y in zip(fused(a, b), net(a, b), strict=True))


def test_a_partition_with_a_way_out_and_back_is_invalid():
    traced = symbolic_trace(Chain())
    by_name = {node.name: node for node in traced.graph.nodes}
    broken = [by_name["add"], by_name["add_2"]]

    assert not validate_partition(broken)
    with pytest.raises(AssertionError, match="dependency cycles"):
        fuse_by_partitions(traced, [dict.fromkeys(broken)])


def test_nodes_are_sorted_by_what_they_use():
    traced = symbolic_trace(Chain())
    by_name = {node.name: node for node in traced.graph.nodes}

    assert topo_sort([by_name["add_2"], by_name["linear"], by_name["add"]]) == [
        by_name["add"],
        by_name["linear"],
        by_name["add_2"],
    ]


only_add = create_op_support(lambda _, node: node.op == "call_function" and node.target is operator.add)


def partitions(program, **options):
    traced = symbolic_trace(program)
    partitioner = CapabilityBasedPartitioner(traced, only_add, **options)
    return partitioner, [{n.name for n in p.nodes} for p in partitioner.propose_partitions()]


def test_partitions_are_as_large_as_what_is_unsupported_allows():
    def program(a, b):
        add = a + b
        add_1 = add + b
        add_2 = add_1.relu() + add_1
        return add_2 + a

    partitioner, found = partitions(program)
    assert found == [{"add_3", "add_2"}, {"add_1", "add"}]

    fused = partitioner.partition_and_fuse()
    a, b = tenon.rand(3), tenon.rand(3)
    assert fused(a, b).allclose(program(a, b))
    assert [n.target for n in fused.graph.nodes if n.op == "call_module"] == ["fused_1", "fused_0"]


def test_single_nodes_are_not_a_partition_unless_allowed():
    def program(a):
        return (a + 1).relu()

    assert partitions(program)[1] == []
    assert partitions(program, allows_single_node_partition=True)[1] == [{"add"}]
    assert partitions(program, allowed_single_node_partition_ops=["_operator.add"])[1] == [{"add"}]


def test_unconnected_nodes_go_together_unless_told_otherwise():
    def program(a, b):
        return a + 1, b + 1

    assert partitions(program)[1] == [{"add", "add_1"}]
    apart = partitions(program, skip_horizontal_fusion=True, allows_single_node_partition=True)[1]
    assert apart == [{"add_1"}, {"add"}]


def test_support_asks_for_names_and_dtypes():
    traced = symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    ShapeProp(traced).propagate(tenon.rand(3, 2))
    modules = dict(traced.named_modules())
    linear, relu = (node for node in traced.graph.nodes if node.op == "call_module")
    name = f"{nn.Linear.__module__}.Linear"

    floats = OperatorSupport({name: (((tenon.float32,),), {})})
    ints = OperatorSupport({name: (((tenon.int64,),), {})})
    no_floats = OpSupports.decline_if_input_dtype(tenon.float32)

    assert floats.is_node_supported(modules, linear) and not floats.is_node_supported(modules, relu)
    assert not ints.is_node_supported(modules, linear)
    assert not chain(floats, no_floats).is_node_supported(modules, linear)
    assert any_chain(floats, no_floats).is_node_supported(modules, linear)
    assert not OpSupports.decline_if_node_in_names({linear.name}).is_node_supported(modules, linear)


def test_parts_are_found_by_the_call_that_they_were_traced_from():
    traced = symbolic_trace(lambda x: (x * 2 + 1).relu())
    for node, name in zip(traced.graph.nodes, ["", "linear_1", "linear_1", "relu_1", ""], strict=True):
        if name:
            node.meta["torch_fn"] = (name, f"builtin.{name[:-2]}")

    found = get_source_partitions(traced.graph, ["linear", "relu"])

    (linear,), (relu,) = found["linear"], found["relu"]
    assert [n.name for n in linear.nodes] == ["mul", "add"]
    assert [n.name for n in linear.output_nodes] == ["add"] and [n.name for n in relu.input_nodes] == ["add"]
    assert check_subgraphs_connected(linear, relu) and not check_subgraphs_connected(relu, linear)
