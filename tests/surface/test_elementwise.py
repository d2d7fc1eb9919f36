"""Elementwise functions with every dtype, and with numbers; values and options: tests/parity/catalogue."""

import pytest

pytestmark = [pytest.mark.oracle, pytest.mark.together]

UNARY = {
    "f": """
        abs absolute asinh atan arctan ceil cos cosh clone deg2rad erf erfc exp exp2 expm1 floor frac neg
        negative positive rad2deg relu round sigmoid sign sgn sin sinc sinh square tan tanh trunc fix
        logical_not isnan isinf isfinite isneginf isposinf signbit nan_to_num isreal
    """,
    "p": "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma",
    "u": "acos arccos asin arcsin atanh arctanh erfinv",
}
UNARY_CASES = [(name, kind) for kind, names in UNARY.items() for name in names.split()]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "multiply",
    "subtract",
    "divide",
    "true_divide",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "arctan2",
    "hypot",
    "remainder",
    "fmod",
    "logaddexp",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "greater",
    "less",
    "greater_equal",
    "less_equal",
    "not_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "copysign",
    "float_power",
    "xlogy",
    "rsub",
    "isclose",
]
ROUNDING = ("floor_divide", "heaviside", "nextafter")
DTYPES = ["float32", "float16", "bfloat16", "int64", "int32", "uint8", "int8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "kind"), UNARY_CASES)
def test_unary_functions_promote_as_torchs(compare, name, kind, dtype):
    whole = "int" in dtype or dtype == "bool"
    compare(name, ("n:4" if whole else f"{kind}:4",), dtype=dtype, grad=False, refusals=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*BINARY, *ROUNDING])
def test_binary_functions_promote_as_torchs(compare, name, dtype):
    whole = "int" in dtype or dtype == "bool"
    args = ("i:6" if whole else "p:6", "n:6" if whole and "u" not in dtype else "p:6")
    compare(name, args, dtype=dtype, grad=False, refusals=False)


@pytest.mark.parametrize("number", [2, 2.5, 0.5, 7])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "eq", "lt", "float_power"],
)
def test_numbers_take_part_as_in_torch(compare, name, dtype, number):
    compare(name, ("n:5" if "int" in dtype else "p:5", number), dtype=dtype, grad=False)


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "pow", "true_divide", "remainder", "float_power", "xlogy"]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_number_may_come_first_where_torch_allows_it(compare, name, dtype):
    grad = name != "remainder"  # torch has no derivative for a number's remainder
    compare(name, (2, "p:5"), dtype=dtype, grad=grad)
    compare(name, (2.5, "p:2,2"), dtype=dtype, grad=grad)


def test_numbers_alone_make_a_tensor_of_the_default_dtype(compare):
    compare("add", (2, 2.5))
    compare("mul", (2, 3))


@pytest.mark.parametrize("name", ["exp", "sum", "sigmoid", "reshape", "max", "matmul"])
def test_a_number_first_is_refused_where_torch_refuses_it(compare, name):
    compare(name, (2.0,))


@pytest.mark.parametrize(
    "name",
    ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm"],
)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integer_functions_are_torchs(compare, name, dtype):
    compare(name, ("i:3,4", "i:4"), dtype=None, exact=True)
