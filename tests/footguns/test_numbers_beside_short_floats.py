"""16-bit floats beside numbers, as in PyTorch: products and quotients keep the number's digits, sums do not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tenon

FLOAT = np.float32
DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
S = FLOAT(0.3)
SIZES = (7, 9001)  # the second is long enough for generated code

pytestmark = pytest.mark.parametrize("dtype", DTYPES)


def numbers(size, seed=0):
    made = np.random.default_rng(seed).uniform(0.1, 8, size)
    made[::2] *= -1
    return made


def both(dtype, size, seed=0):
    """A 16-bit tensor, and its numbers as float32."""
    x = tenon.tensor(numbers(size, seed), dtype=getattr(tenon, dtype))
    return x, x.float().numpy()


def rounded(values, dtype):
    """float32 numbers that are rounded to 16 bits."""
    return np.asarray(values, FLOAT).astype(DTYPES[dtype]).astype(FLOAT)


def same(made, expected, dtype):
    assert made.dtype == getattr(tenon, dtype)
    np.testing.assert_array_equal(made.detach().float().numpy(), rounded(expected, dtype))


def through(x, name, other, **options):
    """``x.name_(other)`` of a copy."""
    copied = x.clone()
    assert getattr(copied, name)(other, **options) is copied
    return copied


ONE = tenon.tensor(0.3)  # 0-d, and so weak in promotion
PRODUCTS = {
    "operator": lambda x: x * 0.3, "reflected": lambda x: 0.3 * x, "function": lambda x: tenon.mul(x, 0.3),
    "method": lambda x: x.multiply(0.3), "in place": lambda x: through(x, "mul_", 0.3),
    "out": lambda x: tenon.mul(x, 0.3, out=tenon.empty_like(x)), "0-d": lambda x: x * ONE,
    "0-d float64": lambda x: x * ONE.double(), "0-d in place": lambda x: through(x, "mul_", ONE),
    "of a list": lambda x: tenon._foreach_mul([x], 0.3)[0], "compiled": tenon.compile(lambda x: x * 0.3),
}  # fmt: skip
QUOTIENTS = {
    "operator": lambda x: x / 0.3, "function": lambda x: tenon.true_divide(x, 0.3),
    "method": lambda x: x.div(0.3), "in place": lambda x: through(x, "div_", 0.3),
    "out": lambda x: tenon.div(x, 0.3, out=tenon.empty_like(x)), "0-d": lambda x: x / ONE,
    "compiled": tenon.compile(lambda x: x / 0.3),
}  # fmt: skip
WHOLE = {
    "operator": lambda x: x // 0.3, "function": lambda x: tenon.floor_divide(x, 0.3),
    "rounding": lambda x: x.div(0.3, rounding_mode="floor"), "0-d": lambda x: x // ONE,
    "in place": lambda x: through(x, "floor_divide_", 0.3),
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("forms", "compute"),
    [(PRODUCTS, np.multiply), (QUOTIENTS, np.divide), (WHOLE, np.floor_divide)],
    ids=["mul", "div", "floor_divide"],
)
def test_a_number_keeps_its_digits(forms, compute, size, dtype):
    x, wide = both(dtype, size)

    for form in forms.values():
        same(form(x), compute(wide, S), dtype)


@pytest.mark.parametrize("size", SIZES)
def test_whole_numbers_keep_their_digits(size, dtype):
    x, wide = both(dtype, size)

    for number in (257, 2049, True, tenon.tensor(257)):
        same(x * number, wide * FLOAT(number), dtype)


@pytest.mark.parametrize("size", SIZES)
def test_a_number_before_the_tensor_is_rounded(size, dtype):
    """``0.3 * x`` is ``x * 0.3``, and ``0.3 / x`` is ``x.reciprocal() * 0.3``; functions take them in order."""
    x, wide = both(dtype, size)
    short = rounded(S, dtype)

    same(tenon.mul(0.3, x), short * wide, dtype)
    same(ONE * x, short * wide, dtype)
    same(tenon.div(0.3, x), short / wide, dtype)
    same(0.3 // x, np.floor_divide(short, wide), dtype)
    same(0.3 / x, rounded(1 / wide, dtype) * S, dtype)


@pytest.mark.parametrize("size", SIZES)
def test_numbers_of_other_ops_are_rounded(size, dtype):
    x, wide = both(dtype, size)
    short = rounded(S, dtype)

    for add in (lambda x: x + 0.3, lambda x: 0.3 + x, lambda x: through(x, "add_", 0.3), lambda x: x + ONE):
        same(add(x), wide + short, dtype)
    same(0.3 - x, short - wide, dtype)
    same(tenon.compile(lambda x: x - 0.3)(x), wide - short, dtype)
    same(tenon.copysign(x, -0.3).pow(0.3), np.full(size, np.nan), dtype)
    same(x.abs() ** 0.7, np.abs(wide) ** rounded(0.7, dtype), dtype)
    assert ((x.abs() * 0 + float(short)) == 0.3).all()
    y = x.abs()
    same(tenon.xlogy(x, 0.3), wide * rounded(np.log(short), dtype), dtype)
    same(tenon.xlogy(0.3, y), short * rounded(np.log(np.abs(wide)), dtype), dtype)


@pytest.mark.parametrize("size", SIZES)
def test_division_towards_zero_follows_the_dtype(size, dtype):
    x, wide = both(dtype, size)
    half = dtype == "float16"
    expected = np.trunc(wide / S if half else rounded(wide / rounded(S, dtype), dtype))

    for made in (
        x.div(0.3, rounding_mode="trunc"),
        tenon.div(x, ONE, rounding_mode="trunc"),
        through(x, "div_", 0.3, rounding_mode="trunc"),
    ):
        same(made, expected, dtype)


@pytest.mark.parametrize("size", SIZES)
def test_gradients_are_multiplied_by_the_number(size, dtype):
    x, _ = both(dtype, size)
    g, wide_g = both(dtype, size, 1)
    x.requires_grad_()

    for form, expected in (
        (lambda x: x * 0.3, wide_g * S),
        (lambda x: 0.3 * x, wide_g * S),
        (lambda x: x / 0.3, wide_g / S),
        (lambda x: x * ONE, wide_g * S),
    ):
        (plain,) = tenon.autograd.grad(form(x), x, g)
        (taped,) = tenon.autograd.grad(form(x), x, g, create_graph=True)
        same(plain, expected, dtype)
        same(taped, expected, dtype)
    (slope,) = tenon.autograd.grad(x * x * 0.3, x, g, create_graph=True)
    (twice,) = tenon.autograd.grad(slope.sum(), x)
    same(twice, 2 * rounded(wide_g * S, dtype), dtype)


@pytest.mark.parametrize("size", SIZES)
def test_a_0d_factor_of_more_digits_gets_a_gradient_in_its_dtype(size, dtype):
    x, wide = both(dtype, size)
    factor = tenon.tensor(0.3, requires_grad=True)
    wider = (factor * 1.0).double()

    same(x * wider, wide * S, dtype)
    (grad,) = tenon.autograd.grad(x * wider, factor, tenon.ones_like(x))

    assert grad.dtype == tenon.float32 and grad.shape == ()
    assert grad.item() == rounded(wide.astype(np.float64).sum(), dtype)


def test_a_number_out_of_range_divides(dtype):
    x, wide = both(dtype, 7)

    same(x / 1e6, wide / FLOAT(1e6), dtype)
    same(through(x * 1e4 if dtype == "bfloat16" else x, "mul_", 1e-6 if dtype == "float16" else 1e-10),
         (rounded(wide * FLOAT(1e4), dtype) if dtype == "bfloat16" else wide)
         * FLOAT(1e-6 if dtype == "float16" else 1e-10), dtype)  # fmt: skip


@pytest.mark.parametrize("number", [2049, 20001, -3, True])
def test_a_0d_integer_beside_a_0d_tensor_keeps_its_digits_in_programs_too(dtype, number):
    whole = tenon.tensor(number)

    def compute(x):
        return x * whole, x / whole

    compiled = tenon.compile(compute)
    for x in (1.5, 2.5, -0.75, 3.0):
        short = tenon.tensor(x, dtype=getattr(tenon, dtype), requires_grad=True)
        found, expected = compiled(short), compute(short)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == short.dtype and one.item() == other.item()
        same(expected[0], FLOAT(x) * FLOAT(number), dtype)
        same(expected[1], FLOAT(x) / FLOAT(number), dtype)
    assert compiled.programs
