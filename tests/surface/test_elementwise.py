"""Elementwise functions against torch: values and gradients, many dtypes, broadcasting, numbers."""

import pytest

pytestmark = pytest.mark.oracle

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


@pytest.mark.parametrize("shape", ["3,4", "", "0,3"])
@pytest.mark.parametrize(("name", "kind"), UNARY_CASES)
def test_unary_functions_are_torchs(compare, name, kind, shape):
    compare(name, (f"{kind}:{shape}",))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "kind"), UNARY_CASES)
def test_unary_functions_promote_as_torchs(compare, name, kind, dtype):
    whole = "int" in dtype or dtype == "bool"
    compare(name, ("n:4" if whole else f"{kind}:4",), dtype=dtype, grad=False, refusals=False)


@pytest.mark.parametrize(
    "shapes", [("3,4", "3,4"), ("3,4", "4"), ("2,1,4", "3,1"), ("", "3"), ("0,3", "3")], ids=str
)
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_are_torchs(compare, name, shapes):
    kind = "p" if name in ("float_power", "xlogy") else "f"
    compare(name, tuple(f"{kind}:{s}" for s in shapes))


@pytest.mark.parametrize("shapes", [("3,4", "3,4"), ("2,1,4", "3,1"), ("0,3", "3")], ids=str)
@pytest.mark.parametrize("name", ROUNDING)
def test_functions_without_slope_are_torchs(compare, name, shapes):
    compare(name, tuple(f"f:{s}" for s in shapes), grad=False)


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


@pytest.mark.parametrize(
    "name", ["exp", "sigmoid", "tanh", "relu", "sign", "round", "erf", "isnan", "nan_to_num", "floor", "log"]
)
def test_nan_and_infinity_go_where_torch_sends_them(compare, name):
    compare(name, ("z:40",), grad=False)


@pytest.mark.parametrize(
    "name",
    [
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "add",
        "mul",
        "remainder",
        "fmod",
        "floor_divide",
        "pow",
        "xlogy",
        "isclose",
    ],
)
def test_nan_and_infinity_meet_as_in_torch(compare, name):
    compare(name, ("z:60", "z:60"), grad=False)


@pytest.mark.parametrize("method", [False, True], ids=["function", "method"])
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("add", ("f:3", "f:3"), {"alpha": 2}),
        ("sub", ("f:3", "f:3"), {"alpha": 0.5}),
        ("rsub", ("f:3", "f:3"), {"alpha": 2}),
        ("div", ("f:3", "p:3"), {"rounding_mode": "trunc"}),
        ("div", ("n:9", "n:9"), {"rounding_mode": "trunc"}),
        ("div", ("k:9<9", "k:9<1"), {"rounding_mode": "floor"}),
        ("round", ("f:9",), {"decimals": 2}),
        ("round", ("f:9",), {"decimals": -1}),
        ("clamp", ("f:9", -0.5, 0.5), {}),
        ("clamp", ("f:9",), {"min": 0}),
        ("clamp", ("f:9",), {"max": 0.1}),
        ("clamp", ("f:3,4", "f:4", "p:3,1"), {}),
        ("clip", ("f:9", -0.5, 0.5), {}),
        ("clamp_min", ("f:9", 0.1), {}),
        ("clamp_max", ("f:9", "f:9"), {}),
        ("pow", ("p:3", 2), {}),
        ("pow", ("p:3", 0.5), {}),
        ("pow", ("f:3", 3), {}),
        ("pow", ("p:3", "f:3"), {}),
        ("pow", ("p:3,1", -1), {}),
        ("lerp", ("f:3", "f:3", 0.3), {}),
        ("lerp", ("f:3", "f:3", "q:3"), {}),
        ("addcmul", ("f:3", "f:3", "f:2,3"), {"value": 0.5}),
        ("addcdiv", ("f:3", "f:3", "p:2,3"), {"value": 2}),
        ("where", ("b:3,4", "f:3,4", "f:4"), {}),
        ("where", ("b:3,4", 1.0, "f:4"), {}),
        ("where", ("b:3,4", "f:4", 0), {}),
        ("where", ("b:3", 1, 2), {}),
        ("where", ("b:3", 1.5, 2), {}),
        ("where", ("b:3,4",), {}),
        ("where", ("b:3", "i:3", "f:3"), {}),
        ("nan_to_num", ("z:40",), {"nan": 1.0, "posinf": 9.0, "neginf": -9.0}),
        ("masked_fill", ("f:3,4", "b:4", -1.0), {}),
        ("masked_fill", ("f:3,4", "b:3,4", "f:"), {}),
        ("logit", ("q:9",), {"eps": 0.2}),
        ("isclose", ("z:30", "z:30"), {"equal_nan": True}),
        ("allclose", ("f:3", "f:3"), {}),
        ("equal", ("f:3", "f:3"), {}),
        ("equal", ("f:3", "f:4"), {}),
        ("conj", ("c:4",), {}),
        ("angle", ("c:4",), {}),
        ("angle", ("i:4",), {}),
        ("logit", ("q:3,4",), {}),
        ("real", ("c:4",), {}),
        ("imag", ("c:4",), {}),
        ("complex", ("f:4", "f:4"), {}),
        ("polar", ("p:4", "f:4"), {}),
        ("ldexp", ("f:4", "i:4"), {}),
        ("logaddexp2", ("f:4", "f:4"), {}),
        ("polygamma", (2, "p:5"), {}),
        ("polygamma", (3, "p:5"), {}),
        ("detach", ("f:3",), {}),
        ("view_as_real", ("c:3",), {}),
        ("view_as_complex", ("f:3,2",), {}),
        ("float_power", ("i:4", 2), {}),
        ("add", ("f:3",), {"other": "f:3"}),
        ("mul", (), {"input": "f:3", "other": "f:3"}),
    ],
    ids=str,
)  # fmt: skip
def test_options_act_as_in_torch(compare, name, args, kwargs, method):
    compare(name, args, kwargs, method=method)


COMPLEX = [
    "abs",
    "add",
    "asin",
    "atan",
    "conj",
    "cos",
    "cosh",
    "div",
    "eq",
    "exp",
    "log",
    "mul",
    "ne",
    "neg",
    "reciprocal",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_functions_are_torchs(compare, name):
    compare(name, ("c:3,4", "c:4") if name in ("add", "sub", "mul", "div", "eq", "ne") else ("c:3,4",))
