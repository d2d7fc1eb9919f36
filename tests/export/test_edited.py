"""A graph that was edited is exported as edited: an ``fx`` graph and an op graph, to every target."""

import numpy as np
import pytest

import tenon
from tenon import fx, nn
from tenon.engine.op import table
from tenon.export import capture, load, save, verify
from tenon.nn import functional as F
from tenon.testing.suites.reference_target import ReferenceTarget

TARGETS = [
    pytest.param(lambda: ReferenceTarget(), id="reference"),
    *(
        pytest.param(
            lambda name=name: tenon.export.bundle.target_named(name), id=name, marks=pytest.mark.slow
        )
        for name in ("numpy", "c", "onnx", "stablehlo")
    ),
]


class Block(nn.Module):
    activation = staticmethod(F.relu)

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return self.activation(self.norm(self.conv(x)) + self.shortcut(x))


class Smooth(Block):
    activation = staticmethod(F.silu)


@pytest.fixture
def nets():
    """A net, and the net that it equals after the edit, with the same weights."""
    tenon.manual_seed(0)
    net, edited = (nn.Sequential(each(3, 8), each(8, 4)).eval() for each in (Block, Smooth))
    edited.load_state_dict(net.state_dict())
    return net, edited


def exported(what, target, folder, expected, *calls):
    """Export, verify, and compare the vectors with the outputs of another model."""
    if reason := target.unavailable():
        pytest.skip(reason)
    if isinstance(what, nn.Module):
        save(what, folder, calls[0], targets=[target])
    else:
        save(what, folder, targets=[target], calls=calls)
    report = verify(folder, found=[target])
    assert report.passed, [v.reason for v in report.verdicts]
    for run, call in zip(load(folder).vectors.runs, calls, strict=True):
        np.testing.assert_allclose(run.outputs[0], expected(*call).detach().numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", TARGETS)
def test_an_edited_fx_graph_is_exported(make, nets, tmp_path):
    net, edited = nets
    x = tenon.randn(2, 3, 9, 9)
    traced = fx.symbolic_trace(net)
    relus = [n for n in traced.graph.nodes if n.op == "call_function" and n.target is F.relu]
    for node in relus:
        node.target = F.silu
    traced.graph.lint()
    traced.recompile()

    assert len(relus) == 2 and not tenon.allclose(net(x), edited(x))
    exported(traced, make(), tmp_path / "bundle", edited, (x,))


def replaced(graph):
    """Make each relu a silu, and append a tanh."""
    for node in graph.calls:
        if node.name == "relu":
            node.op = table.silu
    (result,) = graph.outputs
    new = graph.call(table.tanh, (result,), {}, (result.aval,))
    graph.outputs[0] = new.out()
    graph.verify()
    return graph


def test_an_edited_op_graph_is_exported(nets, tmp_path):
    net, edited = nets
    x = tenon.randn(2, 3, 9, 9)

    exported(
        replaced(capture(net, x)), ReferenceTarget(), tmp_path / "bundle", lambda x: edited(x).tanh(), (x,)
    )


@pytest.mark.parametrize("make", TARGETS[1:])
def test_an_edited_op_graph_is_exported_with_sizes_that_may_change(make, nets, tmp_path):
    net, edited = nets
    graph = capture(net, tenon.randn(2, 3, 9, 9), dynamic={"input": {0: "batch"}})
    graph.symbols["batch"] = graph.symbols["batch"].bounded(1, 6)
    calls = [(tenon.randn(n, 3, 9, 9),) for n in (1, 5)]

    exported(replaced(graph), make(), tmp_path / "bundle", lambda x: edited(x).tanh(), *calls)
