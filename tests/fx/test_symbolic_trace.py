"""Tracing: the same graph and the same code as PyTorch's, and functions that are rerouted no longer than needed."""

import gc
import importlib
import math

import pytest

import tenon
from tenon import fx, nn
from tenon.compat import rerouting


def small(library):
    class Small(library.nn.Module):
        def forward(self, x):
            return library.relu(x + 3.0)

    return Small()


def parameters_and_layers(library):
    class Inner(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = library.nn.Parameter(library.ones(3))
            self.scale = library.nn.Buffer(library.ones(3))

        def forward(self, x):
            return self.weight.t() * x + self.scale

    class Outer(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = library.nn.Linear(3, 3)
            self.inner = Inner()
            self.table = library.nn.ModuleDict(
                {"ALL_CAPS": library.nn.ReLU(), "PascalCase": library.nn.Tanh()}
            )

        def forward(self, x):
            y = self.table["ALL_CAPS"](self.linear(x)) + self.inner(x)
            return self.table["PascalCase"](y) + self.inner.weight

    return Outer()


def operators(library):
    constant = library.ones(3)

    class Operators(library.nn.Module):
        def forward(self, x, y: int = 2, *args, k=3, **kwargs):
            z = constant + x
            z = constant @ x - 1 / x + y
            total = x.sum(dim=0, keepdim=True)
            first, _ = library.max(z, 0)
            part = x[1:3, ...], x.shape[0], x.T
            z = -x + abs(x) ** 2 // 3 + 2**x % 5
            z = (x > 2) & ~(x == 3) | (x <= 1) ^ (x != 1)
            joined = library.cat([x, total], dim=0)
            z = library.nn.functional.relu(joined, inplace=True) * float("inf")
            x += 1
            x.add_(2)
            return {"a": [z, total], "b": (first,), "c": slice(1, 2), "d": "text", "e": part}

    return Operators()


def shapes_and_math(library):
    class Shapes(library.nn.Module):
        def forward(self, x):
            b, n = x.shape
            return x.view(b, -1).transpose(0, 1) * math.sqrt(n) + math.ceil(x.size(0) / 2)

    return Shapes()


PROGRAMS = {f.__name__: f for f in (small, parameters_and_layers, operators, shapes_and_math)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_pytorch_traces_the_same_graph_and_code(name):
    torch = pytest.importorskip("torch")
    importlib.import_module("torch.fx")

    ours, theirs = (library.fx.symbolic_trace(PROGRAMS[name](library)) for library in (tenon, torch))

    assert str(ours.graph).replace("tenon.", "torch.") == str(theirs.graph)
    assert ours.code.replace("tenon.", "torch.") == theirs.code
    assert [n.name for n in ours.graph.nodes] == [n.name for n in theirs.graph.nodes]


def test_the_traced_module_computes_the_same_with_the_same_parameters():
    model = PROGRAMS["parameters_and_layers"](tenon)

    traced = fx.symbolic_trace(model)

    x = tenon.randn(3)
    assert tenon.equal(traced(x), model(x))
    assert traced.linear is model.linear and dict(traced.named_parameters()).keys() == {
        "linear.weight", "linear.bias", "inner.weight",
    }  # fmt: skip


def test_functions_are_rerouted_only_while_there_is_a_proxy():
    before = tenon.relu.__code__
    fx.symbolic_trace(PROGRAMS["small"](tenon))
    gc.collect()
    assert tenon.relu.__code__ is before

    x = fx.Proxy(fx.Graph().placeholder("x"))
    y = tenon.relu(x)
    assert y.node.target is tenon.relu and tenon.relu.__code__ is not before

    del x, y
    gc.collect()
    assert tenon.relu.__code__ is before


def test_proxies_that_outlive_their_trace_do_not_stop_the_rerouting_of_the_next():
    alive = []
    fx.symbolic_trace(lambda x: (alive.append(x), x)[1])
    rerouting.restore_all()

    traced = fx.symbolic_trace(lambda x: tenon.nn.functional.relu(x, inplace=False))

    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_function", "output"]
    alive.clear()
    del traced
    gc.collect()


def test_control_flow_on_a_proxy_names_the_line():
    def branches(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(ValueError, match=r"control flow: Proxy\(gt\) \(at .*test_symbolic_trace\.py:\d+\)"):
        fx.symbolic_trace(branches)


def test_layers_are_traced_into_where_a_tracer_says_so():
    class Deep(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    layers = [
        nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Dropout(0.0), nn.Softmax(dim=-1), nn.PReLU(),
        nn.Unflatten(1, (2, 2)), nn.Flatten(), nn.RMSNorm(4),
    ]  # fmt: skip
    model = nn.Sequential(*layers)

    traced = fx.GraphModule(model, Deep().trace(model))

    x = tenon.randn(3, 4)
    assert tenon.equal(traced(x), model(x)) and not traced.graph.find_nodes(op="call_module")
    linear = fx.GraphModule(layers[0], Deep().trace(layers[0]))
    assert "def forward(self, input : tenon.Tensor) -> tenon.Tensor:" in linear.code


@fx.wrap
def leaf(x, factor):
    return x * factor


def test_wrapped_functions_are_one_node_and_are_traced_again():
    traced = fx.symbolic_trace(lambda x: leaf(x, 2) + leaf(1, 2))

    again = fx.symbolic_trace(traced)

    for module in (traced, again):
        assert [node.target for node in module.graph.find_nodes(op="call_function", target=leaf)] == [leaf]
        assert module(3) == 8
    with pytest.raises(NotImplementedError, match=r"wrap\('len'\) must be called at the top level"):
        fx.wrap("len")


def test_fixed_arguments_are_checked_and_containers_are_taken_apart():
    def program(values, kind, scale=2.0):
        return sum(values["a"]) * scale if kind == "sum" else values["b"]

    fixed = {"values": {"a": [fx.PH, fx.PH], "b": 5}, "kind": "sum"}
    traced = fx.symbolic_trace(program, concrete_args=fixed)

    assert (
        traced({"a": [1, 2], "b": 5}, "sum")
        == 6.0
        == fx.Interpreter(traced).run({"a": [1, 2], "b": 5}, "sum", 2.0)
    )
    with pytest.raises(AssertionError, match="kind has been specialized to have value sum"):
        traced({"a": [1, 2], "b": 5}, "max")
    with pytest.raises(AssertionError, match="values has been specialized to have value 5"):
        traced({"a": [1, 2], "b": 6}, "sum")


def test_assertions_are_recorded_where_a_tracer_says_so():
    class Asserting(fx.Tracer):
        trace_asserts = True

    names = {}  # pytest rewrites the assertions of this file
    exec("def program(x):\n    assert x.sum() > 0\n    return x + 1", names)
    tracer = Asserting()
    traced = fx.GraphModule(tracer.root, tracer.trace(names["program"]))

    assert traced(tenon.ones(2)).tolist() == [2, 2]
    with pytest.raises(AssertionError):
        traced(-tenon.ones(2))


def test_operators_of_aten_are_nodes():
    def program(x):
        return tenon.ops.aten.cat.default([tenon.ops.aten.sigmoid(x), x])

    traced = fx.symbolic_trace(program)

    x = tenon.randn(3)
    assert tenon.equal(traced(x), program(x)) and "tenon.ops.aten.cat.default([sigmoid, x])" in traced.code


def test_shapes_of_parameters_are_numbers_where_a_tracer_says_so():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(tenon.ones(3, 2))

        def forward(self, x):
            for row in range(self.weight.size(0)):
                x = x + self.weight[row]
            return x

    model = Rows()
    tracer = fx.Tracer(param_shapes_constant=True)
    traced = fx.GraphModule(model, tracer.trace(model))

    assert traced(tenon.zeros(2)).tolist() == [3, 3] and len(traced.graph.nodes) == 9


def test_two_programs_that_meet_are_refused():
    one, other = (fx.Proxy(fx.Graph().placeholder(name)) for name in "ab")

    with pytest.raises(RuntimeError, match=r"multiple different tracers.*values of two traced programs"):
        tenon.add(one, other)


def test_creation_functions_are_nodes_where_a_size_is_not_known():
    def program(x):
        return tenon.zeros(x.shape, dtype=x.dtype) + tenon.ones(x.shape[0], 1) + tenon.arange(x.size(1))

    traced = fx.symbolic_trace(program)

    x = tenon.randn(2, 3)
    assert tenon.equal(traced(x), program(x)) and len(traced.graph.find_nodes(op="get_attr")) == 0
