"""The contents of models: names, sizes that may change, external weights, quantized layers, other files."""

import io
import os

import numpy as np
import pytest
from tests.plugins.target_onnx.programs import needs_runtime

import tenon as t
from tenon import nn
from tenon.errors import ArgumentError, LoweringError, UnsupportedError
from tenon.export import capture, make_vectors
from tenon.nn import functional as F
from tenon.testing.suites.target_models import MODELS
from tenon_target_onnx import packages
from tenon_target_onnx.model import Options
from tenon_target_onnx.program import program
from tenon_target_onnx.running import run_session, session_of
from tenon_target_onnx.target import OnnxTarget

pytestmark = [needs_runtime, pytest.mark.slow]


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


def example(name):
    made = MODELS[name]()
    return made.model, made.args


def operators(proto):
    return [node.op_type for node in proto.graph.node]


def test_nodes_say_of_which_module_they_are():
    model, args = example("gpt")

    proto = program(capture(model, *args)).model_proto

    nodes = {node.name: node for node in proto.graph.node}
    fc = nodes["blocks.1.fc/MatMul"]
    assert {p.key: p.value for p in fc.metadata_props} == {"op": "linear", "module": "blocks.1.fc"}
    assert fc.doc_string.startswith(__file__)
    assert proto.opset_import[0].version == 20 and proto.producer_name == "tenon"
    assert {"Gelu", "LayerNormalization", "Softmax", "Gather"} <= set(operators(proto))


def test_weights_are_stored_under_their_names_once():
    model, args = example("gpt")
    state = model.state_dict()

    proto = program(capture(model, *args)).model_proto

    dims = {each.name: tuple(each.dims) for each in proto.graph.initializer}
    assert "head.weight" not in dims  # it is wte.weight
    for name, value in state.items():
        if name != "head.weight":
            assert dims[name] == tuple(value.shape)


def test_composites_that_onnx_has_are_one_node_each():
    recurrent = operators(program(capture(*_flat(example("lstm_tagger")))).model_proto)
    assert recurrent.count("LSTM") == 4 and "Sigmoid" not in recurrent
    resnet = operators(program(capture(*_flat(example("resnet")))).model_proto)
    assert resnet.count("BatchNormalization") == resnet.count("Conv") == 20
    assert operators(program(capture(*_flat(example("unet")))).model_proto).count("ConvTranspose") == 1


def _flat(made):
    model, args = made
    return model, *args


def test_before_opset_20_gelu_is_taken_apart():
    graph = capture(nn.GELU(), t.randn(2, 3))

    assert operators(program(graph, opset=20).model_proto) == ["Gelu"]
    assert "Erf" in operators(program(graph, opset=18).model_proto)
    with pytest.raises(ArgumentError, match="17 to 23, not 12"):
        program(graph, opset=12)


def test_quantized_layers_are_between_quantize_and_dequantize():
    model, args = example("digits")
    small = t.quantize(model, "int8", [args[0]]).model

    proto = program(capture(small, *args)).model_proto

    found = operators(proto)
    assert found.count("QuantizeLinear") == 3  # the images, and the results of both convolutions
    assert found.count("DequantizeLinear") == 3 * 3  # input, weight and bias of each layer
    weight = next(i for i in proto.graph.initializer if i.name == "features.3.weight")
    assert weight.data_type == 3  # int8


def test_int8_on_other_images_is_within_one_step(tmp_path):
    model, args = example("digits")
    small = t.quantize(model, "int8", [args[0]]).model
    batch = t.randn(64, 1, 8, 8)
    graph = capture(small, batch)
    vectors = make_vectors(graph, [(batch,)])
    target = OnnxTarget()
    target.write(target.lowered(graph), vectors, tmp_path)

    results = target.run(tmp_path, [[batch.numpy()]])

    assert vectors.excess(results) <= 1


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.out(F.relu(self.layer(F.relu(self.layer(x)))))


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic", "int8-weights"])
def test_layers_share_no_array_that_onnxruntime_rewrites(scheme, tmp_path):
    x = t.randn(5, 8)
    graph = capture(t.quantize(Twice().eval(), scheme, [x] if scheme == "int8" else None).model, x)
    vectors = make_vectors(graph, [(x,)])
    target = OnnxTarget()
    target.write(target.lowered(graph), vectors, tmp_path)

    assert vectors.excess(target.run(tmp_path, [[x.numpy()]])) <= 1


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(10, 8), nn.Linear(8, 10)
        self.out.weight = self.words.weight

    def forward(self, words):
        return self.out(self.words(words))


def test_an_int8_embedding_that_is_the_last_layer_too(tmp_path):
    model = t.quantize(Tied().eval(), "int8-weights").model
    words = t.tensor([[1, 2, 9]])
    graph = capture(model, words)
    OnnxTarget().write(OnnxTarget().lowered(graph), None, tmp_path)

    (result,) = OnnxTarget().run(tmp_path, [[words.numpy()]])[0]

    np.testing.assert_allclose(result, model(words).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_the_bias_of_a_channel_without_weights_is_exact(tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).eval()
    with t.no_grad():
        model[0].weight[1:3].zero_()
        model[0].bias.copy_(t.tensor([0.1, 0.234567, 0.0, 0.3]))
    images = 4 * t.randn(8, 1, 4, 4)
    graph = capture(t.quantize(model, "int8", [images]).model, images)
    vectors = make_vectors(graph, [(images,)])
    OnnxTarget().write(OnnxTarget().lowered(graph), vectors, tmp_path)

    assert vectors.excess(OnnxTarget().run(tmp_path, [[images.numpy()]])) <= 1


def test_stored_weights_stay_int8():
    model, args = example("digits")
    small = t.quantize(model, "int8-weights", [args[0]]).model

    proto = program(capture(small, *args)).model_proto

    assert operators(proto).count("DequantizeLinear") == 3 and "Cast" not in operators(proto)


def test_large_weights_go_to_a_file_next_to_the_model(tmp_path):
    model, args = example("vit")
    graph = capture(model, *args)
    target = OnnxTarget(Options(largest=1000))

    target.write(target.lowered(graph), None, tmp_path)

    names = sorted(os.listdir(tmp_path))
    assert names == ["model.onnx", "model.onnx.data"]
    assert (tmp_path / "model.onnx").stat().st_size < (tmp_path / "model.onnx.data").stat().st_size * 2
    vectors = make_vectors(graph, [args])
    assert vectors.excess(target.run(tmp_path, [run.inputs for run in vectors.runs])) <= 1


def test_a_model_that_cannot_be_written_leaves_the_old_file(tmp_path, monkeypatch):
    made = program(capture(nn.ReLU(), t.randn(2)))
    path = tmp_path / "model.onnx"
    made.save(path)
    before = path.read_bytes()

    def interrupted(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            program(capture(nn.Tanh(), t.randn(2))).save(path)

    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.onnx"]


def test_an_output_that_is_an_input_or_a_weight_is_a_copy(tmp_path):
    weight = nn.Parameter(t.randn(3))
    made = program(capture(lambda x: (x, weight, x + weight, x), t.randn(3)), output_names=["same"])
    x = t.randn(3)

    results = made(x)

    assert [tuple(r.shape) for r in results] == [(3,)] * 4
    np.testing.assert_array_equal(results[1].numpy(), weight.detach().numpy())
    assert [o.name for o in made.model_proto.graph.output] == ["same", "output1", "output2", "output3"]
    buffer = io.BytesIO()
    made.save(buffer)
    assert buffer.getvalue() == made.to_bytes()


# --- sizes that may change ---

DYNAMIC = {
    "digits": {"images": {0: "batch"}},
    "resnet": {"x": {0: "batch"}},
    "mobilenet": {"x": {0: "batch"}},
    "vit": {"x": {0: "batch"}},
    "gpt": {"tokens": {0: "batch"}},
    "bert": {"tokens": {0: "batch"}, "mask": {0: "batch"}},
    "unet": {"x": {0: "batch"}},
    "lstm_tagger": {"words": {0: "batch"}},
    "gru": {"x": {1: "batch"}},
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_models_run_at_other_batch_sizes(name, tmp_path):
    model, args = example(name)
    graph = capture(model, *args, dynamic=DYNAMIC[name])
    made = program(graph)
    path = tmp_path / "model.onnx"
    made.save(path)
    session = session_of(path)
    axes = next(iter(DYNAMIC[name].values()))
    axis = next(iter(axes))

    assert made.model_proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param == "batch"
    for count in (1, 2, 5):
        given = [np.take(a.numpy(), np.arange(count) % a.shape[axis], axis) for a in args]
        expected = model(*map(t.from_numpy, given))
        results = run_session(session, given)
        for own, other in zip(expected if isinstance(expected, tuple) else (expected,), results, strict=True):
            np.testing.assert_allclose(other, own.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_sizes_are_computed_from_the_inputs(tmp_path):
    def function(x, y):
        n, m = x.shape[0], y.shape[0]
        both = t.cat([x, y])
        return (
            both.reshape(-1), both.reshape((n + m) * 2, 2), x.new_full((n, 3), 2.0), x[: n // 2], x[n - 1], x[1:],
            t.stack([x, x]).flatten(0, 1), x.expand(2, n, 4), x.transpose(0, 1).reshape(2, 2 * n),
        )  # fmt: skip

    graph = capture(function, t.randn(4, 4), t.randn(3, 4), dynamic={"x": {0: "rows"}, "y": {0: "more"}})
    made = program(graph)
    path = tmp_path / "model.onnx"
    made.save(path)
    session = session_of(path)

    for n, m in ((4, 3), (7, 1), (2, 9)):
        x, y = t.randn(n, 4), t.randn(m, 4)
        for own, other in zip(function(x, y), run_session(session, [x.numpy(), y.numpy()]), strict=True):
            np.testing.assert_allclose(other, own.numpy(), rtol=1e-5, atol=1e-5)


# --- refusals ---


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Identity()

    def forward(self, x):
        return t.lgamma(self.first(x)) + t.erfinv(x), t.fft.fft(x)


def test_ops_without_a_form_are_named_at_once_with_their_modules(tmp_path):
    graph = capture(nn.Sequential(nn.Linear(3, 3), Odd()), t.rand(2, 3))
    target = OnnxTarget()

    with pytest.raises(LoweringError) as caught:
        target.lowered(graph)

    text = str(caught.value)
    assert all(name in text for name in ("lgamma", "erfinv", "fft", "1 at ")), text


def test_an_op_that_needs_a_later_opset_says_so():
    graph = capture(lambda i: i & 3, t.arange(4))

    with pytest.raises(LoweringError, match=r"does not support at opset 17 .*bitwise_and of int64"):
        program(graph, opset=17)


def test_state_and_guards_are_refused():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with pytest.raises(LoweringError, match=r"changes 1\.num_batches_tracked, 1\.running_mean.*eval"):
        program(capture(model, t.randn(4, 3)))
    with pytest.raises(LoweringError, match="cannot check guards"):
        program(capture(lambda x: x * 2 if (x > 0).all() else x, t.ones(2), guards=True))


def test_names_that_do_not_fit_are_refused():
    graph = capture(nn.ReLU(), t.ones(2))

    with pytest.raises(ArgumentError, match="input_names has 2 names, but the model has 1"):
        program(graph, input_names=["a", "b"])
    with pytest.raises(ArgumentError, match="output_names has a name twice"):
        program(capture(lambda x: (x, x + 1), t.ones(2)), output_names=["a", "a"])


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'tenon-platform\[onnx\]'"):
        OnnxTarget().lowered(capture(nn.ReLU(), t.ones(2)))
    assert "needs the package onnx" in OnnxTarget().unavailable()
    assert packages.runtime() is not None
