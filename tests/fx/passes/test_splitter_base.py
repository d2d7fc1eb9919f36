"""Splitting between an accelerator and the CPU."""

import pytest

import tenon
from tenon import nn
from tenon.fx import symbolic_trace
from tenon.fx.passes.operator_support import create_op_support
from tenon.fx.passes.split_utils import move_non_tensor_nodes_on_boundary
from tenon.fx.passes.splitter_base import Subgraph, _SplitterBase, _SplitterSettingBase

no_tanh = create_op_support(lambda modules, node: node.target != "tanh")


def splitter(program, *inputs, **settings):
    return _SplitterBase(symbolic_trace(program), inputs, no_tanh, _SplitterSettingBase(**settings))


def program(x):
    return ((x + 1).tanh() * 2).relu()


def test_parts_alternate_and_compute_the_same():
    x = tenon.rand(3)

    split = splitter(program, x)()

    assert [name for name, _ in split.named_children()] == ["_run_on_acc_0", "_run_on_cpu_1", "_run_on_acc_2"]
    assert split(x).equal(program(x))


def test_small_parts_go_to_the_cpu():
    x = tenon.rand(3)

    split = splitter(program, x, min_acc_module_size=2)()

    assert [name for name, _ in split.named_children()] == ["_run_on_cpu_0", "_run_on_acc_1"]
    assert split(x).equal(program(x))


def test_more_parts_than_wanted_are_refused():
    with pytest.raises(ValueError, match="2 parts for the accelerator, at most 1"):
        splitter(program, tenon.rand(3), max_acc_splits=1)()


def test_what_passes_no_tensor_stays_together():
    def sized(x):
        return (x + x.size(0)).tanh() + x.size(1)

    x = tenon.rand(2, 3)
    result = splitter(sized, x).generate_split_results()

    assert result.split_module(x).equal(sized(x))
    for inputs in result.submodule_inputs.values():
        assert all(isinstance(value, tenon.Tensor) for value in inputs)


def test_nodes_on_a_boundary_move_to_their_only_user():
    traced = symbolic_trace(lambda x: (x + 1).tanh() + x.size(0))
    nodes = {node.name: node for node in traced.graph.nodes}
    for name, node in nodes.items():
        node.meta["type"] = int if name == "size" else tenon.Tensor
    first = Subgraph(True, [nodes["add"], nodes["size"]])
    second = Subgraph(False, [nodes["tanh"], nodes["add_1"]])

    move_non_tensor_nodes_on_boundary([first, second])

    assert first.nodes == [nodes["add"]] and second.nodes[0] is nodes["size"]


def test_layers_are_supported_by_their_class():
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    support = create_op_support(lambda modules, node: not isinstance(modules.get(node.target), nn.Tanh))
    x = tenon.rand(4, 2)

    split = _SplitterBase(symbolic_trace(net), (x,), support, _SplitterSettingBase())()

    assert [name for name, _ in split.named_children()] == ["_run_on_acc_0", "_run_on_cpu_1", "_run_on_acc_2"]
    assert split(x).equal(net(x))
