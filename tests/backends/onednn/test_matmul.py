"""Eager products: every layout against NumPy, special values, which calls NumPy computes, threads, gradients."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from bfloat import BFLOAT, FLOATS, in_bfloat

import tenon
from tenon import ops
from tenon_cpu.onednn import eager
from tenon_cpu.onednn.descriptors import element_strides
from tenon_cpu.onednn.matmul import Strided, arranged, primitive
from tenon_cpu.onednn.runtime import available

pytestmark = [pytest.mark.skipif(not available(), reason=available().reason), pytest.mark.together]

CPU = tenon.zeros(1)._backend
TOLERANCE = {"float32": (1e-5, 1e-4), "bfloat16": (1e-2, 1e-1)}


@pytest.fixture(autouse=True)
def small_products_too(monkeypatch):
    """Let small products reach oneDNN too."""
    for name in ("_LEAST", "_LEAST_COLUMNS", "LEAST_BFLOAT"):
        monkeypatch.setattr(eager, name, 0)
    for name in ("_ROWS", "_COLUMNS"):
        monkeypatch.setattr(eager, name, 1)
    for cache in (*eager._products.values(), *eager._affine.values()):
        cache.clear()
    yield
    for cache in (*eager._products.values(), *eager._affine.values()):
        cache.clear()


@pytest.fixture
def no_numpy(monkeypatch):
    """Make the NumPy kernel fail, so that it cannot compute the result."""

    def refuse(*arguments, **attrs):
        raise AssertionError("left to NumPy")

    monkeypatch.setitem(CPU.kernels, ops.matmul, refuse)
    monkeypatch.setitem(CPU.kernels, ops.linear, refuse)


def product(x, y):
    """Multiply by oneDNN's row of the table if it accepts the call, else by the first row that does."""
    made = eager.matmul(x, y) if eager.matmul_is_faster(x, y) else NotImplemented
    return CPU.kernels[ops.matmul](x, y) if made is NotImplemented else made


def affine(x, weight, bias):
    """The same for ``linear``."""
    made = eager.linear(x, weight, bias) if eager.linear_is_faster(x, weight, bias) else NotImplemented
    return CPU.kernels[ops.linear](x, weight, bias) if made is NotImplemented else made


def values(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def check(x, y):
    expected = np.matmul(x.astype(np.float64), y.astype(np.float64))

    made = product(x, y)

    assert made.dtype == x.dtype
    assert made.shape == expected.shape
    assert made.flags.c_contiguous
    rtol, atol = TOLERANCE[str(x.dtype)]
    np.testing.assert_allclose(made.astype(np.float64), expected, rtol=rtol, atol=atol)


def rearranged(x, how):
    """The same values in another memory layout."""
    if how == "plain":
        return x
    if how == "transposed":
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "columns of a wider one":
        wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2 + 3), x.dtype)
        wide[..., 2 : 2 + x.shape[-1]] = x
        return wide[..., 2 : 2 + x.shape[-1]]
    assert how == "every other row"
    tall = np.zeros((*x.shape[:-2], x.shape[-2] * 2, x.shape[-1]), x.dtype)
    tall[..., ::2, :] = x
    return tall[..., ::2, :]


LAYOUTS = ("plain", "transposed", "columns of a wider one", "every other row")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("of_x", "of_y"), list(itertools.product(LAYOUTS, LAYOUTS)))
@pytest.mark.parametrize("shape", [(16, 32, 48), (7, 13, 5), (1, 9, 4), (6, 1, 8), (5, 3, 1)])
def test_a_product_reads_its_operands_where_they_lie(no_numpy, dtype, of_x, of_y, shape):
    m, k, n = shape

    check(rearranged(values(0, m, k, dtype=dtype), of_x), rearranged(values(1, k, n, dtype=dtype), of_y))


BATCHES = [
    ((3,), (3,)), ((2, 3), (2, 3)), ((3,), ()), ((), (3,)), ((2, 3), ()), ((2, 1), (1, 3)), ((1,), (4,)),
    ((2, 3), (3,)), ((2, 3), (2, 1)), ((1, 1), (1, 1)), ((2, 1, 2), (3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("a", "b"), BATCHES)
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(("of_x", "of_y"), [("plain", "plain"), ("transposed", "every other row")])
def test_batches_broadcast(no_numpy, dtype, a, b, rows, of_x, of_y):
    x, y = values(0, *a, rows, 6, dtype=dtype), values(1, *b, 6, 7, dtype=dtype)

    check(rearranged(x, of_x), rearranged(y, of_y))


def test_heads_of_attention_are_multiplied_without_a_copy(no_numpy):
    packed = values(0, 2, 5, 3 * 12)
    q, k, v = (packed[..., i : i + 12].reshape(2, 5, 3, 4).transpose(0, 2, 1, 3) for i in (0, 12, 24))

    check(q, k.swapaxes(-1, -2))
    check(values(1, 2, 3, 5, 5), v)
    check(values(1, 2, 3, 5, 5).swapaxes(-1, -2), v)


def test_operands_broadcast_by_a_stride_of_zero(no_numpy):
    x = np.broadcast_to(values(0, 4, 6), (3, 4, 6))

    check(x, values(1, 3, 6, 5))
    check(np.broadcast_to(values(0, 2, 1, 4, 6), (2, 3, 4, 6)), values(1, 3, 6, 5))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: x[:, ::2],
        lambda x: np.broadcast_to(x[:1], (8, 8)),
        lambda x: np.broadcast_to(x[:, :1], (8, 8)),
    ],
    ids=["reversed rows", "reversed columns", "every other column", "one row", "one column"],
)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT], ids=str)
def test_what_oneDNN_cannot_read_is_left_to_numpy(make, dtype):
    x, other = make(values(0, 8, 8, dtype=dtype)), values(1, 8, 8, dtype=dtype)

    check(x, other[: x.shape[1]])
    check(other[:, : x.shape[0]], x)


@pytest.mark.parametrize(
    "dtype", [np.float32, BFLOAT, np.float16, np.float64, np.int64, np.complex64], ids=str
)
@pytest.mark.parametrize(
    ("a", "b"),
    [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((0, 2, 3), (3, 4)), ((2, 3, 0), (2, 0, 4))],
)
def test_empty_operands_give_what_numpy_gives(dtype, a, b):
    made = product(np.ones(a, dtype), np.ones(b, dtype))

    assert made.dtype == dtype
    assert made.shape == np.matmul(np.ones(a), np.ones(b)).shape
    assert not made.astype(np.float64 if dtype != np.complex64 else dtype).any()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int64, np.complex64], ids=str)
def test_other_dtypes_are_multiplied_as_before(dtype):
    x, y = (10 * values(0, 16, 16)).astype(dtype), (10 * values(1, 16, 16)).astype(dtype)

    made = product(x, y)

    assert made.dtype == dtype
    wide = np.float32 if dtype is np.float16 else dtype
    np.testing.assert_allclose(made, np.matmul(x.astype(wide), y.astype(wide)).astype(dtype), rtol=1e-3)


@pytest.mark.parametrize(("a", "b"), [((8,), (8,)), ((8,), (8, 3)), ((3, 8), (8,)), ((2, 3, 8), (8,))])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT], ids=str)
def test_vectors_are_multiplied_as_before(a, b, dtype):
    x, y = values(0, *a, dtype=dtype), values(1, *b, dtype=dtype)

    made = np.asarray(product(x, y))

    np.testing.assert_allclose(
        made.astype(np.float32), x.astype(np.float32) @ y.astype(np.float32), rtol=2e-2, atol=2e-2
    )


def test_sizes_that_do_not_match_raise_as_before():
    with pytest.raises(ValueError, match=r"mismatch|not aligned"):
        product(values(0, 64, 64), values(1, 63, 64))
    with pytest.raises(ValueError, match=r"mismatch|broadcast"):
        product(values(0, 2, 64, 64), values(1, 3, 64, 64))
    with pytest.raises(tenon.errors.ShapeError):
        ops.matmul(tenon.ones(64, 64), tenon.ones(63, 64))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinity_go_where_numpy_sends_them(no_numpy, dtype):
    x, y = np.abs(values(0, 24, 40, dtype=dtype)), np.abs(values(1, 40, 56, dtype=dtype))
    x[2, 3], x[5, 6], x[7, 8], y[9, 10], y[11, 12] = np.nan, np.inf, -np.inf, np.nan, np.inf
    x[13, 11] = 0  # 0 * inf is NaN
    x[7, 6] = np.inf  # inf - inf is NaN

    made = product(x, y).astype(np.float32)

    with np.errstate(invalid="ignore"):
        expected = np.matmul(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(made), np.isnan(expected))
    np.testing.assert_array_equal(made[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.isnan(expected).any() and np.isinf(expected).any()


@in_bfloat
def test_bfloat16_is_added_up_in_float32(no_numpy):
    x, y = np.full((16, 4096), 1, BFLOAT), np.full((4096, 16), 1, BFLOAT)

    assert (product(x, y).astype(np.float32) == 4096).all()  # bfloat16 alone would stop at 256


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 5, 8), (1, 8)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_linear_adds_its_bias(no_numpy, dtype, shape, biased, layout):
    x = rearranged(values(0, *shape, dtype=dtype), layout)
    weight, bias = values(1, 6, 8, dtype=dtype), values(2, 6, dtype=dtype) if biased else None
    expected = x.astype(np.float64) @ weight.astype(np.float64).T
    expected = expected if bias is None else expected + bias.astype(np.float64)

    made = affine(x, weight, bias)

    rtol, atol = TOLERANCE[str(np.dtype(dtype))]
    assert made.dtype == dtype
    np.testing.assert_allclose(made.astype(np.float64), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("x", "weight", "bias"),
    [
        ((5, 8), (6, 8), (1,)),
        ((8,), (6, 8), (6,)),
        ((5, 8), (8,), ()),
        ((0, 8), (6, 8), (6,)),
        ((5, 8), (0, 8), (0,)),
    ],
    ids=["one number as bias", "vector", "weight of one row", "no rows", "no columns"],
)
def test_linear_leaves_the_rest_to_its_parts(x, weight, bias):
    arrays = values(0, *x), values(1, *weight), values(2, *bias)

    made = tenon.nn.functional.linear(*(tenon.tensor(a) for a in arrays))

    np.testing.assert_allclose(made.numpy(), arrays[0] @ arrays[1].T + arrays[2], rtol=1e-5, atol=1e-5)


def test_a_bias_with_gaps_is_added_too():
    x, weight, bias = values(0, 5, 8), values(1, 6, 8), values(2, 12)[::2]

    made = tenon.nn.functional.linear(*(tenon.tensor(a) for a in (x, weight))) + tenon.tensor(bias)
    fused = affine(x, weight, bias)

    np.testing.assert_allclose(fused, made.numpy(), rtol=1e-5, atol=1e-5)


def _train(dtype, sizes):
    tenon.manual_seed(0)
    b, t, d, n = sizes
    x = tenon.randn(b, t, d).to(dtype).requires_grad_()
    weight, bias = (tenon.randn(*s).to(dtype).requires_grad_() for s in ((n, d), (n,)))
    y = tenon.nn.functional.linear(x, weight, bias)
    z = y @ y.transpose(-1, -2)
    ((z @ x) * 0.1).sum().backward()
    return [z, x.grad, weight.grad, bias.grad]


@pytest.mark.parametrize(("name", "tolerance"), [("float32", 1e-4), ("bfloat16", 5e-2)])
@pytest.mark.parametrize("sizes", [(2, 5, 7, 3), (3, 16, 32, 24)])
def test_both_gradients_agree_with_numpys(monkeypatch, name, tolerance, sizes):
    through = [np.asarray(t.detach().float().numpy()) for t in _train(getattr(tenon, name), sizes)]
    monkeypatch.setattr(eager, "_prepared", lambda *arrays: None)
    for cache in (*eager._products.values(), *eager._affine.values()):
        cache.clear()
    without = [np.asarray(t.detach().float().numpy()) for t in _train(getattr(tenon, name), sizes)]

    for made, expected in zip(through, without, strict=True):
        np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_threads_do_not_mix_their_operands(no_numpy):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(50):
            x = rng.normal(size=(40, 30)).astype(np.float32)
            y = rng.normal(size=(30, 50)).astype(np.float32)
            if not np.allclose(product(x, y), np.matmul(x, y), atol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_second_product_of_the_same_shapes_is_prepared_already(no_numpy):
    x, y = values(0, 9, 10), values(1, 10, 11)
    product(x, y)
    before = eager._floats.counts()

    product(x + 1, y + 1)

    after = eager._floats.counts()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_results_are_new_arrays_each_time(no_numpy):
    x, y = values(0, 9, 10), values(1, 10, 11)

    first = product(x, y)
    kept = first.copy()
    second = product(x * 2, y)

    np.testing.assert_array_equal(first, kept)
    assert not np.may_share_memory(first, second)


def test_small_products_stay_with_numpy(monkeypatch):
    monkeypatch.undo()
    used = []
    monkeypatch.setattr(eager, "_prepared", lambda *a: used.append(a))

    product(values(0, 30, 30), values(1, 30, 30))
    affine(values(0, 30, 30), values(1, 30, 30), None)
    assert used == []
    product(values(0, 200, 200), values(1, 200, 200))
    assert len(used) == 1


def _arranged(x, y):
    made = arranged(*(Strided(a.shape, element_strides(a)) for a in (x, y)))
    return None if made is None else (made.x.shape, made.y.shape, made.out.shape)


def test_axes_of_a_batch_become_one_and_rows_too_where_the_other_is_one_matrix():
    assert _arranged(values(0, 2, 3, 4, 5), values(0, 5, 6)) == ((24, 5), (5, 6), (24, 6))
    assert _arranged(values(0, 2, 3, 4, 5), values(0, 2, 3, 5, 6)) == ((6, 4, 5), (6, 5, 6), (6, 4, 6))
    assert _arranged(values(0, 1, 4, 5), values(0, 5, 6)) == ((4, 5), (5, 6), (4, 6))
    assert _arranged(values(0, 4, 5), values(0, 3, 5, 6)) == ((1, 4, 5), (3, 5, 6), (3, 4, 6))
    assert _arranged(values(0, 2, 1, 4, 5), values(0, 3, 5, 6))[2] == (2, 3, 4, 6)
    assert _arranged(values(0, 4, 5), values(0, 4, 5)) is None


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9])
def test_few_rows_are_an_inner_product_that_reads_the_weight_where_it_lies(no_numpy, rows, biased):
    weight, bias = values(0, 24, 33), values(1, 24)
    x = values(2, rows, 33)
    x[0, 3], x[-1, 5] = np.nan, np.inf
    product = arranged(*(Strided(a.shape, element_strides(a)) for a in (x, weight.T)))

    made = primitive(product, np.dtype(np.float32), biased)
    out = affine(x, weight, bias if biased else None)

    assert (made.kind == "inner_product_forward") is (rows <= 8)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64) + (bias if biased else 0)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
