"""Compiled selections and sums equal NumPy's, with broadcasting, all reduced axes, and infinities."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import IndexRangeError, ShapeError
from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.jit.compiler.compile import Kernel
from tenon_cpu.jit.eager_ops import pooling as eager_pooling

BACKEND = tenon.zeros(1)._backend
pytestmark = pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}")
NAN, INF = np.float32("nan"), np.float32("inf")


@pytest.fixture
def rng():
    return np.random.default_rng(13)


@pytest.fixture
def used(monkeypatch):
    names: list[str] = []
    native = Kernel.native

    def noted(kernel):
        names.append(kernel.__name__)
        return native(kernel)

    monkeypatch.setattr(Kernel, "native", noted)
    return names


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def kernel(name):
    return BACKEND.kernels[getattr(ops, name)]


CONDITIONS = {
    "as-large": (7, 11, 131),
    "repeated": (11, 131),
    "repeated-by-ones": (1, 11, 131),
    "last-axis": (131,),
    "one": (1, 1, 1),
    "none": (),
}


@pytest.mark.together
@pytest.mark.parametrize("shape", CONDITIONS.values(), ids=CONDITIONS)
@pytest.mark.parametrize("number", [0, -0.0, -INF.item(), NAN.item(), 3, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_where_of_an_array_and_a_number(rng, used, shape, number, swapped):
    condition, x = np.asarray(rng.random(shape) < 0.5), normal(rng, 7, 11, 131)
    x[0, 0, :4] = [NAN, INF, -INF, -0.0]
    pair = (number, x) if swapped else (x, number)

    made = kernel("where")(condition, *pair)

    expected = np.where(condition, *(np.float32(v) if v is number else v for v in pair))
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made.view(np.int32), expected.view(np.int32))
    assert used in (["put"], ["put_rows"])


def test_where_of_two_arrays(rng, used):
    condition, x, y = rng.random((91, 133)) < 0.5, normal(rng, 91, 133), normal(rng, 133, 91).T

    np.testing.assert_array_equal(kernel("where")(condition, x, y), np.where(condition, x, y))
    assert used == ["choose"]


@pytest.mark.parametrize(
    ("condition", "x", "y"),
    [((91, 1), (91, 133), None), ((91, 133), (1, 133), (91, 133)), ((91, 133), (91, 133), (133,))],
)
def test_where_that_broadcasts_otherwise_is_numpys(rng, used, condition, x, y):
    gate, a = rng.random(condition) < 0.5, normal(rng, *x)
    b = 2.0 if y is None else normal(rng, *y)

    made = kernel("where")(gate, a, b)

    np.testing.assert_array_equal(made, np.where(gate, a, np.float32(b) if y is None else b))
    assert not used


def test_where_keeps_other_dtypes(rng, used):
    gate = rng.random(10_000) < 0.5

    assert kernel("where")(gate, rng.random(10_000), 0).dtype == np.float64
    assert kernel("where")(gate, np.arange(10_000), 0).dtype == np.int64
    assert kernel("where")(gate, normal(rng, 10_000), np.arange(10_000.0)).dtype == np.float64
    assert not used


REDUCED = [(2,), (1, 2), (0, 2), (0, 1, 2), (0, 1, 2, 3), (3,), (0, 2, 3), (2, 3), (1, 3), (0,), (0, 1)]


@pytest.mark.together
@pytest.mark.parametrize("axes", REDUCED, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_and_means(rng, name, axes, keepdims):
    shape = (5, 9, 7, 53) if 3 in axes else (9, 11, 131)
    x = normal(rng, *shape)

    made = kernel(name)(x, axes=axes, keepdims=keepdims)

    expected = getattr(np, name)(x.astype(np.float64), axis=axes, keepdims=keepdims)
    assert made.dtype == np.float32
    assert made.shape == expected.shape
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=2e-5)


def test_long_sums_are_accurate(used):
    x = np.full(10_000_001, 0.1, np.float32)

    made = kernel("sum")(x, axes=(0,))

    assert made == pytest.approx(float(np.float32(0.1)) * x.size, rel=1e-6)
    assert used == ["sum_outer_and_inner"]


@pytest.mark.parametrize(
    ("shape", "axes"), [((200_001, 2), (0,)), ((2, 300, 201, 3), (1, 2)), ((3000, 300), (0,))]
)
def test_sums_of_many_rows_are_accurate(rng, shape, axes):
    x = rng.random(shape, dtype=np.float32) + 1

    made = kernel("sum")(x, axes=axes)

    np.testing.assert_allclose(made, x.sum(axes, np.float64), rtol=1e-6)
    np.testing.assert_allclose(tenon.tensor(x).var(axes), x.var(axes, np.float64, ddof=1), rtol=1e-6)


def test_nan_and_infinity_reach_their_sums(rng, used):
    x = normal(rng, 100, 133)
    x[3, 5], x[4, 6], x[5, 7], x[5, 8] = NAN, INF, INF, -INF

    made = kernel("sum")(x, axes=(1,))

    assert np.isnan(made[[3, 5]]).all()
    assert made[4] == INF
    assert np.isfinite(np.delete(made, [3, 4, 5])).all()
    assert used == ["sum_outer_and_inner"]


@pytest.mark.parametrize(
    "shape", [(1, 9, 1, 1), (9, 1, 1), (5, 9, 7, 1), (1, 1, 1, 53), (), (1, 1, 1, 1), (53,)]
)
def test_sums_back_to_what_was_broadcast(rng, shape):
    x = normal(rng, 5, 9, 7, 53)

    made = kernel("sum_to")(x, shape=shape)

    expected = ops.sum_to.forward(np, x.astype(np.float64), shape=shape)
    assert made.shape == shape
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=2e-4)


def test_sums_of_other_dtypes_and_askew_arrays_are_numpys(rng, used):
    x = normal(rng, 100, 133)

    assert kernel("sum")(x.astype(np.float64), axes=(1,)).dtype == np.float64
    assert kernel("sum")(np.ones((100, 100), np.int64), axes=(1,)).dtype == np.int64
    np.testing.assert_allclose(kernel("sum")(x.T, axes=(1,)), x.T.sum(1), rtol=1e-6)
    assert not used


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, stride, padding, dilation, ceil",
    [(2, 2, 0, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 2, False), (5, 3, 2, 1, True), (2, 4, 0, 1, False)],
)
@pytest.mark.parametrize("length", [301, 64])
def test_maxima_of_lines_and_their_gradient(rng, used, kernel, stride, padding, dilation, ceil, length):
    layout = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    attrs = {name: (value,) for name, value in layout.items()} | {"ceil_mode": ceil}
    x = rng.integers(-9, 9, (6, 30, 2 * length)).astype(np.float32)[..., ::2]  # steps in memory, and ties
    x[0, 0, 5], x[1, 2, 20:29] = NAN, -INF
    out = BACKEND.kernels[ops.max_pool](x, **attrs)
    g = rng.integers(-50, 50, out.shape).astype(np.float32)

    made = BACKEND.kernels[ops.max_pool_grad](g, x, out, **attrs)

    np.testing.assert_array_equal(out, ops.max_pool.forward(np, x, **attrs))
    np.testing.assert_array_equal(made, ops.max_pool_grad.forward(np, g, x, out, **attrs))
    assert used == ["max_pool_1d", "max_pool_1d_grad"]
    wide = (a.astype(np.float64) for a in (g, x, out))
    np.testing.assert_array_equal(made, BACKEND.kernels[ops.max_pool_grad](*wide, **attrs))


def test_a_window_of_only_padding_gives_no_gradient(rng):
    attrs = {"kernel": (2,), "stride": (1,), "padding": (1,), "dilation": (2,), "ceil_mode": False}
    x = rng.standard_normal((100, 100, 1)).astype(np.float32)
    out = BACKEND.kernels[ops.max_pool](x, **attrs)

    made = BACKEND.kernels[ops.max_pool_grad](np.ones_like(out), x, out, **attrs)

    assert np.isneginf(out).all() and not made.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout",
    [
        {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)},
        {"kernel": (3, 2), "stride": (1, 3), "padding": (1, 0), "dilation": (2, 1)},
        {"kernel": (5, 5), "stride": (4, 4), "padding": (2, 2), "dilation": (1, 1), "ceil_mode": True},
        {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (9, 9)},
        {"kernel": (3, 2, 3), "stride": (2, 1, 2), "padding": (1, 1, 0), "dilation": (1, 2, 1)},
    ],
    ids=str,
)
def test_gradients_of_maxima_go_to_the_first_of_a_window_or_its_last_nan(rng, layout):
    shape = (3, 6, *(20, 41, 12)[: len(layout["kernel"])])
    x = rng.integers(-3, 4, shape).astype(np.float32)
    x[0, 1, 4:9], x[1, 2, 9:12], x[1, 0] = NAN, -INF, -INF
    x[2, 0, 3, 5] = NAN
    out = ops.max_pool.forward(np, x, **layout)
    g = rng.integers(-50, 50, out.shape).astype(np.float32)

    made = eager_pooling.max_pool_grad(g, x, out, **layout)

    np.testing.assert_array_equal(made, ops.max_pool_grad.forward(np, g, x, out, **layout))


@pytest.mark.parametrize("shape", [(700, 13), (9001,), (500, 3, 7)])
def test_segments_of_any_length_are_summed(rng, used, shape):
    x = rng.standard_normal((*shape[:-1], 2 * shape[-1])).astype(np.float32)[..., ::2]
    offsets = np.array([0, 3, 3, 200, 411])

    for end in (shape[0], shape[0] - 9, 411):
        made = BACKEND.kernels[ops.segment_sum](x, offsets, end=end)

        wide = ops.segment_sum.forward(np, x.astype(np.float64), offsets, end=end)
        assert made.dtype == np.float32
        np.testing.assert_allclose(made, wide, rtol=1e-5, atol=3e-4)
        np.testing.assert_array_equal(
            BACKEND.kernels[ops.segment_sum](x.astype(np.float64), offsets, end=end), wide
        )
    assert used == ["segment_sum"] * 3


@pytest.mark.parametrize("offsets", [[1, 5], [0, 9, 5], [0, 9999]])
def test_offsets_that_are_none_are_refused(rng, offsets):
    x = rng.standard_normal((700, 13)).astype(np.float32)

    with pytest.raises((ShapeError, IndexRangeError), match="offsets"):
        BACKEND.kernels[ops.segment_sum](x, np.array(offsets), end=700)


def test_no_segments_give_no_rows(rng):
    x = rng.standard_normal((700, 13)).astype(np.float32)

    made = BACKEND.kernels[ops.segment_sum](x, np.empty(0, np.int64), end=700)

    assert made.shape == (0, 13) and made.dtype == np.float32
