"""PyTorch's names: the same parameters, with the results of tenon's functions."""

import warnings

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import QuantizationError
from tenon.quantization import DynamicLinear, StaticConv, convert, fuse_modules, prepare, quantize_dynamic


def network():
    tenon.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4),
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)),
    )  # fmt: skip
    model(tenon.randn(16, 2, 6, 6))
    return model.eval()


def images():
    tenon.manual_seed(1)
    return tenon.randn(8, 2, 6, 6)


@pytest.mark.parametrize(
    ("spec", "quantized"),
    [(None, {"4", "5.0", "5.1"}), ({nn.Linear}, {"4", "5.0", "5.1"}), ({"5"}, {"5.0", "5.1"}), (["5.1"], {"5.1"})],
    ids=["everything", "a class", "a path", "a list"],
)  # fmt: skip
def test_quantize_dynamic_takes_the_layers_that_are_meant(spec, quantized):
    model, x = network(), images()

    made = quantize_dynamic(model, spec)

    assert {path for path, m in made.named_modules() if isinstance(m, DynamicLinear)} == quantized
    np.testing.assert_allclose(made(x).detach().numpy(), model(x).detach().numpy(), atol=0.05)


def test_pytorchs_own_call_works_and_in_place_too():
    model, x = network(), images()
    made = tenon.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=tenon.qint8)
    wanted = made(x)

    assert quantize_dynamic(model, {nn.Linear}, inplace=True) is model

    assert type(model[4]) is DynamicLinear and tenon.equal(model(x), wanted)
    assert "quantized_structure" in model.state_dict()
    with pytest.raises(QuantizationError, match="cannot become a DynamicLinear in place"):
        quantize_dynamic(nn.Linear(2, 2), inplace=True)
    with pytest.raises(QuantizationError, match="takes no mapping"):
        quantize_dynamic(network(), mapping={nn.Linear: nn.Identity})


@pytest.mark.oracle
def test_dynamic_results_are_those_of_torch():
    torch = pytest.importorskip("torch")
    tenon.manual_seed(0)
    mine, x = nn.Linear(64, 32), tenon.randn(16, 64)
    peer = torch.nn.Sequential(torch.nn.Linear(64, 32))
    peer[0].load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in mine.state_dict().items()})
    with warnings.catch_warnings(action="ignore"):
        peer = torch.ao.quantization.quantize_dynamic(peer, {torch.nn.Linear}, dtype=torch.qint8)

        theirs = peer(torch.from_numpy(x.numpy())).detach().numpy()
    made = quantize_dynamic(mine)(x).numpy()

    exact = mine(x).detach().numpy()
    assert np.abs(made - exact).max() < 1.5 * np.abs(theirs - exact).max()


def test_a_prepared_model_is_converted_by_the_first_call_it_saw():
    model, x = network(), images()
    watching = prepare(model)
    watching(x)

    small = convert(watching)

    assert type(small[0]) is StaticConv and not small._forward_pre_hooks
    np.testing.assert_array_equal(small(x).numpy(), convert(watching, x)(x).numpy())


@pytest.mark.parametrize("names", [["0", "1"], ["0", "1", "2"], [["0", "1"], ["4"]]], ids=str)
def test_norms_are_fused_into_the_layer_named_before_them(names):
    model, x = network(), images()

    fused = fuse_modules(model, names)

    assert type(fused[1]) is nn.Identity and type(model[1]) is nn.BatchNorm2d
    np.testing.assert_allclose(fused(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: fuse_modules(m, ["0", "2", "1"]), r"0 \(Conv2d\), 2 \(ReLU\), 1 \(BatchNorm2d\)"),
        (lambda m: fuse_modules(m, ["0", "9"]), r"9 \(absent\)"),
        (lambda m: fuse_modules(m, [["0", "1"], []], inplace=True), "fused: none"),
        (lambda m: fuse_modules(m.train(), ["0", "1"]), "model.eval"),
        (lambda m: quantize_dynamic(m, {"head"}), "qconfig_spec names .*head"),
        (lambda m: quantize_dynamic(m, dtype=tenon.float16), "not torch.float16"),
    ],
    ids=["order", "absent", "none", "training", "spec", "dtype"],
)
def test_what_does_not_fit_is_named_and_changes_nothing(call, words):
    model, x = network(), images()
    before = model(x).detach().numpy()

    with pytest.raises(QuantizationError, match=words):
        call(model)

    np.testing.assert_array_equal(model.eval()(x).detach().numpy(), before)
