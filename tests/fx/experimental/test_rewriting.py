"""Programs traced from changed source, normalized, fused and merged."""

import operator

import pytest

import tenon
from tenon import nn
from tenon.fx import GraphModule, symbolic_trace
from tenon.fx.experimental.merge_matmul import merge_matmul
from tenon.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from tenon.fx.experimental.optimization import (
    UnionFind,
    extract_subgraph,
    fuse,
    optimize_for_inference,
    remove_dropout,
)
from tenon.fx.experimental.rewriter import RewritingTracer
from tenon.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema


def trace(root):
    tracer = RewritingTracer()
    graph = tracer.trace(root)
    return GraphModule(tracer.root, graph)


def test_asserts_are_recorded():
    def checked(a, b):
        assert a == b, "they differ"
        return a + b

    traced = trace(checked)

    assert traced(3, 3) == 6
    with pytest.raises(AssertionError, match="they differ"):
        traced(3, 5)


def test_names_of_an_enclosing_function_are_found():
    factor = tenon.tensor(3.0)

    def scaled(x):
        assert x.size(0) == 1
        return x * factor

    assert trace(scaled)(tenon.ones(1)).tolist() == [3.0]


class Annotated(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.bias = bias

    def forward(self, x):
        y: tenon.Tensor = self.linear(x)
        return y + self.bias


def test_annotated_assignments_type_their_values():
    traced = trace(Annotated(1))

    (linear,) = (node for node in traced.graph.nodes if node.op == "call_module")
    assert linear.type is tenon.Tensor
    assert traced(tenon.ones(2)).allclose(traced.linear(tenon.ones(2)) + 1)


def test_arguments_are_named():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x):
            return tenon.nn.functional.pad(self.relu(x), (1, 1), "constant", 2.0)

    traced = symbolic_trace(Net())
    next(iter(traced.graph.nodes)).meta["kept"] = 1

    normalized = NormalizeArgs(traced).transform()

    x = tenon.rand(2, 3)
    calls = [node for node in normalized.graph.nodes if node.op.startswith("call")]
    assert all(node.args == () for node in calls)
    assert next(iter(normalized.graph.nodes)).meta["kept"] == 1
    assert normalized(x).equal(traced(x))


def test_functions_become_operators():
    traced = symbolic_trace(lambda x, y: tenon.mul(tenon.add(x, y), 2))

    normalized = NormalizeOperators(traced).transform()

    targets = [node.target for node in normalized.graph.nodes if node.op == "call_function"]
    assert targets == [operator.add, operator.mul]
    assert normalized(tenon.tensor(1.0), tenon.tensor(2.0)).item() == 6.0


def test_types_come_from_annotations():
    traced = symbolic_trace(nn.Sequential(nn.Linear(2, 2)))

    annotated = AnnotateTypesWithSchema(traced).transform()
    plain = AnnotateTypesWithSchema(traced, annotate_modules=False).transform()

    assert [n.type for n in annotated.graph.nodes if n.op == "call_module"] == [tenon.Tensor]
    assert [n.type for n in plain.graph.nodes if n.op == "call_module"] == [None]


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
        self.linear, self.flat_norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.dropout(self.flat_norm(self.linear(x)))


def trained():
    net = Blocks()
    for _ in range(3):
        net(tenon.randn(4, 2, 5, 5))
    return net.eval()


def test_batch_norms_are_folded():
    net = trained()
    x = tenon.randn(2, 2, 5, 5)

    fused = fuse(net)

    assert not any(isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)) for m in fused.modules())
    assert fused(x).allclose(net(x), atol=1e-5)
    assert isinstance(net.norm, nn.BatchNorm2d)  # the model itself stays


def test_a_layer_with_other_users_is_not_folded():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    assert any(isinstance(m, nn.BatchNorm2d) for m in fuse(Twice().eval()).modules())


def test_inference_drops_dropouts_and_folds_norms():
    net = trained()
    x = tenon.randn(2, 2, 5, 5)

    fast = optimize_for_inference(net)
    kept = optimize_for_inference(net, pass_config={"conv_bn_fuse": False})

    assert fast(x).allclose(net(x), atol=1e-5) and kept(x).allclose(net(x), atol=1e-5)
    called = [n.target for n in fast.graph.nodes if n.op == "call_module"]
    assert called == ["conv", "linear"]
    assert "norm" in [n.target for n in kept.graph.nodes if n.op == "call_module"]
    assert "dropout" not in [n.target for n in remove_dropout(net).graph.nodes]


def test_a_part_of_a_graph_becomes_a_module():
    traced = symbolic_trace(lambda x: (x + 1) * 2)
    argument, add, _, _ = traced.graph.nodes

    part = extract_subgraph(traced, [add], [argument], [add])

    assert part(tenon.tensor(1.0))[0].item() == 2.0


def test_sets_are_united():
    sets = UnionFind(4)
    for number in range(3):
        sets.make_set(number)
    sets.join(0, 1)

    assert sets.find(0) == sets.find(1) != sets.find(2)
    with pytest.raises(AssertionError, match="3 is in no set"):
        sets.find(3)


def test_products_with_one_right_hand_side_are_merged():
    w = tenon.rand(3, 2)

    def program(x, y):
        return tenon.matmul(x, w), tenon.matmul(y, w) + 1

    merged = merge_matmul(program)

    x, y = tenon.rand(2, 3), tenon.rand(4, 3)
    assert sum(n.target is tenon.matmul for n in merged.graph.nodes) == 1
    assert all(a.allclose(b) for a, b in zip(merged(x, y), program(x, y), strict=True))


def test_dependent_products_are_not_merged():
    w = tenon.rand(3, 3)
    merged = merge_matmul(lambda x: tenon.matmul(tenon.matmul(x, w).relu(), w))

    assert sum(n.target is tenon.matmul for n in merged.graph.nodes) == 2
