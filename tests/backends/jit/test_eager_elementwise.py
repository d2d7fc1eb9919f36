"""Elementwise ops by generated code equal the reference, for all memory layouts and special values."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import ViewError
from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.jit.eager_ops import elementwise as eager_elementwise

BACKEND = tenon.zeros(1)._backend
pytestmark = [
    pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}"),
    pytest.mark.together,
]
ODD = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, 25.0], np.float32)
CALLS = {
    "sign": (1, {}),
    "rsqrt": (1, {}),
    "nan_to_num": (1, {"nan": 0.25, "high": 9.0, "low": -8.0}),
    "leaky_relu_grad": (2, {"slope": 0.2}),
    "softplus_grad": (2, {"beta": 1.5, "threshold": 20.0}),
    **{name: (1, {}) for name in ("exp2", "expm1", "log1p", "log2", "log10", "tanh", "sigmoid")},
    **{name: (1, {}) for name in ("asin", "acos", "atan", "sinh", "cosh", "atanh")},
}


def drawn(*shape):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[: ODD.size] = ODD
    return x


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("lies", ["whole", "turned", "strided", "empty"])
def test_generated_code_gives_what_the_parts_give(name, lies):
    count, attrs = CALLS[name]
    x = {"whole": drawn(200, 99), "turned": drawn(99, 200).T, "strided": drawn(200, 198)[:, ::2]}
    x = x.get(lies, np.zeros((0, 3), np.float32))
    args = (np.ascontiguousarray(x[::-1]), x)[2 - count :]
    op = getattr(ops, name)

    kernels = {BACKEND.kernels[op], eager_elementwise.GENERATED.get(name, BACKEND.kernels[op])}
    with np.errstate(all="ignore"):
        made = [kernel(*args, **attrs) for kernel in kernels]
        wide = [a.astype(np.float64) for a in args]
        wanted = (
            op.forward(np, *wide, **attrs)
            if hasattr(op, "forward")
            else op.decompose(BACKEND.raw, *wide, **attrs)
        )

    assert made[0] is not NotImplemented or len(made) > 1
    for found in made:
        if found is NotImplemented:  # what the generated kernel declines, NumPy computes
            assert lies == "empty"
            continue
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=2e-6, atol=1e-44)


#: Function of NumPy -> the op, and the error of the generated kernel in units in the last place.
PRECISE = {"arctan2": ("atan2", 1.2), "hypot": ("hypot", 0.51), "fmod": ("fmod", 0), "tan": ("tan", 0.53)}
#: What NumPy promises of its own loops, which processors with AVX-512 take.
NUMPYS = 4
ANGLES = {
    **{f"{name}-generated": (name, op, units) for name, (op, units) in PRECISE.items()},
    **{
        f"{name}-NumPy": (name, op, NUMPYS)
        for name, (op, _) in PRECISE.items()
        if op in eager_elementwise.GENERATED
    },
}


@pytest.mark.parametrize("case", ANGLES)
def test_angles_and_quotients_are_those_of_float64_rounded(case):
    function, name, units = ANGLES[case]
    kernel = BACKEND.kernels[getattr(ops, name)]
    if name in eager_elementwise.GENERATED:  # both are tested, whichever this processor takes
        kernel = eager_elementwise.GENERATED[name] if case.endswith("generated") else getattr(np, function)
    rng = np.random.default_rng(5)
    odd = np.array([*ODD, -3e38, 1.0, -1.0, np.pi / 2, 1e4, -0.5, 7.0], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(odd, odd))
    far = np.exp(rng.uniform(-9, 9, 20000)) * rng.choice([-1, 1], 20000)
    x, y = (np.concatenate([a, b.astype(np.float32)]) for a, b in ((x, far), (y, rng.permutation(far))))
    args = (np.where(np.abs(x) < 1e6, x, np.inf),) if name == "tan" else (x, y)
    if name == "fmod":  # of quotients all of which are small
        args = np.where(np.abs(x) < 1e3, x, 5), np.where(np.abs(y) > 1e-3, y, 3)

    with np.errstate(all="ignore"):
        found = kernel(*args).astype(np.float64)
        wanted = getattr(np, function)(*[a.astype(np.float64) for a in args])
        rounded = wanted.astype(np.float32)
        special = ~np.isfinite(rounded) | (wanted == 0)

        assert np.all(special | (np.abs(found - wanted) <= units * np.spacing(np.abs(rounded))))
    np.testing.assert_array_equal(found[special], rounded[special])
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize(("name", "attrs"), [("lgamma", {}), ("digamma", {}), ("polygamma", {"order": 1})])
def test_the_gamma_function_and_its_derivatives_are_the_references(name, attrs):
    rng = np.random.default_rng(6)
    x = np.concatenate([ODD, np.arange(-4, 4), rng.uniform(-9, 30, 9000), np.exp(rng.uniform(-9, 80, 9000))])
    x = np.delete(x, [6, 7]).astype(np.float32)  # next to a pole the reference loses digits
    op = getattr(ops, name)

    with np.errstate(all="ignore"):
        found, wanted = BACKEND.kernels[op](x, **attrs), op.forward(np, x, **attrs)

    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=3e-7)


def test_sums_of_exponentials_keep_infinities():
    x, y = (a.ravel() for a in np.meshgrid(np.tile(ODD, 10), ODD))
    x, y = (np.concatenate([a, drawn(99, 99)[k:].ravel()[:9000]]) for k, a in enumerate((x, y)))
    with np.errstate(all="ignore"):
        wanted = np.logaddexp(x.astype(np.float64), y)

    np.testing.assert_allclose(BACKEND.kernels[ops.logaddexp](x, y), wanted, rtol=2e-7, atol=2e-7)


def test_the_tangent_of_large_numbers_is_numpys():
    x = drawn(200, 99)
    x[0, 20:40] = np.float32(10.0) ** np.arange(6, 26)

    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(eager_elementwise.GENERATED["tan"](x), np.tan(x))


def test_columns_and_rows_are_repeated():
    x, y = drawn(300, 1), drawn(1, 200)

    made = BACKEND.kernels[ops.leaky_relu_grad](x, y, slope=0.5)

    np.testing.assert_array_equal(made, np.where(y > 0, x, x * np.float32(0.5)))


def test_whole_quotients_are_exactly_those_of_numpy():
    rng = np.random.default_rng(2)
    x = np.round(rng.standard_normal(20000) * 50, 1).astype(np.float32)
    y = np.where(rng.random(20000) < 0.5, -0.1, 0.3).astype(np.float32)
    kernel = BACKEND.kernels[ops.floor_divide]

    np.testing.assert_array_equal(kernel(x, y), np.floor_divide(x, y))
    np.testing.assert_array_equal(kernel(x, 0.7), np.floor_divide(x, np.float32(0.7)))
    x[:4], y[:4] = (1e30, np.inf, np.nan, 5.0), (1e-3, 2.0, 1.0, np.inf)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kernel(x, y), np.floor_divide(x, y))


@pytest.mark.parametrize("lies", ["whole", "strided"])
@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("relu_", (), lambda x: np.maximum(x, 0)),
        ("clamp_", (-0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
        ("clamp_", (0.25,), lambda x: np.maximum(x, np.float32(0.25))),
        ("clamp_", (None, 1), lambda x: np.minimum(x, 1)),
        ("clamp_", (2.0, -1.0), lambda x: np.where(np.isnan(x), x, np.float32(-1))),
        ("neg_", (), np.negative),
        ("sub_", (1.5,), lambda x: x - np.float32(1.5)),
    ],
)
def test_what_is_written_over_itself_keeps_its_memory(name, args, wanted, lies):
    given = {"whole": drawn(200, 99), "strided": drawn(200, 198)[:, ::2]}[lies]
    x = tenon.from_numpy(given.copy() if lies == "whole" else given)
    view, version = x[1], x._version
    with np.errstate(all="ignore"):
        expected = wanted(given.copy())

    assert getattr(x, name)(*args) is x

    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(view.numpy(), expected[1])
    assert x._version == version + 1


def test_bounds_that_share_the_clamped_memory_must_be_exactly_that_memory():
    x = tenon.from_numpy(drawn(150, 150))
    expected = np.maximum(x.numpy(), np.float32(0.5))

    with pytest.raises(ViewError, match="single memory location"):
        x.clamp_(tenon.full((150, 150), 0.5), x.T)
    x.clamp_(tenon.full((150, 150), 0.5), x.maximum(tenon.tensor(0.5)))

    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("name", ["exp2", "expm1", "log1p", "log2", "log10", "tanh", "sigmoid", "relu"])
def test_functions_over_themselves_give_what_they_give_elsewhere(name):
    x = tenon.from_numpy(drawn(200, 99))
    expected = getattr(x, name)()

    found = getattr(x, f"{name}_")()

    assert found is x
    np.testing.assert_array_equal(x.numpy(), expected.numpy())
