"""Layers: torch's initial weights for a seed, outputs, gradients, text and settings."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import tenon
from tenon import nn

pytestmark = pytest.mark.together

# How to make the layer, and an input for it.
LAYERS = {
    "Linear": (lambda nn: nn.Linear(5, 3), (4, 5)),
    "Linear no bias": (lambda nn: nn.Linear(5, 3, bias=False), (2, 4, 5)),
    "Conv1d": (lambda nn: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9)),
    "Conv2d": (lambda nn: nn.Conv2d(3, 4, 3), (2, 3, 7, 6)),
    "Conv2d same": (lambda nn: nn.Conv2d(3, 4, (3, 2), padding="same", dilation=2, bias=False), (2, 3, 7, 6)),
    "Conv2d reflect": (lambda nn: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 5, 6)),
    "Conv2d replicate": (
        lambda nn: nn.Conv2d(3, 4, 3, padding=(2, 1), padding_mode="replicate"),
        (2, 3, 5, 6),
    ),
    "Conv2d circular": (lambda nn: nn.Conv2d(3, 4, 3, padding="same", padding_mode="circular"), (2, 3, 5, 6)),
    "Conv3d": (lambda nn: nn.Conv3d(2, 3, 2), (1, 2, 3, 4, 3)),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(2, padding=1), (2, 3, 7)),
    "MaxPool2d": (lambda nn: nn.MaxPool2d((2, 3), ceil_mode=True), (2, 3, 7, 7)),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(3, 2), (2, 3, 7)),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 7, 7)),
    "AdaptiveAvgPool1d": (lambda nn: nn.AdaptiveAvgPool1d(3), (2, 3, 8)),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((2, None)), (2, 3, 7, 5)),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(3), (6, 3)),
    "BatchNorm1d sequence": (lambda nn: nn.BatchNorm1d(3, affine=False), (4, 3, 5)),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(3, momentum=None), (4, 3, 2, 2)),
    "BatchNorm2d plain": (lambda nn: nn.BatchNorm2d(3, track_running_stats=False, bias=False), (4, 3, 2, 2)),
    "BatchNorm3d": (lambda nn: nn.BatchNorm3d(3), (2, 3, 2, 2, 2)),
    "LayerNorm": (lambda nn: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "LayerNorm plain": (lambda nn: nn.LayerNorm(4, 1e-3, elementwise_affine=False), (2, 3, 4)),
    "LayerNorm no bias": (lambda nn: nn.LayerNorm(4, bias=False), (2, 3, 4)),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), (2, 4, 3)),
    "RMSNorm": (lambda nn: nn.RMSNorm(4), (2, 3, 4)),
    "Dropout": (lambda nn: nn.Dropout(0.3), (40, 50)),
    "Dropout1d": (lambda nn: nn.Dropout1d(0.5), (4, 5, 6)),
    "Dropout2d": (lambda nn: nn.Dropout2d(0.5, inplace=True), (4, 5, 3, 2)),
    "ReLU": (lambda nn: nn.ReLU(), (3, 4)),
    "ReLU inplace": (lambda nn: nn.ReLU(inplace=True), (3, 4)),
    "LeakyReLU": (lambda nn: nn.LeakyReLU(), (3, 4)),
    "LeakyReLU inplace": (lambda nn: nn.LeakyReLU(0.2, inplace=True), (3, 4)),
    "GELU": (lambda nn: nn.GELU(), (3, 4)),
    "GELU tanh": (lambda nn: nn.GELU("tanh"), (3, 4)),
    "Sigmoid": (lambda nn: nn.Sigmoid(), (3, 4)),
    "Tanh": (lambda nn: nn.Tanh(), (3, 4)),
    "SiLU": (lambda nn: nn.SiLU(), (3, 4)),
    "Mish": (lambda nn: nn.Mish(), (3, 4)),
    "SELU": (lambda nn: nn.SELU(), (3, 4)),
    "CELU": (lambda nn: nn.CELU(0.5), (3, 4)),
    "ELU": (lambda nn: nn.ELU(0.5), (3, 4)),
    "ReLU6": (lambda nn: nn.ReLU6(), (3, 4)),
    "Hardtanh": (lambda nn: nn.Hardtanh(-0.5, 0.5), (3, 4)),
    "Hardswish": (lambda nn: nn.Hardswish(), (3, 4)),
    "Hardsigmoid": (lambda nn: nn.Hardsigmoid(), (3, 4)),
    "Softplus": (lambda nn: nn.Softplus(2.0), (3, 4)),
    "LogSigmoid": (lambda nn: nn.LogSigmoid(), (3, 4)),
    "Softsign": (lambda nn: nn.Softsign(), (3, 4)),
    "Tanhshrink": (lambda nn: nn.Tanhshrink(), (3, 4)),
    "Softshrink": (lambda nn: nn.Softshrink(), (3, 4)),
    "Hardshrink": (lambda nn: nn.Hardshrink(0.2), (3, 4)),
    "Threshold": (lambda nn: nn.Threshold(0.1, -1.0), (3, 4)),
    "PReLU": (lambda nn: nn.PReLU(4), (3, 4)),
    "GLU": (lambda nn: nn.GLU(), (3, 4)),
    "Softmax": (lambda nn: nn.Softmax(1), (3, 4)),
    "Softmin": (lambda nn: nn.Softmin(dim=0), (3, 4)),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(-1), (3, 4)),
    "Softmax2d": (lambda nn: nn.Softmax2d(), (2, 3, 4, 2)),
    "Flatten": (lambda nn: nn.Flatten(), (2, 3, 4)),
    "Flatten some": (lambda nn: nn.Flatten(0, 1), (2, 3, 4)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, 3)), (2, 6, 4)),
    "Identity": (lambda nn: nn.Identity(54, unused=3), (2, 3)),
}
LOSSES = {
    "L1Loss": lambda nn: nn.L1Loss(),
    "MSELoss": lambda nn: nn.MSELoss(reduction="sum"),
    "SmoothL1Loss": lambda nn: nn.SmoothL1Loss(beta=0.5),
    "HuberLoss": lambda nn: nn.HuberLoss(delta=0.5),
    "BCEWithLogitsLoss": lambda nn: nn.BCEWithLogitsLoss(),
    "BCELoss": lambda nn: nn.Sequential(nn.Sigmoid(), nn.Identity()),
    "KLDivLoss": lambda nn: nn.KLDivLoss(reduction="batchmean"),
    "CrossEntropyLoss": lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1),
}


def _pair(make, seed=3):
    torch = pytest.importorskip("torch")
    tenon.manual_seed(seed)
    torch.manual_seed(seed)
    return make(nn), make(torch.nn), torch


@pytest.mark.draws
@pytest.mark.oracle
@pytest.mark.parametrize("name", LAYERS)
def test_a_seed_gives_torchs_weights_and_text(name):
    ours, theirs, _ = _pair(LAYERS[name][0])

    state, expected = ours.state_dict(), theirs.state_dict()

    assert list(state) == list(expected)
    for key in state:
        np.testing.assert_array_equal(state[key].numpy(), expected[key].numpy(), err_msg=key)
    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_output_gradients_and_buffers_agree_with_torch(rng, name, training):
    make, shape = LAYERS[name]
    ours, theirs, torch = _pair(make)
    host = rng.standard_normal(shape).astype(np.float32)
    results = []
    for library, layer in ((tenon, ours), (torch, theirs)):
        library.manual_seed(11)
        layer.train(training)
        x = library.from_numpy(host.copy()).requires_grad_()
        y = layer(x * 1.0)
        weight = library.from_numpy(np.cos(np.arange(y.numel(), dtype=np.float32)).reshape(tuple(y.shape)))
        (y * weight).sum().backward()
        grads = [p.grad for p in layer.parameters()]
        results.append([y.detach(), x.grad, *grads, *layer.state_dict().values()])

    for position, (a, b) in enumerate(zip(*results, strict=True)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-5, err_msg=f"result {position}")


@pytest.mark.oracle
@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_torch(rng, name):
    ours, theirs, torch = _pair(LOSSES[name])
    x, y = rng.random((2, 4, 3)).astype(np.float32)
    arguments = [(lib.from_numpy(x), lib.from_numpy(y)) for lib in (tenon, torch)]
    if name == "BCELoss":
        arguments = [(a,) for a, _ in arguments]

    a, b = ours(*arguments[0]), theirs(*arguments[1])

    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5)
    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
def test_weighted_losses_hold_their_weights_as_buffers():
    for make in (
        lambda nn, t: nn.CrossEntropyLoss(t.ones(3), ignore_index=1),
        lambda nn, t: nn.NLLLoss(t.ones(3)),
        lambda nn, t: nn.BCEWithLogitsLoss(pos_weight=t.ones(3)),
        lambda nn, t: nn.BCELoss(),
    ):
        torch = pytest.importorskip("torch")
        assert list(make(nn, tenon).state_dict()) == list(make(torch.nn, torch).state_dict())


@pytest.mark.oracle
def test_constructors_have_torchs_signatures():
    torch = pytest.importorskip("torch")
    for name in set(nn.layers.__all__) - {"DropPath", "PatchEmbed", "RoPE", "SinusoidalPositions"}:
        ours, theirs = (inspect.signature(getattr(lib, name).__init__) for lib in (nn, torch.nn))
        shown = [
            [(p.name, getattr(p.default, "__name__", p.default)) for p in s.parameters.values()]
            for s in (ours, theirs)
        ]
        assert shown[0] == shown[1], name


@pytest.mark.oracle
def test_functional_forms_have_torchs_signatures():
    torch = pytest.importorskip("torch")
    for name in nn.functional.__all__:
        if not callable(getattr(nn.functional, name)):
            continue  # a table, or a module of functions
        try:
            theirs = inspect.signature(getattr(torch.nn.functional, name))
        except ValueError:
            continue  # built in, without a signature
        if any(p.kind is p.VAR_POSITIONAL for p in theirs.parameters.values()):
            continue
        ours = inspect.signature(getattr(nn.functional, name))
        assert [p.name for p in ours.parameters.values()] == [p.name for p in theirs.parameters.values()], (
            name
        )


def test_the_values_of_the_modules_note_come_out():
    tenon.manual_seed(1)
    layer = nn.Linear(3, 3)

    y = layer(tenon.randn(2, 3))

    np.testing.assert_allclose(
        y.detach().numpy(), [[-0.5059, -0.8158, 0.2390], [-0.0043, 0.4724, -0.1714]], atol=5e-5
    )


@pytest.mark.parametrize("name", [n for n, (make, _) in LAYERS.items() if list(make(nn).parameters())])
def test_layers_are_made_in_the_asked_dtype_and_on_the_asked_device(name):
    cls, example = type(LAYERS[name][0](nn)), LAYERS[name][0](nn)
    settings = {
        p: getattr(example, p)
        for p in inspect.signature(cls.__init__).parameters
        if p not in ("self", "device", "dtype", "bias", "padding_mode")
    }

    layer = cls(**settings, device="meta", dtype=tenon.float64)

    assert {p.dtype for p in layer.parameters()} == {tenon.float64}
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    assert all(b.dtype in (tenon.float64, tenon.int64) for b in layer.buffers())


@pytest.mark.parametrize("name", LAYERS)
def test_layers_copy_and_pickle(name):
    layer = LAYERS[name][0](nn)

    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(twin) == repr(layer)
        for key, value in layer.state_dict().items():
            assert bool((twin.state_dict()[key] == value).all())


@pytest.mark.parametrize(
    "name", ["Conv2d", "MaxPool2d", "AvgPool2d", "LayerNorm", "BatchNorm1d", "GELU", "Flatten"]
)
def test_layers_run_on_the_meta_device(name):
    make, shape = LAYERS[name]
    layer = make(nn).to("meta")

    on_meta = layer(tenon.empty(shape, device="meta"))

    assert on_meta.device.type == "meta"
    assert on_meta.shape == make(nn)(tenon.zeros(shape)).shape
