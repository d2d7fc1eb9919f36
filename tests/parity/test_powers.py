"""Powers of every dtype to numbers of every kind: dtype and values are PyTorch's, eager and compiled."""

import warnings

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
)
MARKED = [
    dtype
    if dtype in ("bool", "uint8", "int64", "float16", "float32")
    else pytest.param(dtype, marks=pytest.mark.slow)
    for dtype in DTYPES
]
EXPONENTS = (0, 1, 2, 3, -1, 0.0, 1.0, 2.0, 3.0, -1.0, 0.5, np.int64(2), np.float32(2), np.float64(1.0))
FORMS = {
    "operator": lambda m, x, e: x**e,
    "function": lambda m, x, e: m.pow(x, e),
    "in place": lambda m, x, e: x.clone().pow_(e),
    "tensor exponent": lambda m, x, e: x ** m.tensor(e),
    "base": lambda m, x, e: e**x,
    "float_power": lambda m, x, e: m.float_power(x, e),
}


def outcome(work):
    """Name of the dtype and values of a result; ``error`` and nothing for an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            y = work()
        except (RuntimeError, TypeError, ValueError):
            return "error", np.zeros(())
    name = str(y.dtype).partition(".")[2]
    return name, np.array((y.float() if name == "bfloat16" else y).tolist())


def compiled(x, e):
    function = tenon.compile(lambda x: x**e)
    for _ in range(3):
        y = function(x)
    return y


@pytest.mark.parametrize("dtype", MARKED)
def test_powers_are_those_of_torch(dtype):
    numbers = [True, False] if dtype == "bool" else [20, 3, 1] if dtype == "complex64" else [20, 3, 1, 0]
    differing = []
    for e in EXPONENTS:
        ours, theirs = (m.tensor(numbers, dtype=getattr(m, dtype)) for m in (tenon, torch))
        for form, power in FORMS.items():
            expected = outcome(lambda: power(torch, theirs, e))
            found = {"eager": outcome(lambda: power(tenon, ours, e))}
            if form == "operator":
                found["compiled"] = outcome(lambda: compiled(ours, e))
            for how, (name, values) in found.items():
                close = np.allclose(values, expected[1], rtol=1e-2 if "16" in name else 1e-5, equal_nan=True)
                if name != expected[0] or not close:
                    differing.append((how, form, e, (name, values), expected))

    assert not differing, differing[:5]


@pytest.mark.parametrize("count", [2, 2000])
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2.5, 2, 3, -1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_powers_and_slopes_at_the_ends_are_those_of_torch(dtype, exponent, count):
    def derivatives(m):
        def work(x):
            values = [x**exponent]
            for _ in range(2):
                values.append(m.autograd.grad(values[-1].sum(), x, create_graph=True)[0])
            return [v.detach() for v in values]

        x = m.tensor([-float("inf"), -0.0] * (count // 2), dtype=getattr(m, dtype), requires_grad=True)
        functions = [work] if m is torch else [work, *[tenon.compile(work)] * 4]
        return [[1 / v.double() for v in each(x)] for each in functions]  # 1 / x shows the sign of zero

    (expected,) = derivatives(torch)
    for found in derivatives(tenon):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.array(ours.tolist()), np.array(theirs.tolist()))
