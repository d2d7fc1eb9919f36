"""Sensitivity of layers: a report, and models in which sensitive layers stay unquantized."""

import importlib
import time

import pytest

import tenon
from tenon import nn
from tenon.errors import QuantizationError
from tenon.quantization import DynamicLinear, quantize_within, sensitivity
from tenon.quantization.dynamic import Int8Dynamic


def network():
    """The second layer has a weight that makes all others of its row zeros in int8."""
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4), nn.Linear(4, 4))
    with tenon.no_grad():
        model[2].weight[:, 0] = 1000.0
        model[2].bias[:] = model[3].bias[:] = 0
        model[0].weight[0] = 0
        model[0].bias[0] = 0
    return model


def data():
    tenon.manual_seed(1)
    x = tenon.randn(64, 16)
    return x, network()(x).argmax(1)


def test_the_layer_that_changes_the_output_most_comes_first():
    report = sensitivity(network(), "int8-dynamic", example=data()[0])

    assert next(iter(report)) == "2" and set(report) == {"0", "2", "3"}
    assert report["2"] > 10 * max(report["0"], report["3"])


def test_layers_stay_until_the_accuracy_is_what_is_asked_for():
    x, labels = data()

    small, receipt = quantize_within(
        network(), "int8-dynamic", example=x, data=[(x, labels)], most_lost=0.05, keep_slow=True
    )

    assert type(small[2]) is nn.Linear and type(small[0]) is DynamicLinear
    assert receipt.accuracy.after >= 0.95 and any(
        "'2' stays: the accuracy fell" in note for note in receipt.notes
    )


class Slow(DynamicLinear):
    def forward(self, input):
        time.sleep(0.01)
        return super().forward(input)


class SlowThere(Int8Dynamic):
    """Slow for layers of 4 inputs."""

    def layer(self, module):
        made = super().layer(module)
        if isinstance(made, DynamicLinear):
            made.__class__ = Slow if module.in_features == 4 else DynamicLinear
        return made


def test_layers_that_got_slower_stay(monkeypatch):
    module = importlib.import_module("tenon.quantization.sensitivity")
    measure = module._slow
    found = []

    def slow(made, receipt):
        found.extend(measure(made, receipt))
        return [path for path in found if path == "2"]  # others may be slower on a busy machine

    monkeypatch.setattr(module, "_slow", slow)
    monkeypatch.setattr(module, "_seconds", lambda receipt: 2.0 - bool(receipt.notes))  # whatever else runs
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 4), nn.Linear(4, 4))

    small, receipt = quantize_within(model, SlowThere(), example=tenon.randn(64, 512))

    assert "2" in found
    assert type(small[0]) is DynamicLinear and type(small[2]) is nn.Linear
    assert any("'2' stays: it was slower" in note for note in receipt.notes)


def test_a_layer_is_quantized_after_all_if_the_model_is_slower_without(monkeypatch):
    module = importlib.import_module("tenon.quantization.sensitivity")
    monkeypatch.setattr(module, "_slow", lambda made, receipt: ["0"])
    monkeypatch.setattr(module, "_seconds", lambda receipt: 1.0 + bool(receipt.notes))  # whatever else runs
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 4))

    small, receipt = quantize_within(model, "int8-dynamic", example=tenon.randn(64, 32))

    assert type(small[0]) is DynamicLinear
    assert receipt.notes == ("'0' is slower by itself, but the model is not",)


def test_a_model_that_gains_nothing_is_refused():
    x = tenon.randn(4, 4)

    with pytest.raises(QuantizationError, match="no layer of this Linear gains"):
        quantize_within(nn.Linear(4, 4), SlowThere(), example=x)


def test_an_example_and_data_are_asked_for():
    with pytest.raises(QuantizationError, match="give example"):
        sensitivity(network(), "int8-dynamic")
    with pytest.raises(QuantizationError, match="takes data"):
        quantize_within(network(), "int8-dynamic", example=data()[0], most_lost=0.1)
    with pytest.raises(QuantizationError, match="0 or more, got nan"):
        quantize_within(network(), "int8-dynamic", data=[data()], most_lost=float("nan"))
