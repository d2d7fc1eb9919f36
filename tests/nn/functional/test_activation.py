"""Activations agree with torch in value, gradient and second-order gradient."""

from __future__ import annotations

import numpy as np
import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]

SMOOTH = {
    "gelu": lambda t, F, x: F.gelu(x),
    "gelu_tanh": lambda t, F, x: F.gelu(x, approximate="tanh"),
    "silu": lambda t, F, x: F.silu(x),
    "mish": lambda t, F, x: F.mish(x),
    "elu": lambda t, F, x: F.elu(x, 1.3),
    "selu": lambda t, F, x: F.selu(x),
    "celu": lambda t, F, x: F.celu(x, 0.7),
    "softplus": lambda t, F, x: F.softplus(x),
    "softplus_beta": lambda t, F, x: F.softplus(x, 2.0, 1.0),
    "logsigmoid": lambda t, F, x: F.logsigmoid(x),
    "sigmoid": lambda t, F, x: F.sigmoid(x),
    "tanh": lambda t, F, x: F.tanh(x),
    "softsign": lambda t, F, x: F.softsign(x),
    "tanhshrink": lambda t, F, x: F.tanhshrink(x),
    "softmax": lambda t, F, x: F.softmax(x, 1),
    "softmax_first": lambda t, F, x: F.softmax(x, 0),
    "softmin": lambda t, F, x: F.softmin(x, -1),
    "log_softmax": lambda t, F, x: F.log_softmax(x, 1),
    "log_softmax_first": lambda t, F, x: F.log_softmax(x, -2),
    "glu": lambda t, F, x: F.glu(x, 1),
    "normalize": lambda t, F, x: F.normalize(x, dim=1),
}
CORNERED = {
    "relu": lambda t, F, x: F.relu(x),
    "relu6": lambda t, F, x: F.relu6(x * 3),
    "leaky_relu": lambda t, F, x: F.leaky_relu(x, 0.2),
    "hardtanh": lambda t, F, x: F.hardtanh(x, -0.5, 0.25),
    "hardsigmoid": lambda t, F, x: F.hardsigmoid(x * 2),
    "hardswish": lambda t, F, x: F.hardswish(x * 2),
    "threshold": lambda t, F, x: F.threshold(x, 0.1, -2.0),
    "softshrink": lambda t, F, x: F.softshrink(x, 0.3),
    "hardshrink": lambda t, F, x: F.hardshrink(x, 0.3),
    "clamp": lambda t, F, x: x.clamp(-0.4, 0.4),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*SMOOTH, *CORNERED])
def test_value_and_gradient_agree(agree, rng, name, dtype):
    x = (rng.standard_normal((5, 8)) * 2).astype(dtype)

    # torch has these two slopes in float32 literals.
    exact = 1e-7 if name in ("celu", "hardsigmoid") else 1e-12
    agree({**SMOOTH, **CORNERED}[name], x, tolerance=3e-6 if dtype == "float32" else exact)


@pytest.mark.parametrize("name", [*SMOOTH, "relu", "leaky_relu", "hardswish", "clamp"])
def test_second_order_agrees(agree, rng, name):
    agree(
        {**SMOOTH, **CORNERED}[name],
        rng.standard_normal((3, 4)),
        order=2,
        tolerance=1e-6 if name == "celu" else 1e-10,
    )


@pytest.mark.parametrize(
    "name", ["relu", "gelu", "softplus", "logsigmoid", "elu", "softmax", "log_softmax", "silu"]
)
def test_extreme_values_agree(agree, name):
    x = np.array([[-1e4, -90.0, -20.0, -1e-30], [0.0, 1e-30, 88.0, 1e4]], np.float32)

    agree({**SMOOTH, **CORNERED}[name], x)


@pytest.mark.parametrize("name", ["relu", "gelu", "softmax", "log_softmax", "hardtanh", "leaky_relu", "elu"])
def test_nan_stays_nan(name):
    x = tenon.tensor([[float("nan"), 1.0]])

    y = {**SMOOTH, **CORNERED}[name](tenon, tenon.nn.functional, x)

    assert bool(y.isnan()[0, 0])


@pytest.mark.parametrize("name", ["gelu", "softmax", "log_softmax", "leaky_relu", "softplus"])
@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (2, 0, 3)])
def test_empty_inputs_give_empty_outputs(agree, name, shape):
    agree({**SMOOTH, **CORNERED}[name], np.zeros(shape, np.float32))


@pytest.mark.parametrize("name", ["gelu", "relu", "softmax", "leaky_relu"])
def test_strided_inputs_agree(agree, rng, name):
    expression = {**SMOOTH, **CORNERED}[name]

    agree(lambda t, F, x: expression(t, F, x.t()[::2]), rng.standard_normal((6, 8)).astype(np.float32))


@pytest.mark.parametrize(
    "name", ["relu", "leaky_relu", "elu", "silu", "hardtanh", "selu", "mish", "hardswish"]
)
def test_inplace_forms_agree(agree, rng, name):
    agree(lambda t, F, x: getattr(F, name)(x * 1.0, inplace=True), rng.standard_normal((4, 5)))


def test_prelu_takes_one_weight_or_one_a_channel(agree, rng):
    x = rng.standard_normal((3, 4, 2))

    agree(lambda t, F, x, w: F.prelu(x, w), x, np.array([0.3]), order=2)
    agree(lambda t, F, x, w: F.prelu(x, w), x, rng.standard_normal(4))


def test_zero_dimensional_softmax_is_one(agree):
    agree(lambda t, F, x: F.softmax(x, 0), np.array(3.0))


@pytest.mark.parametrize(
    "expression",
    [
        lambda t, F, x: F.gelu(x, approximate="x"),
        lambda t, F, x: F.softmax(x, 3),
        lambda t, F, x: F.dropout(x, 1.5),
        lambda t, F, x: F.glu(x, 0),
    ],
)
def test_bad_arguments_are_refused_in_torchs_words(refuse, rng, expression):
    refuse(expression, rng.standard_normal((3, 4)))


def test_integer_softmax_is_refused_with_a_remedy():
    with pytest.raises(RuntimeError, match=r"float\(\)"):
        tenon.nn.functional.softmax(tenon.tensor([1, 2]), 0)


def test_grad_fn_prints_as_in_torch(rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((3, 4))
    for name, expression in {**SMOOTH, **CORNERED}.items():
        if name in ("softmin", "glu", "normalize", "clamp"):
            continue
        ours = expression(tenon, tenon.nn.functional, tenon.from_numpy(x).requires_grad_()).grad_fn.name()
        theirs = expression(torch, torch.nn.functional, torch.from_numpy(x).requires_grad_()).grad_fn.name()
        assert ours == theirs, name
