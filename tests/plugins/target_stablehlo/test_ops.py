"""Each form against tenon, by XLA on the processor: the cases of the target onnx, gradients, other dtypes."""

import pytest
from tests.plugins.target_onnx.programs import each
from tests.plugins.target_onnx.test_ops import CASES, LAYERS, X
from tests.plugins.target_stablehlo.programs import check, needs_jax

import tenon as t

pytestmark = [needs_jax, pytest.mark.slow]


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


@pytest.mark.parametrize("name", CASES)
def test_ops_equal_tenon(name, tmp_path):
    function, examples = CASES[name]

    check(tmp_path, function, *examples())


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_tenon(name, tmp_path):
    shape, layers = LAYERS[name]

    check(tmp_path, each(*layers()), t.randn(shape))


@pytest.mark.parametrize("dtype", [t.float64, t.float16, t.bfloat16], ids=str)
def test_other_floats(dtype, tmp_path):
    functions = [
        t.exp, t.tanh, t.relu, lambda a: a * 2 + 1, lambda a: a.sum(1), lambda a: a / (a.abs() + 1), lambda a: a.transpose(0, 1),
        lambda a: a.float(), lambda a: a[:, 1], lambda a: t.where(a > 0, a, -a), lambda a: t.maximum(a, a.flip(0)), lambda a: a.amax(2),
        lambda a: a.sigmoid(), lambda a: a.clamp(-0.5, 0.5), lambda a: a.mean(2), t.floor, t.erf, t.erfc, lambda a: a.argmax(1),
    ]  # fmt: skip

    def function(x):
        return each(*functions)(x.to(dtype))

    check(tmp_path, function, t.randn(X), tolerance=0.02 if dtype is not t.float64 else 1e-9)
