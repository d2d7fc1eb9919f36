"""Python integers that neither int64 nor uint64 holds are refused by every op, as in PyTorch."""

from __future__ import annotations

import operator

import pytest

import tenon
from tenon.errors import NumberOverflowError

pytestmark = pytest.mark.together

BIG = 2**70
OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge",
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow",
)  # fmt: skip
CALLS = {
    "alpha": lambda t, n: tenon.add(t, t, alpha=n),
    "lerp": lambda t, n: tenon.lerp(t, t, n),
    "addcmul": lambda t, n: tenon.addcmul(t, t, t, value=n),
    "where": lambda t, n: tenon.where(t > 0, t, n),
    "clamp": lambda t, n: t.clamp(0, n),
    "fill_": lambda t, n: t.clone().fill_(n),
    "full": lambda t, n: t + tenon.full((2,), n),
    "pow_": lambda t, n: t.clone().pow_(n),
    "result_type": lambda t, n: tenon.zeros(2, dtype=tenon.result_type(t, n)) + t,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "bool"])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "number", [BIG, 2**64, -(2**63) - 1, 2**1100], ids=lambda n: f"{n.bit_length()} bits"
)
def test_operators_refuse_the_number_on_either_side(name, dtype, number):
    t = tenon.ones(2).to(getattr(tenon, dtype))
    if (dtype == "bool" and "sub" in name) or (dtype == "int64" and "pow" in name and number < 0):
        pytest.skip("another check comes first")
    call = getattr(operator, name)

    with pytest.raises(OverflowError):
        call(t.clone(), number)
    if not name.startswith("i"):
        with pytest.raises(OverflowError):
            call(number, t)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_functions_and_programs_refuse_the_number(name, dtype):
    call, t = CALLS[name], tenon.ones(2).to(getattr(tenon, dtype))
    program = tenon.compile(call)

    with pytest.raises(NumberOverflowError, match="of 71 bits, where a number has 64"):
        call(t, BIG)
    for _ in range(3):
        with pytest.raises(OverflowError):
            program(t, BIG)


def test_numbers_of_64_bits_are_computed():
    t = tenon.ones(2)

    assert (t * (2**64 - 1)).tolist() == [2.0**64] * 2
    assert (-(2**63) * t).tolist() == [-(2.0**63)] * 2
    assert (t < 2**64 - 1).tolist() == [True, True]
    assert t.clone().mul_(2**63).tolist() == [2.0**63] * 2
