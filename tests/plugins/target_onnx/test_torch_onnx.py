"""``torch.onnx.export``: its parameters, what does nothing, what is refused, and what to install."""

import io
import sys

import numpy as np
import pytest
from tests.plugins.target_onnx.programs import needs_runtime

import tenon as t
from tenon import nn
from tenon.errors import ArgumentError, PluginNotFoundError, ShapeError, TenonWarning, UnsupportedError
from tenon.plugins import registry

pytestmark = needs_runtime


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.norm = nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3)

    def forward(self, x, y, scale=1.0):
        return self.norm(self.drop(self.linear(x))) * scale + y, y * 2


@pytest.fixture
def model():
    t.manual_seed(0)
    return Both()


ARGS = (t.ones(2, 4), t.arange(6.0).reshape(2, 3))


def shapes(values):
    return [(v.name, [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]) for v in values]


def test_writes_a_file_in_eval_mode_and_leaves_the_mode(model, tmp_path):
    before = {k: v.clone() for k, v in model.state_dict().items()}

    program = t.onnx.export(
        model, ARGS, tmp_path / "model.onnx", input_names=["first", "second"], output_names=["out"]
    )

    assert model.training and model.norm.training
    assert all(t.equal(before[k], v) for k, v in model.state_dict().items())
    assert (tmp_path / "model.onnx").read_bytes() == program.model_proto.SerializeToString(deterministic=True)
    assert shapes(program.model_proto.graph.input) == [("first", [2, 4]), ("second", [2, 3])]
    assert shapes(program.model_proto.graph.output) == [("out", [2, 3]), ("output1", [2, 3])]
    for own, other in zip(model.eval()(*ARGS), program(*ARGS), strict=True):
        np.testing.assert_allclose(other.numpy(), own.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_keywords_one_tensor_and_buffers(model):
    buffer = io.BytesIO()
    t.onnx.export(nn.ReLU(), t.ones(3), buffer, verify=True, opset_version=18)
    assert len(buffer.getvalue()) > 50

    program = t.onnx.export(model, ARGS, kwargs={"scale": 3.0}, verify=True)

    assert program.captured.signature.inputs == ("x", "y") or list(program.captured.signature.inputs) == [
        "x",
        "y",
    ]


def test_dynamic_axes_and_shapes(model):
    axes = t.onnx.export(
        model, ARGS, input_names=["first"], dynamic_axes={"first": {0: "batch"}, "y": {0: "batch"}}
    )
    shaped = t.onnx.export(model, ARGS, dynamic_shapes={"x": {0: t.export.Dim("batch")}, "y": {0: "batch"}})

    for program in (axes, shaped):
        assert [s for _, s in shapes(program.model_proto.graph.input)] == [["batch", 4], ["batch", 3]]
        assert program(t.ones(7, 4), t.ones(7, 3))[0].shape == (7, 3)
    with pytest.raises(ArgumentError, match="not both"):
        t.onnx.export(model, ARGS, dynamic_axes={"x": [0]}, dynamic_shapes={"x": {0: "batch"}})
    with pytest.raises(ArgumentError, match="dynamic_axes names nothing; the inputs are x, y"):
        t.onnx.export(model, ARGS, dynamic_axes={"nothing": [0]})


def test_a_misspelled_name_of_an_axis_warns(model):
    with pytest.warns(
        TenonWarning, match="dynamic_axes names yy, neither an input nor an output. The inputs are a, input"
    ):
        program = t.onnx.export(
            nn.Linear(4, 2), ARGS[0], input_names=["a"], output_names=["b"],
            dynamic_axes={"a": {0: "n"}, "yy": {0: "n"}, "b": {0: "n"}},
        )  # fmt: skip

    assert shapes(program.model_proto.graph.input) == [("a", ["n", 4])]


@pytest.mark.parametrize("opset", [16, 24, "20"])
def test_an_opset_that_is_not_written_is_refused_before_anything_else(opset):
    with pytest.raises(ArgumentError, match=f"writes opsets 17 to 23, not {opset!r}"):
        t.onnx.export(lambda x: t.fft.fft(x), t.ones(3), opset_version=opset)


def test_sizes_of_one_name_must_be_equal_and_in_their_range():
    """By itself, onnxruntime repeats a size of 1, and cuts slices short."""
    example, axes = (t.ones(4, 2), t.ones(4, 2)), {"x": {0: "n"}, "y": {0: "n"}}
    program = t.onnx.export(lambda x, y: x[:3] + y[:3], example, dynamic_axes=axes)

    assert program(t.ones(5, 2), t.ones(5, 2)).shape == (3, 2)
    with pytest.raises(
        ShapeError, match="dimension 0 of input 'y' is 4, but n = 1 in dimension 0 of input 'x'"
    ):
        program(t.ones(1, 2), t.ones(4, 2))
    with pytest.raises(
        ShapeError, match="n = 2, dimension 0 of input 'x', is out of range: it may be 3 or more"
    ):
        program(t.ones(2, 2), t.ones(2, 2))


def test_an_exported_program_is_written_as_it_is(model):
    exported = t.export.export(model.eval(), ARGS)

    assert shapes(t.onnx.export(exported).model_proto.graph.input) == [("x", [2, 4]), ("y", [2, 3])]


def test_parameters_may_be_inputs(model):
    names = [
        name for name, _ in shapes(t.onnx.export(model, ARGS, export_params=False).model_proto.graph.input)
    ]

    assert names[:2] == ["x", "y"] and {"linear.weight", "norm.running_mean"} <= set(names)


def test_external_data_is_next_to_the_model(tmp_path):
    t.onnx.export(nn.Linear(40, 40), t.ones(1, 40), tmp_path / "a.onnx", external_data=True)

    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "a.onnx.data"]


def test_what_does_nothing_warns_and_what_would_is_refused(model):
    with pytest.warns(TenonWarning, match="report=True has no effect"):
        t.onnx.export(nn.ReLU(), t.ones(2), report=True)
    for option in (
        {"custom_translation_table": {"a": print}}, {"keep_initializers_as_inputs": True}, {"custom_opsets": {"a": 1}},
        {"training": t.onnx.TrainingMode.TRAINING}, {"operator_export_type": t.onnx.OperatorExportTypes.ONNX_ATEN},
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match=r"torch\.onnx\.export"):
            t.onnx.export(model, ARGS, **option)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        t.onnx.export(model, ARGS, nonsense=1)


def test_says_what_to_install(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnx", None)
        with pytest.raises(UnsupportedError, match=r"pip install 'tenon-platform\[onnx\]'"):
            t.onnx.export(nn.ReLU(), t.ones(2))

    def resolve(kind, name):
        raise PluginNotFoundError("no target 'onnx'")

    monkeypatch.setattr(registry, "resolve", resolve)
    with pytest.raises(UnsupportedError, match=r"plugin tenon_target_onnx.*pip install"):
        t.onnx.export(nn.ReLU(), t.ones(2))


def test_models_can_ask_whether_they_are_exported():
    asked = []

    def function(x):
        asked.append(t.onnx.is_in_onnx_export())
        return x + 1

    t.onnx.export(function, t.ones(2))

    assert asked and all(asked) and not t.onnx.is_in_onnx_export()


def test_int8_weights_are_read_by_one_node_each():
    """Onnxruntime rewrites them where the processor lacks VNNI, and does not load a model that shares them."""
    layer = nn.Linear(4, 4)
    quantized = t.quantize(nn.Sequential(layer, nn.ReLU(), layer).eval(), "int8-dynamic").model

    program = t.onnx.export(quantized, t.randn(2, 4), verify=True)

    graph = program.model_proto.graph
    stored = {i.name for i in graph.initializer if i.data_type == 3 and i.dims}  # int8
    read = [name for node in graph.node for name in node.input if name in stored]
    assert len(read) == len(set(read)) == 2 * 2  # a weight and zero points, twice
