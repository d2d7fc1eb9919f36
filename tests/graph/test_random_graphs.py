"""Random graphs: interpreter, every pass and the program agree, and memory stays near its lower bound."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenon.graph import passes
from tenon.graph.interpreter import Interpreter
from tenon.graph.program import Program
from tenon.kernels.backend import backend_named

UNARY = ["exp", "sin", "relu", "neg", "tanh", "sigmoid", "sqrt", "square", "clone", "sign", "gelu"]
BINARY = ["add", "sub", "mul", "maximum", "div", "relu_grad", "softmax_grad"]
REDUCE = ["sum", "mean", "amax"]
#: Shapes that single numbers are repeated to: a small constant, and one too large to be folded.
FILLED = [(2, 2), (128, 160)]


class Random:
    """Draws one graph: pointwise ops, reductions, products, views, numbers, constants, writes."""

    def __init__(self, m, draw):
        self.m, self.draw = m, draw
        self.values = [m.input(3, 4), m.input(3, 4), m.input(4), m.input(1, 4), m.input(2, 3, 4)]
        self.targets = self.values[:3]
        self.values += [m.constant(m.random.normal(size=(3, 4)).astype("float32"))]
        self.values += [m.constant(np.float32(0.25)), m.constant(np.full((1, 1), 1.5, "float32"))]
        rate = m.scalar()
        self.numbers = [rate, m.number("mul", rate, 3.0), 0.5, 2.0]

    def one_of(self, options):
        return options[self.draw(st.integers(0, len(options) - 1))]

    def step(self):
        m, x = self.m, self.one_of(self.values)
        shape = x.aval.shape
        kind = self.draw(st.integers(0, 9))
        if kind <= 1:
            name = self.one_of(UNARY)
            residuals = (x.aval,) if name == "gelu" else ()
            return m.call(name, x, residuals=residuals)
        if kind <= 3:
            y = self.one_of([v for v in self.values if v.aval.shape in (shape, shape[-1:])])
            name = self.one_of(BINARY)
            if name.endswith("grad"):
                y = x if y.aval.shape != shape else y
                return m.call(name, x, y, **({"axis": len(shape) - 1} if name == "softmax_grad" else {}))
            return m.call(name, x, y)
        if kind == 4:
            return m.call(self.one_of(["add", "mul", "sub"]), x, self.one_of(self.numbers))
        if kind == 5 and shape:
            axes = (self.draw(st.integers(0, len(shape) - 1)),)
            keep = self.draw(st.booleans())
            return m.call(self.one_of(REDUCE), x, axes=axes, keepdims=keep)
        if kind == 6 and len(shape) >= 2:
            turned = m.transpose(x, axis0=len(shape) - 1, axis1=len(shape) - 2)
            return turned if self.draw(st.booleans()) else m.matmul(x, turned)
        if kind == 7 and shape:
            return m.reshape(x, shape=self.one_of([(x.aval.size,), (*shape, 1), shape[::-1], (1, *shape)]))
        if kind == 8 and shape and shape[0] > 1:
            return m.index(x, key=(slice(0, self.draw(st.integers(1, shape[0]))),))
        if len(shape) >= 1 and self.draw(st.booleans()):
            return m.softmax(x, axis=len(shape) - 1)
        return m.sum_to(x, shape=(1,) * len(shape)) if shape else m.expand(x, shape=self.one_of(FILLED))

    def finish(self):
        roots = [v for v in self.values if self.draw(st.integers(0, 3)) == 0] or self.values[-1:]
        self.m.returns(*roots)
        for target in self.targets:
            fitting = [v for v in self.values if v.aval == target.aval]
            if self.draw(st.booleans()):
                self.m.writes(target, self.one_of(fitting))


@st.composite
def graphs(draw, make):
    m = make(draw(st.integers(0, 99)))
    made = Random(m, draw)
    for _ in range(draw(st.integers(1, 14))):
        made.values.append(made.step())
    made.finish()
    m.graph.verify()
    return m


def numbers(graph):
    """Values of the scalar inputs that remain."""
    return [0.3 for n in graph.nodes if n.function == "input"]


def _compare(found, expected, where):
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5, equal_nan=True, err_msg=where)


def _settings(examples):
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )


@pytest.mark.parametrize("name", [p.__name__ for p in dict.fromkeys(passes.DEFAULT)])
def test_a_pass_changes_no_value(make, name):
    backend = backend_named("cpu")
    transform = passes.ready(next(p for p in passes.DEFAULT if p.__name__ == name), backend)

    @_settings(25)
    @given(graphs(make))
    def check(m):
        expected, written = Interpreter(m.graph, backend).run(m.copies(), numbers(m.graph))
        passes.run(m.graph, [transform])
        found, rewritten = Interpreter(m.graph, backend).run(m.copies(), numbers(m.graph))

        _compare(found, expected, str(m.graph))
        assert list(rewritten) == list(written)
        _compare(rewritten.values(), written.values(), str(m.graph))

    check()


@pytest.mark.parametrize(
    "transforms",
    [pytest.param(False, id="without passes", marks=pytest.mark.slow), pytest.param(True, id="with passes")],
)
def test_a_program_computes_what_the_graph_says_every_time(make, transforms):
    backend = backend_named("cpu")

    @_settings(60)
    @given(graphs(make))
    def check(m):
        expected, written = Interpreter(m.graph, backend).run(m.copies(), numbers(m.graph))
        text = str(m.graph)
        program = Program(m.graph, backend, passes.default(backend) if transforms else ())
        arrays = m.copies()
        program.bind(arrays)
        for _ in range(2):
            for node, array in arrays.items():
                array[...] = m.arrays[node]
            program.run(numbers(m.graph))

        where = f"{text}\n{program.source}"
        _compare([program.value(r) for r in m.graph.outputs], expected, where)
        _compare([arrays[node] for node in written], written.values(), where)
        slack = 64 * sum(len(n.avals) for n in program.plan.steps)
        assert program.plan.peak_bytes <= 1.25 * program.plan.lower_bound + slack

    check()
