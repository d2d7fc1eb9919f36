"""GraphModules as modules: their attributes, errors, hooks, and what else takes modules."""

import gc
import linecache

import pytest

import tenon
from tenon import fx, nn
from tenon.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return F.log_softmax(self.inner(self.first(x)), dim=-1)


def test_a_traced_module_is_compiled_as_any_module_is():
    model = Net()
    traced = fx.symbolic_trace(model)
    compiled = tenon.compile(traced)

    for _ in range(4):
        x = tenon.randn(5, 4)
        assert tenon.allclose(compiled(x), model(x), atol=1e-6)


def test_a_traced_module_trains_with_the_parameters_of_the_program():
    model = Net()
    traced = fx.symbolic_trace(model)

    traced(tenon.randn(5, 4)).sum().backward()

    assert all(p.grad is not None for p in model.parameters())
    assert set(traced.state_dict()) == set(model.state_dict())


def test_a_traced_module_is_quantized_and_pruned():
    x = tenon.randn(64, 4)
    traced = fx.symbolic_trace(Net()).eval()
    exact = traced(x)

    quantized = tenon.quantization.quantize_dynamic(traced, {nn.Linear}, dtype=tenon.qint8)
    assert tenon.allclose(quantized(x), exact, atol=0.1) and not tenon.equal(quantized(x), exact)

    nn.utils.prune.l1_unstructured(traced.first, "weight", amount=0.5)
    assert int((traced.first.weight == 0).sum()) == 16 and not tenon.equal(traced(x), exact)


def test_submodules_are_added_and_deleted_by_path():
    traced = fx.symbolic_trace(Net())

    assert traced.add_submodule("inner.extra.deep", nn.Dropout()) and traced.add_submodule(
        "unused", nn.ReLU()
    )
    assert not traced.add_submodule("first.weight.deep", nn.ReLU())
    with pytest.warns(UserWarning, match="no underlying reference"):
        traced.graph.erase_node(traced.graph.call_module("nowhere", ()))
    assert traced.delete_submodule("inner.extra.deep") and not traced.delete_submodule("inner.nothing")
    traced.delete_all_unused_submodules()
    assert {name for name, _ in traced.named_modules()} == {"", "first", "inner", "inner.0", "inner.1"}


def test_an_error_shows_the_line_of_generated_code(capsys):
    def program(x):
        y = tenon.relu(x)
        return y.no_such_method()

    with pytest.raises(AttributeError):
        fx.symbolic_trace(program)(tenon.ones(1))

    printed = capsys.readouterr().err
    assert "Call using an FX-traced Module, line 6 of the traced Module's generated forward" in printed
    assert "no_such_method" in printed and "<--- HERE" in printed


def test_an_error_inside_of_a_layer_is_the_layers(capsys):
    with pytest.raises(RuntimeError):
        fx.symbolic_trace(Net())(tenon.ones(5, 5))

    assert "FX-traced" not in capsys.readouterr().err


def test_hooks_are_told_of_nodes_that_come_and_go():
    traced = fx.symbolic_trace(Net())
    heard = []
    traced._register_create_node_hook(lambda node: heard.append(("made", node.name)))
    traced._register_erase_node_hook(lambda node: heard.append(("erased", node.name)))
    last = traced.graph.output_node().args[0]

    with traced._set_replace_hook(lambda old, new, user: heard.append((old.name, new, user.name))):
        with traced.graph.inserting_after(last):
            new = traced.graph.call_method("neg", (last,))
        last.replace_all_uses_with(new, lambda user: user is not new)
        last.graph.output_node().args = (last,)
        traced.graph.erase_node(new)

    assert heard == [("made", "neg"), ("log_softmax", "neg", "output"), ("erased", "neg")]


def test_readable_code_has_shapes_and_the_programs_lines():
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    model = Net()
    traced = fx.GraphModule(model, tracer.trace(model))
    for node in traced.graph.nodes:
        node.meta["val"] = tenon.ones(2, 3)

    text = traced.print_readable(print_output=False, include_stride=True, include_device=True)

    assert (
        'first: "f32[2, 3][3, 1]cpu" = self.first(x)' in text
        and "class GraphModule(tenon.nn.Module):" in text
    )
    assert "code: return F.log_softmax(self.inner(self.first(x)), dim=-1)" in text
    assert all(line == line.rstrip() for line in text.split("\n"))
    assert "\033[2m# File" in traced.print_readable(print_output=False, colored=True)


def test_functions_without_a_name_are_globals_of_the_code():
    class Draw(nn.Module):
        def forward(self, x):
            return x + tenon.rand(3)

    module = tenon.export.export(Draw(), (tenon.zeros(3),)).module()

    assert module(tenon.ones(3)).shape == (3,)
    assert next(node for node in module.graph.nodes if "host_draw" in node.name).is_impure()


def test_a_module_may_be_freed_while_linecache_goes_over_its_entries():
    """``linecache.checkcache`` reads a list of names and then each entry: none may vanish meanwhile."""
    name = type(fx.symbolic_trace(lambda x: x + 1)).forward.__code__.co_filename
    gc.collect()

    assert name in linecache.cache
    fx.symbolic_trace(lambda x: x + 2)
    assert name not in linecache.cache
