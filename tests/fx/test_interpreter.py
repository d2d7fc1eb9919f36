"""Programs that run node by node, and programs that are rebuilt by running others on proxies."""

import pytest

import tenon
from tenon import fx, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(tenon.ones(4))
        self.linear = nn.Linear(4, 2)

    def forward(self, x, y=3.0):
        return self.linear(x + self.weight).clamp(min=0.0) * y


def test_an_interpreter_computes_what_the_code_computes():
    traced = fx.symbolic_trace(Net())
    x = tenon.randn(3, 4)

    interpreter = fx.Interpreter(traced)
    assert tenon.equal(interpreter.run(x), traced(x))
    assert list(interpreter.env) == [traced.graph.output_node()], "other values are freed"
    kept = fx.Interpreter(traced, garbage_collect_values=False)
    kept.run(x, 2.0)
    assert len(kept.env) == len(traced.graph.nodes)
    with pytest.raises(RuntimeError, match="parameter x, but one was not passed in"):
        interpreter.run()


def test_values_that_are_given_are_not_computed():
    traced = fx.symbolic_trace(Net())
    linear = next(node for node in traced.graph.nodes if node.target == "linear")

    result = fx.Interpreter(traced).run(tenon.ones(3, 4), initial_env={linear: tenon.ones(3, 2)})

    assert tenon.equal(result, tenon.full((3, 2), 3.0))


def test_an_error_names_the_node_and_the_programs_line():
    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    model = Net()
    traced = fx.GraphModule(model, tracer.trace(model))

    with pytest.raises(RuntimeError, match=r"(?s)executing %add : .*operator.add.*self.linear\(x"):
        fx.Interpreter(traced).run(tenon.ones(3, 5))


def test_a_transformer_makes_a_new_program_with_the_old_notes():
    class Swap(fx.Transformer):
        def call_method(self, target, args, kwargs):
            if target == "clamp":
                return super().call_function(tenon.neg, args, {})
            return super().call_method(target, args, kwargs)

    traced = fx.symbolic_trace(Net())
    for node in traced.graph.nodes:
        node.meta["stack_trace"] = f"trace of {node.name}"

    swapped = Swap(traced).transform()

    x = tenon.randn(3, 4)
    assert tenon.allclose(swapped(x), -traced.linear(x + traced.weight) * 3)
    assert next(n for n in swapped.graph.nodes if n.name == "neg").meta["stack_trace"] == "trace of clamp"
    assert [n.args for n in swapped.graph.find_nodes(op="placeholder")] == [(), (3.0,)]
