"""``capture(as_run=True)`` and ``whole``: the graph of a single run, for analyses; and ``trace``."""

import pytest

import tenon
from tenon import extend, nn
from tenon.errors import ArgumentError, CaptureError
from tenon.export import CapturedGraph, capture


class Heads(nn.Module):
    """Reads a value, reshapes and splits by computed sizes, and computes something unused."""

    def __init__(self):
        super().__init__()
        self.heads, self.qkv = 2, nn.Linear(8, 16)
        self.register_buffer("calls", tenon.zeros(()))

    def forward(self, x):
        self.calls += 1
        x.mul_(2.0)
        q, k = self.qkv(x).split(8, dim=1)
        unused = q.exp()
        del unused
        if q.sum().item() > 1e9:
            return q
        return (q + k).view(len(x), self.heads, 4)[:, 1:2]


def names(graph):
    return [node.name for node in graph.calls]


def test_python_may_read_values_and_nothing_that_ran_is_left_out():
    model, x = Heads(), tenon.randn(3, 8)
    before = x.clone()

    graph = capture(model, x, as_run=True)

    assert type(graph) is CapturedGraph and not graph.guards
    assert {"exp", "sum"} <= set(names(graph))
    assert tenon.equal(x, before) and model.calls.item() == 0, "effects of the run are undone"
    tenon.testing.assert_close(graph.run(x), model(before.clone()))
    with pytest.raises(CaptureError, match="changed in place"):
        capture(lambda t: t.mul_(2.0), x)


def test_sizes_that_code_asks_for_are_listed_with_their_place():
    model = Heads()

    graph = capture(model, tenon.randn(3, 8), as_run=True)

    asked = [(each.kind, each.shape, each.asked) for each in graph.shape_requests]
    assert asked == [
        ("cut", (16,), 8), ("shape", (3, 8), (3, 2, 4)), ("slice", (2, 1, 3), slice(1, 2, None)),
    ]  # fmt: skip
    assert all(each.module == id(model) for each in graph.shape_requests)
    following = [
        next(n.name for n in graph.nodes[e.position :] if n.kind == "call") for e in graph.shape_requests
    ]
    assert following[:2] == ["split", "view"]
    assert capture(nn.Flatten(), tenon.ones(2, 3, 4)).shape_requests == []


def test_shapes_may_depend_on_values():
    x = tenon.tensor([[1.0, -2.0, 3.0]])

    graph = capture(lambda t: t[t > 0] * 2.0, x, as_run=True)

    assert graph.run(x).tolist() == [2.0, 6.0]
    with pytest.raises(CaptureError, match="depends on the data"):
        capture(lambda t: t[t > 0] * 2.0, x)


def test_composites_are_recorded_as_their_parts_unless_they_are_named_by_op_or_kind():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)).eval(), tenon.randn(2, 4)

    assert names(capture(model, x)) == ["linear", "softmax"]
    parts = capture(model, x, whole=frozenset())
    assert not {"linear", "softmax"} & set(names(parts)) and {"matmul", "exp"} <= set(names(parts))
    assert "linear" in names(capture(model, x, whole={"linear"}))
    assert "softmax" not in names(capture(model, x, whole={"contract"}))
    for graph in (parts, capture(model, x, whole={"linear"})):
        tenon.testing.assert_close(graph.run(x), model(x))


def test_one_run_takes_neither_guards_nor_sizes_that_change():
    with pytest.raises(ArgumentError, match="neither guards= nor dynamic="):
        capture(nn.ReLU(), tenon.ones(2), as_run=True, guards=True)
    with pytest.raises(ArgumentError, match="neither guards= nor dynamic="):
        capture(nn.ReLU(), tenon.ones(2), as_run=True, dynamic={"input": {0: "n"}})


def test_trace_is_a_capture_with_its_parts_named():
    model, x = Heads(), tenon.randn(3, 8)

    traced = extend.trace(model, [x], whole={"linear"})

    assert type(traced) is extend.Trace and type(traced.graph) is CapturedGraph
    assert names(traced.graph) == names(capture(model, x, whole={"linear"}, as_run=True))
    assert {node.label: t for node, t in traced.stored.items()} == {
        "qkv.weight": model.qkv.weight, "qkv.bias": model.qkv.bias, "calls": model.calls,
    }  # fmt: skip
    assert traced.outputs == tuple(traced.graph.outputs)
    assert [type(each) for each in traced.shape_requests] == [extend.ShapeRequest] * 3
