"""Quantization-aware training: gradients pass straight through, and what was trained is what int8 computes."""

import copy

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.errors import QuantizationError
from tenon.quantization import (
    FakeQuantize,
    StaticConv,
    StaticLinear,
    convert,
    from_int8,
    prepare,
    prepare_qat,
    to_int8,
)
from tenon.quantization.training import InputObserver


def network():
    tenon.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 3),
    )  # fmt: skip


def images(seed=0, count=32):
    tenon.manual_seed(seed)
    x = tenon.randn(count, 2, 6, 6)
    return x, (x[:, 0].mean((1, 2)) > x[:, 1].mean((1, 2))).long()


def result(model, x):
    with tenon.no_grad():
        return model(x).numpy()


def train(model, steps=30):
    optimizer = tenon.optim.Adam(model.parameters(), lr=1e-2)
    x, labels = images()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def test_fake_quantized_weights_are_those_of_int8_and_gradients_pass():
    layer = nn.Linear(6, 4)
    plain = layer.weight.detach().clone()
    nn.utils.parametrize.register_parametrization(layer, "weight", FakeQuantize())

    layer.weight.sum().backward()

    np.testing.assert_allclose(
        layer.weight.detach().numpy(), from_int8(*to_int8(plain)).numpy(), rtol=1e-6, atol=1e-8
    )
    assert (layer.parametrizations.weight.original.grad == 1).all()


def test_activations_outside_of_the_limits_get_no_gradient():
    watched = InputObserver(fake=True)
    watched(tenon.tensor([-1.0, 2.0]))
    x = tenon.tensor([-3.0, 0.4, 4.0], requires_grad=True)

    made = watched.eval()(x)
    made.sum().backward()

    assert x.grad.tolist() == [0, 1, 0]
    step = 3 / 255
    np.testing.assert_allclose(
        made.detach().numpy(), [-85 * step, round(0.4 / step) * step, 170 * step], rtol=1e-6
    )


def test_a_model_trains_and_its_int8_form_computes_what_it_learned():
    model = prepare_qat(network())

    assert train(model) < 0.2

    x, labels = images(1, 64)
    model.eval()
    small = convert(model, x)
    assert [type(small[i]) for i in (0, 5)] == [StaticConv, StaticLinear]
    made, expected = result(small, x), result(model, x)
    assert np.abs(made - expected).max() < 0.1 * np.abs(expected).max()
    assert ((made.argmax(1) == labels.numpy()) == (expected.argmax(1) == labels.numpy())).mean() > 0.96


def test_a_prepared_model_saves_loads_copies_and_compiles():
    model = prepare_qat(network())
    train(model, 3)
    model.eval()
    x = images()[0]
    fresh = prepare_qat(network()).eval()
    fresh.load_state_dict(model.state_dict())

    for made in (fresh, copy.deepcopy(model), tenon.compile(model)):
        np.testing.assert_allclose(result(made, x), result(model, x), rtol=1e-5, atol=1e-5)


def test_pruned_weights_stay_zero_in_the_int8_form():
    model = network()
    nn.utils.prune.l1_unstructured(model[5], "weight", 0.5)
    model = prepare_qat(model)
    train(model, 3)

    small = convert(model, images()[0])

    assert (small[5].weight == 0).float().mean() >= 0.5


def test_prepare_only_watches():
    model, x = network().eval(), images()[0]
    watching = prepare(model)

    np.testing.assert_array_equal(result(watching, x), result(model, x))
    before = watching[0].input_steps.limits()
    result(watching, x * 5)
    assert watching[0].input_steps.limits()[1] > before[1]

    small = convert(watching, x)
    expected = result(model, x)
    assert np.abs(result(small, x) - expected).max() < 0.05 * np.abs(expected).max()


def test_a_compiled_step_trains_as_an_eager_one():
    def stepping(model):
        optimizer = tenon.optim.SGD(model.parameters(), 0.05)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    one = prepare_qat(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    other = copy.deepcopy(one)
    compiled, eager = tenon.compile(stepping(one), fullgraph=True), stepping(other)

    for scale in (1, 3, 2, 5):
        x = scale * images()[0][:, 0, 0, :4]
        assert float(compiled(x)) == pytest.approx(float(eager(x)), rel=1e-4)

    assert one[0].input_steps.limits() == other[0].input_steps.limits()
    assert difference(convert(one, x)(x), convert(other, x)(x)) < 1e-2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: prepare(prepare_qat(network())), "'0' is prepared already"),
        (lambda: tenon.quantize(prepare(network()), "int8-dynamic"), "'0' is prepared already"),
        (lambda: prepare(network(), skip=["9"]), "skip names"),
        (lambda: prepare(nn.Sequential(nn.ReLU())), "no linear or convolution layer"),
        (lambda: convert(network(), images()[0]), "is not prepared"),
        (lambda: convert(prepare(network()), images()[0]), "'0' has seen no values yet"),
    ],
    ids=["prepared", "watched", "absent", "nothing", "not prepared", "not run"],
)
def test_what_cannot_be_prepared_or_converted_is_named(call, words):
    with pytest.raises(QuantizationError, match=words):
        call()


def test_a_model_that_trains_for_int8_loses_channels_before_anything_has_passed():
    def make():
        return prepare_qat(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)))

    tenon.manual_seed(0)
    model, x = make(), tenon.randn(4, 1, 6, 6)
    assert tenon.prune.mask_weights(make(), 0.5) > 0
    tenon.prune.mask_channels(model, x, 0.5)
    wanted = model.eval()(x)

    tenon.prune.compact(model, x, seconds=0)

    assert model[0].out_channels == 4 and difference(model(x), wanted) < 1e-6
    loaded = tenon.prune.load(make(), model.state_dict()).eval()
    assert difference(loaded(x), model(x)) == 0
    model.train()(x).square().sum().backward()
    small = convert(model)
    assert small[0].weight.shape[0] == 4 and difference(small(x), model.eval()(x)) < 0.02
