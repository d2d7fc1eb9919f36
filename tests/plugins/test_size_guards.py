"""Every target checks the branches on sizes of the graph that it writes."""

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import LoweringError, TenonError
from tenon.export import capture, save, verify
from tenon_target_c.sizes import _samples
from tenon_target_c.target import CTarget
from tenon_target_numpy.target import NumpyTarget
from tenon_target_onnx.target import OnnxTarget
from tenon_target_stablehlo.target import StableHloTarget


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        y = self.linear(x)
        if x.shape[0] > 12:
            y = y.relu()
        return y * 2 if y[::2].shape[0] % 3 == 0 else y


def captured():
    tenon.manual_seed(0)
    graph = capture(Gate(), tenon.randn(7, 4), dynamic={"x": {0: "n"}})
    graph.symbols["n"] = graph.symbols["n"].bounded(0, 16)
    return graph


@pytest.mark.parametrize(
    "target",
    [
        NumpyTarget,
        pytest.param(CTarget, marks=pytest.mark.slow),
        pytest.param(OnnxTarget, marks=pytest.mark.slow),
        pytest.param(StableHloTarget, marks=pytest.mark.slow),
    ],
)
def test_sizes_of_another_branch_are_refused_with_the_condition(target, tmp_path):
    target, graph = target(), captured()
    if (reason := target.unavailable()) is not None:
        pytest.skip(reason)

    folder = save(graph, tmp_path / "gate", targets=[target], calls=[(tenon.randn(2, 4),)])

    assert verify(folder, found=[target]).passed
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    (result,) = target.run(folder / target.name, [[x]])
    np.testing.assert_allclose(result[0], graph.run(tenon.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    for size, condition in ((5, "((n + 1)//2) % 3 == 0"), (6, "((n + 1)//2) % 3 == 0"), (13, "n > 12")):
        with pytest.raises(TenonError) as caught:
            target.run(folder / target.name, [[np.zeros((size, 4), np.float32)]])
        text = str(caught.value)
        assert condition in text and "test_size_guards.py:" in text


def test_c_states_each_guard_and_compares_programs_of_permitted_sizes(tmp_path):
    graph = captured()

    CTarget().write(CTarget().lowered(graph), None, tmp_path)

    text = (tmp_path / "model.c").read_text()
    assert "&& !((n_n > 12) == 0)) {" in text
    assert "Python decided by n > 12 at test_size_guards.py:" in text
    odd = capture(lambda x: x * 2 if x.shape[0] % 2 else x, tenon.ones(7), dynamic={"x": {0: "n"}})
    odd.symbols["n"] = odd.symbols["n"].bounded(0, 4)
    with pytest.raises(LoweringError, match=r"guard .* leaves less than three up to"):
        CTarget().lowered(odd)


@pytest.mark.parametrize("most", [64, 1000])
def test_c_takes_guards_that_permit_a_small_part_of_the_range(most, tmp_path):
    graph = capture(lambda x: x.relu() if x.shape[0] > 20 else x * 2, tenon.ones(3), dynamic={"x": {0: "n"}})
    graph.symbols["n"] = graph.symbols["n"].bounded(1, most)

    CTarget().write(CTarget().lowered(graph), None, tmp_path)

    assert max(sizes["n"] for sizes in _samples(graph)) == 20


def test_onnx_names_the_node_that_fails():
    from tenon_target_onnx.model import Options, make

    target = OnnxTarget()
    if (reason := target.missing()) is not None:
        pytest.skip(reason)

    nodes = make(target.lowered(captured()), Options()).proto.graph.node

    names = [node.name for node in nodes if node.op_type == "Gather"]
    assert [name.partition(" (test_")[0] for name in names] == [
        "guard n > 12 is False", "guard ((n + 1)//2) % 3 == 0 is False"
    ]  # fmt: skip
