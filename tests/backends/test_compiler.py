"""Without a compiler, programs run with the kernels of the backend; optional methods of the backend still apply."""

import numpy as np
import pytest

import tenon
from tenon.engine.aval import aval_of
from tenon.extend import Backend, Compiler, cluster
from tenon.graph.graph import Graph
from tenon.graph.passes import default
from tenon.graph.program import Program

CPU = tenon.zeros(1)._backend


class Plain(Backend):
    """A backend over NumPy without further kernels."""

    name, xp, array_type = "plain", np, np.ndarray


def double_exp():
    builder = cluster.Builder()
    x = builder.input((3,), np.float64)
    return builder.build([cluster.Namespace(builder).exp(x) * 2.0])


def exp_into(x, out):
    np.copyto(out, 2 * np.exp(x))


def test_a_program_of_a_backend_without_a_compiler_runs_by_kernels():
    graph, x = Graph(), np.array([[1.0, 2.0], [3.0, 4.0]])
    node = graph.input(aval_of(x))
    product = graph.call(tenon.ops.matmul, (node.out(), node.out()), {}, (aval_of(x),))
    weights = graph.call(tenon.ops.softmax, (product.out(),), {"axis": 1}, (aval_of(x),))
    graph.outputs = [graph.call(tenon.ops.mul, (weights.out(), 2.0), {}, (aval_of(x),)).out()]
    program = Program(graph, Plain(), default(Plain()))

    program.bind({node: x})
    program.run()

    expected = tenon.softmax(tenon.tensor(x) @ tenon.tensor(x), 1) * 2
    np.testing.assert_allclose(program.value(graph.outputs[0]), expected.numpy(), rtol=1e-12)
    assert "fused" not in program.source


def test_hooks_that_a_backend_defines_itself_serve_and_warn():
    with pytest.warns(DeprecationWarning, match=r"Old defines fuse, .* `compiler = ThatClass\(\)`") as caught:

        class Old(Plain):
            def fuse(self, cluster):
                return exp_into

    assert caught[0].filename == __file__
    compiler = Old().compiler
    assert isinstance(compiler, Compiler) and compiler.fuse(double_exp()) is exp_into
    assert compiler.prepare(tenon.ops.exp, (np.zeros(3),), {}, (np.zeros(3),)) is None


def test_such_hooks_override_those_of_the_base_class():
    with pytest.warns(DeprecationWarning, match="Old defines fuse"):

        class Old(type(CPU)):
            def fuse(self, cluster):
                return exp_into

    compiler = Old().compiler

    assert compiler.fuse(double_exp()) is exp_into
    assert compiler.layouts() is CPU.compiler.layouts()
