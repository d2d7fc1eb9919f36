"""What stands in a module: weights as arguments, names, sizes that may change, what MLIR and the loader refuse.

Nothing here runs a module, and only the checks by MLIR need jaxlib.
"""

import importlib.util
import json
import re

import numpy as np
import pytest

import tenon as t
from tenon import nn
from tenon.errors import GraphError, LoweringError
from tenon.export import capture
from tenon.nn import functional as F
from tenon.testing.suites.target_models import MODELS
from tenon_target_stablehlo import packages, target
from tenon_target_stablehlo.packages import portable
from tenon_target_stablehlo.target import StableHloTarget, module_of
from tenon_target_stablehlo.texts import array_text, number_text, symbol_text

needs_jaxlib = pytest.mark.skipif(
    importlib.util.find_spec("jaxlib") is None, reason="MLIR's checks need the package jaxlib"
)


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


def net():
    example = MODELS["net"]()
    return capture(example.model, *example.args)


def test_weights_are_arguments_under_their_names():
    module = module_of(net())

    assert [a["name"] for a in module.arguments] == ["x", "l0.weight", "l0.bias", "l1.weight", "l1.bias"]
    assert [a["role"] for a in module.arguments] == ["argument"] + ["parameter"] * 4
    assert list(module.arrays) == ["l0.weight", "l0.bias", "l1.weight", "l1.bias"]
    assert "%l0.weight: tensor<3x4xf32>" in module.text
    assert "stablehlo.dot_general %x, %l0.weight, contracting_dims = [1] x [1]" in module.text
    assert module.text.startswith("// StableHLO 1.0.0, written by tenon ")


def test_lines_name_the_module_and_the_source():
    text = module_of(net()).text

    assert re.search(r"// l0 at .*test_module\.py:\d+\n", text)
    assert re.search(r'#l0 = loc\("l0/linear"\(".*test_module\.py":\d+:1\)\)', text)


def test_small_constants_are_in_the_text_and_large_ones_in_a_file():
    def function(x):
        return (x + t.arange(5.0)).sum() + (x[:, None] * t.arange(2000.0)).sum()

    module = module_of(capture(function, t.ones(5)))

    assert "dense<[0.0, 1.0, 2.0, 3.0, 4.0]>" in module.text
    assert {name: array.shape for name, array in module.arrays.items()} == {"constant.1": (2000,)}


def test_a_training_step_returns_its_new_state():
    layer = nn.Linear(3, 2)
    optimizer = t.optim.Adam(layer.parameters(), lr=0.25)

    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    module = module_of(capture(step, t.ones(4, 3), train=True))

    numbers = {a["name"]: a for a in module.arguments if a["role"] == "number"}
    assert numbers["optimizer.lr"]["value"] == 0.25 and numbers["optimizer.lr"]["dtype"] == "float64"
    assert [n["increment"] for n in numbers.values()].count(1.0) >= 1
    written = {r["name"] for r in module.results if r["role"] == "state"}
    assert {"weight", "bias", "optimizer.weight.exp_avg", "optimizer.bias.exp_avg_sq"} <= written
    assert module.results[0] == {"role": "output", "dtype": "float32", "shape": []}


def test_sizes_that_may_change_are_read_from_the_arguments():
    graph = capture(nn.Linear(4, 3), t.ones(5, 4), dynamic={"input": {0: "batch"}})
    module = module_of(graph)

    assert "%input: tensor<?x4xf32>" in module.text
    assert "stablehlo.get_dimension_size %input, dim = 0" in module.text
    assert module.arguments[0]["shape"] == ["batch", 4]
    assert list(module.symbols) == ["batch"]


@needs_jaxlib
@pytest.mark.parametrize("name", ["digits", "bert", "gru"])
def test_mlir_accepts_what_is_written(name):
    example = MODELS[name]()

    code = portable(module_of(capture(example.model, *example.args)).text)

    assert code is not None and code.startswith(b"ML\xefR\rStableHLO_v1.0.0")


@needs_jaxlib
def test_mlir_refuses_what_is_wrong(capfd):
    text = module_of(net()).text.replace("tensor<3x4xf32>", "tensor<3x5xf32>")

    with pytest.raises(GraphError, match="error of the target stablehlo"):
        portable(text)
    assert "contracting dimension sizes must match" in capfd.readouterr().err


def test_writing_needs_no_package(tmp_path, monkeypatch):
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)

    StableHloTarget().write(StableHloTarget().lowered(net()), None, tmp_path)

    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "README.md", "model.json", "model.mlir", "model_jax.py", "weights.safetensors",
    ]  # fmt: skip
    assert json.loads((tmp_path / "model.json").read_text())["stablehlo"] == "1.0.0"
    assert "pip install 'tenon-platform[jax]'" in str(StableHloTarget().unavailable())
    with pytest.raises(t.errors.UnsupportedError, match="jax"):
        StableHloTarget().run(tmp_path, [])


def test_everything_that_has_no_form_is_named_at_once():
    class Strange(nn.Module):
        def forward(self, x):
            return t.lgamma(x), t.linalg.svdvals(x), t.fft.fft(x).real, x.cummax(1)[0]

    graph = capture(nn.Sequential(Strange()), t.rand(3, 3))

    with pytest.raises(LoweringError) as caught:
        StableHloTarget().lowered(graph)

    for name in ("lgamma", "svdvals", "fft", "running_extreme"):
        assert name in str(caught.value)
    assert "(0 at " in str(caught.value)


def test_the_position_among_all_elements_needs_fixed_sizes():
    graph = capture(lambda x: x.argmax(), t.randn(4, 6), dynamic={"x": {0: "batch"}})

    with pytest.raises(LoweringError, match="argmax of float32"):
        StableHloTarget().lowered(graph)


def test_a_decision_by_data_is_refused():
    graph = capture(lambda x: x if x.sum() > 0 else -x, t.ones(3), guards=True)

    with pytest.raises(LoweringError, match="where"):
        StableHloTarget().lowered(graph)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "float32", "0.1"), (1e-5, "float32", "1.0e-05"), (1e30, "float32", "1.0e+30"), (3, "int64", "3"),
        (float("-inf"), "float32", "0xFF800000"), (float("nan"), "float64", "0x7FF8000000000000"),
        (1, "bool", "true"), (-7, "int8", "-7"), (1 / 3, "float64", "0.3333333333333333"), (2.5, "float16", "2.5"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_mlir_reads_them(value, dtype, text):
    assert number_text(value, np.dtype(dtype)) == text


def test_names_and_arrays_are_written_as_mlir_reads_them():
    assert symbol_text("0.weight") == "%_0.weight" and symbol_text("a b/ü") == "%a_b__"
    assert array_text(np.arange(4, dtype=np.int32).reshape(2, 2)) == "[[0, 1], [2, 3]]"
    assert array_text(np.arange(20, dtype=np.uint8)).startswith('"0x00010203')


def test_gelu_needs_no_error_function():
    module = module_of(capture(F.gelu, t.ones(3)))

    assert "stablehlo.exponential" in module.text and "stablehlo.erf" not in module.text
    assert target.VERSION in module.text


@needs_jaxlib
def test_empty_constants_are_written():
    kind = "tensor<0x4xi64>"
    constant = f"%0 = stablehlo.constant dense<{array_text(np.zeros((0, 4), np.int64))}> : {kind}"

    assert portable(f"module @m {{ func.func public @main() -> {kind} {{ {constant} return %0 : {kind} }} }}")
