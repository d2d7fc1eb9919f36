"""The pass ``decompose`` against the original graph: every composite, every sample of it, and gradients."""

import numpy as np
import pytest

import tenon
from tenon.engine.aval import aval_of
from tenon.engine.op import Composite, table
from tenon.graph import passes
from tenon.graph.graph import Graph
from tenon.graph.interpreter import Interpreter
from tenon.graph.passes.decompose import decompose
from tenon.graph.passes.fuse import fuse
from tenon.nn import functional as F
from tenon.testing import samples

pytestmark = pytest.mark.together

COMPOSITES = sorted(op.name for op in table if isinstance(op, Composite))


def graph_of(sample, backend, hidden):
    """One call of the sample's op, its residuals kept if ``hidden``; and the arrays of its inputs."""
    op, graph, arrays, args = table[sample.op], Graph(), {}, []
    for value in sample.arrays(np.float32):
        if isinstance(value, np.ndarray):
            node = graph.input(aval_of(value))
            arrays[node] = value
            value = node.out()
        args.append(value)
    given = [arrays[a.node] if hasattr(a, "node") else a for a in args]
    with np.errstate(all="ignore"):
        made = backend.kernel_for(op, given)(*given, **sample.attrs)
    made = made if isinstance(made, tuple) else (made,)
    avals = tuple(aval_of(backend.as_array(m)) for m in made)
    node = graph.call(op, tuple(args), dict(sample.attrs), avals if hidden else avals[: op.outputs])
    graph.outputs = [node.out(i) for i in range(len(node.avals))]
    return graph, arrays


@pytest.mark.parametrize("name", COMPOSITES)
def test_the_parts_of_a_composite_compute_what_it_does(backend, name):
    for sample in samples.of(name):
        for hidden in {False, bool(table[name].residuals)}:
            graph, arrays = graph_of(sample, backend, hidden)
            expected, _ = Interpreter(graph, backend).run(arrays)

            passes.run(graph, [passes.ready(decompose, backend)])

            found, _ = Interpreter(graph, backend).run(arrays)
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(
                    mine, theirs, rtol=2e-4 * sample.loose, atol=2e-5 * sample.loose, err_msg=str(sample)
                )


def names(graph):
    return [n.op.name for n in graph.calls]


def test_what_is_one_kernel_is_taken_apart_and_stays_together(make, backend):
    m = make()
    x, weight, bias = m.input(64, 96), m.input(96), m.input(96)
    m.returns(m.mul(m.layer_norm(m.add(x, 1.0), weight, bias, rank=1), 2.0))

    decompose(m.graph, backend)
    apart = names(m.graph)
    fuse(m.graph, backend)

    assert "layer_norm" not in apart and {"mean", "rsqrt"} <= set(apart)
    assert [n.label for n in m.graph.calls] == ["add+layer_norm+mul"]


def test_what_a_backend_has_a_kernel_for_stays_whole(make, backend):
    m = make()
    y = m.linear(m.input(4, 8), m.input(3, 8), m.input(3))
    long = m.softmax(m.input(4, 1 << 17), axis=1)  # no row for one kernel
    m.returns(m.addmm(y, m.input(4, 5), m.input(5, 3)), long)

    decompose(m.graph, backend)

    assert names(m.graph) == ["linear", "softmax", "addmm"]


def test_ops_without_a_kernel_are_decomposed(make, backend):
    m = make()
    m.returns(m.var(m.input(5, 7), axes=(0,), correction=1, keepdims=False))

    decompose(m.graph, backend)

    assert "var" not in names(m.graph)
    assert all(n.part_of is None for n in m.graph.calls)


def norms(x, w):
    return F.layer_norm(F.gelu(x @ w), (6,)).softmax(-1)


def statistics(x, w):
    y = F.batch_norm((x @ w), tenon.zeros(6), tenon.ones(6))
    return F.silu(y) + y.var(0) + y.logsumexp(1, keepdim=True)


def losses(x, w):
    y = x @ w
    return F.mse_loss(y, x[:, :6]) + F.huber_loss(y, x[:, :6]) + F.cross_entropy(y, tenon.arange(5) % 3)


@pytest.mark.parametrize("function", [norms, statistics, losses], ids=lambda f: f.__name__)
def test_gradients_are_those_of_the_composites(monkeypatch, function):
    def gradients():
        tenon.manual_seed(3)
        x, w = tenon.randn(5, 8).requires_grad_(), tenon.randn(8, 6).requires_grad_()

        @tenon.compile(fullgraph=True)
        def step(x, w):
            x.grad = w.grad = None
            loss = (function(x, w) * tenon.arange(6)).sum()
            loss.backward()
            return loss.detach(), x.grad.clone(), w.grad.clone()

        for _ in range(4):
            found = step(x, w)
        return [g.numpy() for g in found], step.programs[0].source

    parts, source = gradients()
    with monkeypatch.context() as patched:
        patched.setattr(passes, "LOWER", tuple(p for p in passes.LOWER if p is not decompose))
        whole, other = gradients()

    assert source != other
    for mine, theirs in zip(parts, whole, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
