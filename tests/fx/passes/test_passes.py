"""Shapes, sizes, common subexpressions, sorting, and passes in order."""

import operator
from typing import NamedTuple

import pytest

import tenon
from tenon import nn
from tenon.fx import Graph, GraphModule, symbolic_trace
from tenon.fx.passes import graph_manipulation, param_fetch
from tenon.fx.passes import pass_manager as functions
from tenon.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from tenon.fx.passes.dialect.common.cse_pass import CSEPass
from tenon.fx.passes.fake_tensor_prop import FakeTensorProp
from tenon.fx.passes.infra.pass_base import PassBase, PassResult
from tenon.fx.passes.infra.pass_manager import (
    PassManager,
    pass_result_wrapper,
    this_before_that_pass_constraint,
)
from tenon.fx.passes.shape_prop import ShapeProp
from tenon.fx.passes.tools_common import legalize_graph, stable_topological_sort


def test_shapes_are_noted_on_every_node():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    traced = symbolic_trace(net)

    ShapeProp(traced).propagate(tenon.rand(1, 1, 5, 5))

    shapes = [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    assert shapes == [(1, 1, 5, 5), (1, 2, 3, 3), (1, 2, 3, 3), (1, 2, 3, 3)]
    meta = next(iter(traced.graph.nodes)).meta["tensor_meta"]
    assert meta.dtype is tenon.float32 and meta.memory_format is tenon.contiguous_format


def test_shapes_of_tuples_are_noted_as_tuples():
    traced = symbolic_trace(lambda x: x.split(2))
    ShapeProp(traced).propagate(tenon.rand(4, 3))

    split = next(node for node in traced.graph.nodes if node.name == "split")
    assert [tuple(m.shape) for m in split.meta["tensor_meta"]] == [(2, 3), (2, 3)]


def test_a_node_that_fails_is_named(capsys):
    traced = symbolic_trace(lambda x: x @ x)

    with pytest.raises(RuntimeError, match=r"ShapeProp error for: node=%matmul"):
        ShapeProp(traced).propagate(tenon.rand(2, 3))


def test_shapes_are_propagated_without_computing():
    traced = symbolic_trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))

    out = FakeTensorProp(traced).propagate(tenon.rand(4, 3))

    assert out.device.type == "meta" and tuple(out.shape) == (4, 2)
    assert all(node.meta["val"].shape[0] == 4 for node in traced.graph.nodes)


def test_sizes_count_results_and_parameters():
    traced = symbolic_trace(nn.Sequential(nn.Linear(4, 4)))

    graph_manipulation.get_size_of_all_nodes(traced, [tenon.rand(4)])

    argument, linear, _ = traced.graph.nodes
    assert argument.size_bytes == (16, 16) and linear.size_bytes == (16, 96)


def test_a_size_needs_a_shape():
    traced = symbolic_trace(lambda x: x + 1)

    with pytest.raises(RuntimeError, match=r"Node x has no tensor metadata"):
        graph_manipulation.get_size_of_all_nodes(traced)


def test_calls_are_exchanged():
    traced = symbolic_trace(lambda x: x + 2)

    graph_manipulation.replace_target_nodes_with(
        traced, "call_function", operator.add, "call_function", operator.mul
    )

    assert traced(tenon.tensor(5.0)).item() == 10.0


def test_attributes_of_layers_are_put_on_nodes():
    traced = symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 2, stride=3), nn.ReLU()))

    param_fetch.lift_lowering_attrs_to_nodes(traced)

    conv, relu = (node for node in traced.graph.nodes if node.op == "call_module")
    assert conv.attrs_for_lowering["name"] == "torch.nn.modules.conv.Conv2d"
    assert conv.attrs_for_lowering["stride"] == (3, 3) and relu.attrs_for_lowering["inplace"] is False
    with pytest.raises(RuntimeError, match="Tanh is not a standard layer"):
        param_fetch.extract_attrs_for_lowering(nn.Tanh())


class Both(NamedTuple):
    left: int
    right: str


def test_items_get_the_types_of_annotated_containers():
    def program(a: tuple[int, str], b: list[float], c: Both, d: tuple[int, ...]):
        return a[1], b[0], c.right, d[3], a[0:1]

    traced = symbolic_trace(program)
    annotate_getitem_nodes(traced.graph)

    types = {str(n.args): n.type for n in traced.graph.nodes if n.op == "call_function"}
    assert types == {
        "(a, 1)": str,
        "(b, 0)": float,
        "(c, 'right')": str,
        "(d, 3)": int,
        "(a, slice(0, 1, None))": None,
    }


def test_equal_calls_become_one():
    def program(x):
        return tenon.sum(x, [0]) + tenon.sum(x, [0]) + tenon.sum(x, [1])

    result = CSEPass()(symbolic_trace(program))

    sums = [node for node in result.graph_module.graph.nodes if node.target is tenon.sum]
    x = tenon.rand(2, 2)
    assert result.modified and len(sums) == 2
    assert result.graph_module(x).equal(program(x))


def test_a_literal_is_equal_only_to_one_of_its_type():
    result = CSEPass()(symbolic_trace(lambda x: (tenon.mul(x, 1), tenon.mul(x, 1.0), tenon.mul(x, True))))

    assert not result.modified


def test_random_and_changed_values_are_not_merged():
    def program(x):
        y, z = tenon.rand_like(x), tenon.rand_like(x)
        before = tenon.neg(x)
        x.add_(1)
        return y + z, before + tenon.neg(x)

    assert not CSEPass()(symbolic_trace(program)).modified


def test_banned_functions_are_not_merged():
    traced = symbolic_trace(lambda x: tenon.cos(x) + tenon.cos(x))

    assert CSEPass()(traced).modified and not CSEPass(banned_ops=[tenon.cos])(traced).modified


def out_of_order():
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(tenon.neg, (x,))
    second = graph.call_function(tenon.exp, (first,))
    graph.output(second)
    first.prepend(second)
    return GraphModule({}, graph)


@pytest.mark.parametrize("sort", [legalize_graph, stable_topological_sort])
def test_graphs_are_sorted(sort):
    gm = sort(out_of_order())

    gm.graph.lint()
    gm.recompile()
    assert gm(tenon.tensor(0.0)).item() == 1.0


@pytest.mark.parametrize("sort", [legalize_graph, stable_topological_sort])
def test_a_circle_cannot_be_sorted(sort):
    gm = out_of_order()
    by_name = {node.name: node for node in gm.graph.nodes}
    by_name["neg"].args = (by_name["exp"],)

    with pytest.raises((RuntimeError, AssertionError), match=r"cycles.*\['exp', 'neg', 'output'\]"):
        sort(gm)


def swap(old, new):
    def swapped(gm):
        found = gm.graph.find_nodes(op="call_function", target=old)
        for node in found:
            node.target = new
        gm.recompile()
        return PassResult(gm, bool(found))

    return swapped


def test_passes_run_in_order_until_nothing_changes():
    passes = [swap(tenon.neg, tenon.exp), swap(tenon.exp, tenon.abs)]
    manager = PassManager(passes, steps=5)

    result = manager(symbolic_trace(lambda x: tenon.neg(x)))

    assert result.modified and result.graph_module(tenon.tensor(-2.0)).item() == 2.0


def test_constraints_order_passes_or_are_refused():
    a, b, c = (swap(tenon.neg, tenon.exp) for _ in range(3))
    manager = PassManager([a, b, c])
    manager.add_constraint(this_before_that_pass_constraint(c, a))

    with pytest.raises(RuntimeError, match="constraint violated"):
        manager.validate_constraints()
    manager.solve_constraints()
    assert manager.passes == [b, c, a]

    manager.add_constraint(this_before_that_pass_constraint(a, c))
    with pytest.raises(RuntimeError, match="Circular dependency"):
        manager.solve_constraints()


def test_checks_look_at_the_module():
    def no_exp(module):
        if module.graph.find_nodes(op="call_function", target=tenon.exp):
            raise ValueError("exp")

    manager = PassManager([swap(tenon.neg, tenon.exp)], run_checks_after_each_pass=True)
    manager.add_checks(no_exp)

    with pytest.raises(ValueError, match="exp"):
        manager(symbolic_trace(lambda x: tenon.neg(x)))
    with pytest.raises(TypeError, match=r"one variable.*\['a', 'b'\]"):
        manager.add_checks(lambda a, b: None)

    quiet = PassManager([swap(tenon.neg, tenon.exp)], suppress_check_failures=True)
    quiet.add_checks(no_exp)
    assert quiet(symbolic_trace(lambda x: tenon.neg(x))).modified


def test_the_pass_that_fails_is_named():
    def broken(gm):
        raise KeyError("lost")

    with pytest.raises(RuntimeError, match=r"'broken' pass after the following passes: \['swapped'\].*lost"):
        PassManager([swap(tenon.neg, tenon.exp), broken])(symbolic_trace(lambda x: x))
    with pytest.raises(TypeError, match="should be type PassResult"):
        PassManager([lambda gm: gm])(symbolic_trace(lambda x: x))


def test_functions_are_wrapped_as_passes():
    gm = symbolic_trace(lambda x: x)

    assert pass_result_wrapper(lambda gm: None)(gm) == PassResult(gm, True)
    assert pass_result_wrapper(lambda gm: gm)(gm).modified
    with pytest.raises(TypeError, match="returned a int"):
        pass_result_wrapper(lambda gm: 3)(gm)


def test_a_pass_checks_before_and_after():
    class Strict(PassBase):
        def call(self, graph_module):
            return PassResult(graph_module, False)

        def requires(self, graph_module):
            if len(graph_module.graph.nodes) > 2:
                raise ValueError("too long")

    assert not Strict()(symbolic_trace(lambda x: x)).modified
    with pytest.raises(ValueError, match="too long"):
        Strict()(symbolic_trace(lambda x: x + 1))


def test_functions_are_passes_of_the_older_manager():
    def double(n):
        return n * 2

    def increment(n):
        return n + 1

    manager = functions.PassManager([double, increment])
    assert manager(5) == 11

    manager.replace_pass(increment, functions.loop_pass(increment, n_iter=3))
    manager.add_constraint(functions.this_before_that_pass_constraint(increment, double))
    assert manager(5) == 13
    manager.remove_pass(["double"])
    assert manager(5) == 8
    assert functions.loop_pass(double, predicate=lambda n: n < 50)(1) == 64

    manager = functions.PassManager([double, increment])
    manager.add_constraint(functions.this_before_that_pass_constraint(increment, double))
    with pytest.raises(RuntimeError, match="constraint violated"):
        manager.validate()


def test_modules_are_attributes_of_their_packages_without_an_import():
    for package, name in ((tenon.fx.passes, "splitter_base"), (tenon.fx.experimental, "meta_tracer")):
        assert package.__getattr__(name).__name__ == f"{package.__name__}.{name}"
        assert not hasattr(package, "nothing") and not hasattr(package, "__nothing__")
