"""Tracing: the same graph and the same code as PyTorch's, and functions that are rerouted no longer than needed."""

import gc
import importlib
import math

import pytest

import tenon
from tenon import fx


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


def test_control_flow_on_a_proxy_names_the_line():
    def branches(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(ValueError, match=r"control flow: Proxy\(gt\) \(at .*test_symbolic_trace\.py:\d+\)"):
        fx.symbolic_trace(branches)
