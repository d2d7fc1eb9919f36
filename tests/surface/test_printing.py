"""Text of tensors, compared with real torch character by character."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenon
from tenon.errors import TenonError
from tenon.tensors.printing import get_printoptions, printoptions, set_printoptions

pytestmark = pytest.mark.together

SHAPES = [
    (),
    (1,),
    (7,),
    (30,),
    (0,),
    (0, 3),
    (2, 0, 3),
    (3, 4),
    (2, 3, 4),
    (2, 1, 3, 2),
    (1, 40),
    (1001,),
    (40, 30),
    (3, 400),
    (9, 8, 20),
]
REAL = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def both(torch, array, dtype):
    theirs = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)).copy()).to(
        getattr(torch, dtype)
    )
    ours = tenon.tensor(array).to(getattr(tenon, dtype))
    return ours, theirs


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_print_as_in_torch(torch, dtype, shape):
    array = np.random.default_rng(math.prod(shape)).normal(0, 20, shape)
    if "uint" in dtype:
        array = np.abs(array)

    ours, theirs = both(torch, array, dtype)

    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_values_print_as_in_torch(torch, dtype, shape):
    draw = np.random.default_rng(1)
    array = draw.normal(0, 3, shape) - 1j * draw.normal(0, 2000, shape)

    ours, theirs = both(torch, np.asarray(array), dtype)

    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_booleans_print_as_in_torch(torch, shape):
    array = np.random.default_rng(2).random(shape) > 0.5

    ours, theirs = both(torch, np.asarray(array), "bool")

    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "values",
    [
        [1.0, math.nan, -math.inf],
        [1.5, math.inf],
        [math.nan],
        [0.0, -0.0],
        [1e-5, 1.0],
        [1e9],
        [123456.0, 1.0],
        [1e8],
        [100000001.0],
        [1e-4],
        [0.00009],
        [1.0, 1000.0],
        [1.0, 1001.0],
        [-1.5, 2.25, 1e30],
        [1e38, 1e-38],
        [16777217.0, 0.5],
        [3.0] * 26,
        [-3.25] * 26,
        [math.inf, 1e-12, 5.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_notation_is_chosen_as_in_torch(torch, dtype, values):
    with np.errstate(over="ignore"):
        ours = tenon.tensor(values, dtype=tenon.float64).to(getattr(tenon, dtype))
    theirs = torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype))

    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    values=st.lists(st.floats(width=32) | st.integers(-2000, 2000).map(float), max_size=40),
    rows=st.integers(1, 3),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
)
def test_any_floats_print_as_in_torch(values, rows, dtype):
    torch = pytest.importorskip("torch")
    array = np.array([values] * rows)

    with np.errstate(over="ignore"):
        ours = tenon.from_numpy(array).to(getattr(tenon, dtype))

    assert repr(ours) == repr(torch.from_numpy(array).to(getattr(torch, dtype)))


@pytest.mark.oracle
@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 9), max_size=4),
    options=st.fixed_dictionaries(
        {},
        optional={
            "precision": st.integers(0, 8),
            "threshold": st.integers(0, 60),
            "edgeitems": st.integers(0, 4),
            "linewidth": st.integers(10, 120),
            "sci_mode": st.sampled_from([None, True, False]),
            "profile": st.sampled_from(["default", "short", "full"]),
        },
    ),
    seed=st.integers(0, 99),
)
def test_any_options_act_as_in_torch(shape, options, seed):
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(seed).normal(0, 10.0 ** (seed % 5 - 1), shape)
    ours, theirs = tenon.from_numpy(np.asarray(array)), torch.from_numpy(np.asarray(array))

    with printoptions(**options), torch._tensor_str.printoptions(**options):
        texts = (repr(ours), repr(theirs))

    assert texts[0] == texts[1]


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "bool"])
def test_meta_tensors_print_their_size(torch, dtype):
    ours = tenon.empty(2, 3, device="meta", dtype=getattr(tenon, dtype))
    theirs = torch.empty(2, 3, device="meta", dtype=getattr(torch, dtype))

    assert repr(ours) == repr(theirs)


@pytest.mark.oracle
@pytest.mark.parametrize("width", range(1, 14))
def test_history_wraps_as_in_torch(torch, width):
    texts = []
    for lib in (tenon, torch):
        leaf = lib.full((width,), 2.5, requires_grad=True)
        double = lib.full((2, width), 2.5, dtype=lib.float64, requires_grad=True)
        texts.append(
            [
                repr(t)
                for t in (
                    leaf,
                    leaf + 1,
                    leaf * 2,
                    double,
                    double.exp(),
                    leaf.detach(),
                    leaf[0],
                    double.sum(),
                )
            ]
        )

    assert texts[0] == texts[1]


@pytest.mark.oracle
def test_default_dtype_decides_what_is_printed(torch):
    texts = []
    for lib in (tenon, torch):
        lib.set_default_dtype(lib.float64)
        try:
            tensors = [
                lib.ones(2),
                lib.ones(2, dtype=lib.float32),
                lib.ones(0),
                lib.ones(0, dtype=lib.float32),
            ]
            texts.append([repr(t) for t in (*tensors, lib.tensor([1j]), lib.ones(1, dtype=lib.complex64))])
        finally:
            lib.set_default_dtype(lib.float32)

    assert texts[0] == texts[1]


@pytest.mark.oracle
def test_subclasses_print_their_name_and_parameters_say_so(torch):
    texts = []
    for lib in (tenon, torch):
        cls = type("Marked", (lib.Tensor,), {})
        texts.append([repr(cls([1.0, 2.0])), repr(lib.nn.Parameter(lib.ones(2, 2)))])

    assert texts[0] == texts[1]


@pytest.mark.oracle
def test_views_print_their_own_elements(torch):
    array = np.arange(24.0).reshape(4, 6)
    texts = [repr(lib.from_numpy(array.copy()).t()[1:, ::2]) for lib in (tenon, torch)]

    assert texts[0] == texts[1]


def test_str_of_a_0d_tensor_formats_as_its_number():
    assert f"{tenon.tensor(2.5):.3f}" == "2.500"
    assert str(tenon.tensor(2.5)) == "tensor(2.5000)"


def test_printoptions_are_restored_after_the_block():
    before = get_printoptions()

    with printoptions(precision=2, edgeitems=1):
        assert repr(tenon.tensor([1.23456])) == "tensor([1.23]" + ")"

    assert get_printoptions() == before


def test_an_unknown_profile_is_refused_and_changes_nothing():
    before = get_printoptions()

    with pytest.raises(TenonError, match="unknown profile 'wide'"):
        set_printoptions(precision=9, profile="wide")

    assert get_printoptions() == before


NAMED = {
    "x - 1": lambda x: x - 1,
    "1 - x": lambda x: 1 - x,
    "2 / x": lambda x: 2 / x,
    "x ** 2": lambda x: x**2,
    "2 ** x": lambda x: 2**x,
    "x ** x": lambda x: x**x,
    "clamp": lambda x: x.clamp(0),
    "clamp to tensors": lambda x: x.clamp(x.detach(), x.detach()),
    "log1p": lambda x: x.log1p(),
    "sum": lambda x: x.sum(),
    "sum of an axis": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "mean of an axis": lambda x: x.mean(1, keepdim=True),
    "integer index": lambda x: x[0],
    "slice": lambda x: x[:1],
    "new axis": lambda x: x[None],
    "new last axis": lambda x: x[..., None],
}


@pytest.mark.oracle
@pytest.mark.parametrize("make", NAMED.values(), ids=NAMED)
def test_results_print_the_name_of_torchs_node(torch, make):
    texts = [repr(make(lib.ones(2, 3, requires_grad=True))) for lib in (tenon, torch)]

    assert texts[0] == texts[1]
