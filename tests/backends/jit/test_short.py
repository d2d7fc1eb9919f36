"""Kernels for 16-bit floats against NumPy: correctly rounded ops, NaN, infinities, shapes."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tenon
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.short_floats import elementwise as short

pytestmark = [
    pytest.mark.skipif(not llvm.available(), reason="llvmlite is not installed"),
    pytest.mark.together,
]
FLOAT = np.dtype(np.float32)
DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 6e-8, -1e-39, 65504.0, 3e38, 1e-5]
SHAPE = (23, 3, 129)


@pytest.fixture(autouse=True)
def _quietly():
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(params=["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def dtype(request):
    return DTYPES[request.param]


def numbers(dtype, shape=SHAPE, seed=0, special=True):
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    if special:
        places = made.reshape(-1)[seed % 2 :: 17][: len(SPECIAL)]
        places[:] = SPECIAL[: places.size]
    return made.astype(dtype)


def backend():
    return tenon.ones(1)._backend


def reference(name):
    """The kernel for all dtypes."""
    return getattr(backend().raw, name)


def kernel(name):
    """The kernel for 16-bit floats."""
    return getattr(backend().short_raw, name)


def same(made, expected, rounding=0.0, absolute=1e-6):
    """Equal, NaN to NaN, or within ``rounding`` relative and ``absolute``."""
    assert made.dtype == expected.dtype
    assert made.shape == expected.shape
    a, b = made.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    np.testing.assert_allclose(a, b, rtol=rounding, atol=0.0 if rounding == 0 else absolute)


# --- conversions ---


@pytest.mark.parametrize("name", DTYPES)
def test_every_short_number_widens_to_itself(name):
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[name])

    same(short.cast(x, FLOAT), x.astype(FLOAT))


@pytest.mark.parametrize("name", DTYPES)
def test_float32_rounds_to_nearest_even_and_keeps_nan(name):
    random = np.random.default_rng(1)
    bits = random.integers(0, 1 << 32, 1 << 17, dtype=np.uint32)
    ties = (random.integers(0, 1 << 16, 1 << 14, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)

    same(short.cast(x, DTYPES[name]), x.astype(DTYPES[name]))


def test_one_kind_of_short_number_becomes_the_other():
    x = numbers(DTYPES["bfloat16"])

    same(short.cast(x, DTYPES["float16"]), x.astype(FLOAT).astype(np.float16))


def test_the_op_cast_uses_them_and_copies_unaligned_arrays(dtype):
    x = numbers(FLOAT, (130, 140), special=False)
    cast = reference("cast")

    for given in (x, x.T, x[:, ::2], x[:0], x[::-1]):
        same(cast(given, dtype=dtype), given.astype(dtype))
        same(cast(given.astype(dtype), dtype=FLOAT), given.astype(dtype).astype(FLOAT))


# --- elementwise ---

EXACT = ["add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "relu_grad"]
ONE = [
    "neg",
    "abs",
    "relu",
    "square",
    "floor",
    "ceil",
    "trunc",
    "sign",
    "sqrt",
    "reciprocal",
    "isnan",
    "isinf",
]
SMOOTH = ["exp", "log", "tanh", "sigmoid", "sin", "erf", "expm1", "log1p", "rsqrt", "silu", "hardtanh"]


def in_float32(name, *arrays):
    """The op computed in float32 and rounded once."""
    given = [a.astype(FLOAT) if isinstance(a, np.ndarray) and a.dtype.itemsize == 2 else a for a in arrays]
    made = reference(name)(*given)
    dtype = next(a.dtype for a in arrays if isinstance(a, np.ndarray) and a.dtype.itemsize == 2)
    return made.astype(dtype) if made.dtype == FLOAT else made


@pytest.mark.parametrize("name", EXACT)
def test_ops_of_two_operands_round_once(name, dtype):
    x, y = numbers(dtype), numbers(dtype, seed=3)

    same(kernel(name)(x, y), in_float32(name, x, y))


@pytest.mark.parametrize("name", ONE)
def test_ops_of_one_operand_round_once(name, dtype):
    x = numbers(dtype)

    same(kernel(name)(x), in_float32(name, x))


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_ops_are_right_to_the_last_place(name, dtype):
    x = numbers(dtype)

    same(kernel(name)(x), in_float32(name, x), rounding=float(ml_dtypes.finfo(dtype).eps))


TOGETHER = [
    ((64, 5, 33), (33,)), ((64, 5, 33), (5, 33)), ((64, 5, 33), (64, 1, 1)), ((64, 5, 33), (64, 5, 1)),
    ((64, 5, 33), (1, 5, 1)), ((64, 1, 33), (1, 5, 33)), ((64, 5, 33), ()), ((1, 10000), (1, 10000)),
    ((10000,), (1,)),
]  # fmt: skip


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shapes", TOGETHER, ids=str)
def test_operands_broadcast(shapes, swapped, dtype):
    x, y = (numbers(dtype, s, seed) for seed, s in enumerate(shapes))
    if swapped:
        x, y = y, x

    same(kernel("sub")(x, y), in_float32("sub", x, y))


def test_operands_may_have_any_strides(dtype):
    x, y = numbers(dtype, (150, 160)), numbers(dtype, (150, 160), 2)

    for lay in (
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        lambda a: a[1:, 3:],
        lambda a: a[:, :70],
    ):
        same(kernel("mul")(lay(x), lay(y)), in_float32("mul", lay(x), lay(y)))
        same(kernel("exp")(lay(x)), in_float32("exp", lay(x)), rounding=8e-3)
    same(kernel("add")(x, y.reshape(160, 150).T), in_float32("add", x, y.reshape(160, 150).T))


def test_numbers_and_arrays_mix(dtype):
    x = numbers(dtype)

    for number in (2, 0.3, -1.5, True, float("inf"), dtype.type(0.3)):
        rounded = np.float32(dtype.type(number))
        same(kernel("mul")(x, number), in_float32("mul", x, np.float32(number)))
        same(kernel("mul")(number, x), in_float32("mul", rounded, x))
        same(kernel("sub")(number, x), in_float32("sub", rounded, x))
    same(kernel("clamp")(x, -0.5, None), in_float32("clamp", x, np.float32(-0.5), None))


def test_selection_keeps_the_bits_of_either(dtype):
    x, y = numbers(dtype), numbers(dtype, seed=5)
    condition = np.random.default_rng(0).random(SHAPE) < 0.5

    same(reference("where")(condition, x, y), np.where(condition, x, y))
    same(reference("where")(condition[0], x, y), np.where(condition[0], x, y))
    masked = reference("where")(condition[0], dtype.type(-np.inf), x)
    same(masked, np.where(condition[0], dtype.type(-np.inf), x))


def test_small_empty_and_mixed_calls_go_elsewhere_and_are_right(dtype):
    for shape in ((0, 5), (3,), ()):
        x = numbers(dtype, shape, special=False)
        assert kernel("add")(x, x).shape == shape
    x, wide = numbers(dtype), numbers(FLOAT)
    assert kernel("add")(x, wide).dtype == FLOAT
    assert kernel("conj")(x) is x


def test_an_op_may_write_over_its_operand(dtype):
    x, y = numbers(dtype), numbers(dtype, seed=4)
    expected = in_float32("add", x, y)

    made = kernel("add")(x, y, out=x)

    assert made is x
    same(x, expected)


def test_threads_share_and_agree(dtype):
    x = numbers(dtype, (1 << 18,))
    team = llvm.team_size()
    try:
        llvm.set_team_size(2)
        shared = kernel("tanh")(x)
        llvm.set_team_size(1)
        alone = kernel("tanh")(x)
    finally:
        llvm.set_team_size(team)

    same(shared, alone)


# --- ops computed in float32 ---

ROWS = {
    "softmax": {"axis": 1}, "log_softmax": {"axis": 1}, "sum": {"axes": (0,)}, "mean": {"axes": (1,)},
    "amax": {"axes": (0, 1)}, "sum_to": {"shape": (129,)}, "cumsum": {"axis": 0}, "logsumexp": {"axes": (1,)},
    "var": {"axes": (1,), "correction": 1, "keepdims": False}, "gelu": {}, "silu": {}, "mish": {},
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_computed_in_float32_and_rounded_once(name, dtype):
    x = numbers(dtype, (150, 129), special=False)

    for given in (x, x[:, ::-1], numbers(dtype, (129, 150), special=False).T):
        same(
            kernel(name)(given, **ROWS[name]),
            reference(name)(given.astype(FLOAT), **ROWS[name]).astype(dtype),
        )


def test_nan_and_infinity_come_through_rows(dtype):
    x = numbers(dtype, (100, 128), special=False)
    x[3, 5], x[4, 6], x[5, 7] = np.nan, np.inf, -np.inf

    made = kernel("softmax")(x, axis=1).astype(np.float32)

    assert np.isnan(made[3]).all() and np.isnan(made[4]).all()
    assert made[5, 7] == 0 and abs(made[5].sum() - 1) < 0.02
    assert np.isnan(kernel("sum")(x, axes=(1,))[3])


@pytest.mark.parametrize(
    ("name", "where"), list(itertools.product(["matmul", "linear"], ["plain", "transposed", "batched"]))
)
def test_float16_products_are_computed_in_float32(name, where):
    half = DTYPES["float16"]
    x, y = numbers(half, (120, 130), special=False), numbers(half, (140, 130), 1, special=False)
    if where == "transposed":
        x, y = np.asfortranarray(x), np.asfortranarray(y)
    if where == "batched" and name == "matmul":
        x, y = np.stack([x, x]), np.stack([y, y])
    wide = x.astype(FLOAT), y.astype(FLOAT)
    if name == "matmul":
        made, expected = kernel(name)(x, y.swapaxes(-1, -2)), np.matmul(wide[0], wide[1].swapaxes(-1, -2))
    else:
        made, expected = kernel(name)(x, y, None), wide[0] @ wide[1].T

    # Where terms cancel, what is left depends on the order of the additions: on a random walk of their roundings.
    terms = float(np.matmul(np.abs(wide[0]), np.abs(wide[1]).swapaxes(-1, -2)).max())
    same(made, expected.astype(half), rounding=2e-3, absolute=130**0.5 * np.finfo(FLOAT).eps * terms)


def test_without_llvmlite_the_kernels_for_all_dtypes_serve(monkeypatch, dtype):
    x, y = numbers(dtype), numbers(dtype, seed=1)
    found = [kernel("mul")(x, y), kernel("softmax")(x, axis=2), reference("cast")(x, dtype=FLOAT)]
    monkeypatch.setattr(llvm, "available", lambda: False)
    monkeypatch.setattr(short, "elementwise", None)

    plain = [kernel("mul")(x, y), kernel("softmax")(x, axis=2), reference("cast")(x, dtype=FLOAT)]

    for a, b in zip(found, plain, strict=True):
        same(a, b, rounding=3e-2)
    assert backend().for_short(tenon.ops.matmul, len) is not len
    assert backend().for_short(tenon.ops.transpose, len) is len


@pytest.mark.parametrize("wide", [False, True], ids=["short parameters", "float32 parameters"])
@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
@pytest.mark.parametrize("shape", [(90, 128), (3, 5)])
def test_norms_round_results_and_keep_statistics(name, shape, wide, dtype):
    x, g = numbers(dtype, shape, special=False), numbers(dtype, shape, 1, special=False)
    kept = FLOAT if wide else dtype
    weight, bias = numbers(kept, shape[1:], 2, special=False), numbers(kept, shape[1:], 3, special=False)
    attrs = {"rank": 1} if name == "layer_norm" else {}
    op, gradient = getattr(tenon.ops, name), getattr(tenon.ops, f"{name}_grad")
    short_kernels, kernels = backend().short_kernels, backend().kernels

    made = short_kernels[op](x, weight, bias, **attrs)
    slopes = short_kernels[gradient](g, x, weight, *made[-2:], needs=(True,) * 3, **attrs)

    wider = [a.astype(FLOAT) for a in (x, weight, bias, g)]
    expected = kernels[op](*wider[:3], **attrs)
    steep = kernels[gradient](wider[3], *wider[:2], *expected[-2:], needs=(True,) * 3, **attrs)
    same(made[0], expected[0].astype(dtype), rounding=8e-3)
    for a, b in zip(made[1:], expected[1:], strict=True):
        same(a, b, rounding=1e-4)
    for a, b, kind in zip(slopes, steep, (dtype, kept, kept), strict=True):
        assert a.dtype == kind
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("shape", [(97, 133), (3, 5, 7, 91), (1, 9001), (9001, 1), (701, 16)], ids=str)
def test_rows_of_bfloat16_round_once(shape):
    dtype = DTYPES["bfloat16"]
    x, g = numbers(dtype, shape, special=False), numbers(dtype, shape, 1, special=False)
    axis = len(shape) - 1

    for lay in (lambda a: a, lambda a: a[::-1], lambda a: np.asfortranarray(a)):
        wide = lay(x).astype(FLOAT), lay(g).astype(FLOAT)
        made = kernel("softmax")(lay(x), axis=axis)
        same(made, reference("softmax")(wide[0], axis=axis).astype(dtype), rounding=8e-3)
        same(
            kernel("softmax_grad")(lay(g), made, axis=axis),
            reference("softmax_grad")(wide[1], made.astype(FLOAT), axis=axis).astype(dtype),
            rounding=8e-3,
        )
        total = reference("sum_to")(wide[0], shape=shape[1:])
        np.testing.assert_allclose(
            kernel("sum_to")(lay(x), shape=shape[1:]).astype(np.float64), total, rtol=8e-3, atol=1e-4
        )


def test_sums_of_bfloat16_keep_nan_and_infinity_and_their_columns():
    x = numbers(DTYPES["bfloat16"], (200, 64), special=False)
    x[7, 3], x[9, 4], x[10, 5], x[11, 5] = np.nan, np.inf, np.inf, -np.inf

    made = kernel("sum_to")(x, shape=(64,)).astype(np.float32)

    assert np.isnan(made[[3, 5]]).all() and made[4] == np.inf
    assert np.isfinite(np.delete(made, [3, 4, 5])).all()
