"""Compiled kernels equal the composites: values, gradients, NaN and infinity, for all layouts."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import IndexRangeError
from tenon_cpu.jit.compiler import compile as jit
from tenon_cpu.jit.compiler.compile import Kernel
from tenon_cpu.jit.loops import vectors

BACKEND = tenon.zeros(1)._backend
F = BACKEND.raw
pytestmark = [
    pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}"),
    pytest.mark.together,
]

NAN, INF = np.float32("nan"), np.float32("inf")
#: Odd widths, a single row, a single column, more rows than a block.
SHAPES = [(97, 133), (1, 9001), (9001, 1), (3, 5, 7, 91), (701, 16)]


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@pytest.fixture
def used(monkeypatch):
    """Names of the compiled kernels that ran."""
    names: list[str] = []
    native = Kernel.native

    def noted(kernel):
        names.append(kernel.__name__)
        return native(kernel)

    monkeypatch.setattr(Kernel, "native", noted)
    return names


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def reference(name, *args, **attrs):
    op = getattr(ops, name)
    if hasattr(op, "forward"):
        return op.forward(np, *args, **attrs)
    return op.raw_forward(F, *args, **attrs)


def kernel(name):
    return BACKEND.kernels[getattr(ops, name)]


def agree(name, *args, tolerance=1e-5, **attrs):
    """Compare the op's kernel with the composite, in float64 where the arguments are float32; return the result."""
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    wide = [a.astype(np.float64) if getattr(a, "dtype", None) == np.float32 else a for a in args]
    with np.errstate(all="ignore"):
        actual, expected = kernel(name)(*args, **attrs), reference(name, *wide, **attrs)
    several = isinstance(expected, tuple)
    for a, e in zip(actual, expected, strict=True) if several else [(actual, expected)]:
        assert np.shape(a) == np.shape(e)
        assert np.asarray(a).dtype == np.float32
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)
    for a, b in zip(args, before, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} changed an argument")
    return actual


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_and_its_logarithm(rng, used, name, shape):
    x, g = normal(rng, *shape) * 5, normal(rng, *shape)
    axis = len(shape) - 1

    out = agree(name, x, axis=axis, tolerance=2e-5 if shape[-1] > 1000 else 4e-6)
    agree(f"{name}_grad", g, out, axis=axis, tolerance=2e-3 if shape[-1] > 1000 else 1e-4)

    assert used == [name, f"{name}_grad"]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_rows_of_infinities_and_nan_come_out_as_their_parts_make_them(rng, used, name):
    x = np.zeros((2000, 5), np.float32)
    x[0], x[1], x[2], x[3] = -INF, INF, NAN, -NAN
    x[4, 2], x[5, 2], x[6, 2] = -INF, INF, NAN
    x[7] = [INF, -INF, 0, 1, 2]
    x[8] = [1.5e38, -1.5e38, 0, 1, 2]
    x[9] = [-100, -88, -87.5, -1e-30, 0]

    agree(name, x, axis=1, tolerance=1e-6)

    assert used == [name]


def test_far_below_the_maximum_softmax_is_exactly_zero():
    x = np.zeros((100, 100), np.float32)
    x[:, 1:] = -INF

    out = kernel("softmax")(x, axis=1)

    np.testing.assert_array_equal(out, np.isfinite(x).astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_and_its_gradient(rng, used, shape, affine):
    x, g = normal(rng, *shape) + 1, normal(rng, *shape)
    weight, bias = (normal(rng, shape[-1]), normal(rng, shape[-1])) if affine else (None, None)
    if shape[-1] == 1:
        x = np.zeros_like(x)  # what is left of a single value is rounding

    _, mean, deviation = agree("layer_norm", x, weight, bias, rank=1, tolerance=1e-4)
    needs = (True, affine, affine)
    made = kernel("layer_norm_grad")(g, x, weight, mean, deviation, rank=1, needs=needs)
    wide = [None if a is None else a.astype(np.float64) for a in (g, x, weight, mean, deviation)]
    expected = reference("layer_norm_grad", *wide, rank=1, needs=needs)
    for m, e, needed in zip(made, expected, needs, strict=True):
        if needed:
            scale = max(np.abs(e).max(), 1)
            np.testing.assert_allclose(m / scale, e / scale, rtol=1e-4, atol=1e-4 if shape[-1] == 1 else 1e-5)

    name = "layer_norm" if affine else "standardise"
    assert used == [name, f"{name}_grad"]


def test_layer_norm_over_two_axes(rng, used):
    x, g = normal(rng, 40, 11, 23), normal(rng, 40, 11, 23)
    weight, bias = normal(rng, 11, 23), normal(rng, 11, 23)

    _, mean, deviation = agree("layer_norm", x, weight, bias, rank=2, tolerance=1e-5)
    agree("layer_norm_grad", g, x, weight, mean, deviation, rank=2, needs=(True,) * 3, tolerance=1e-4)

    assert used == ["layer_norm", "layer_norm_grad"]


def test_one_bad_row_leaves_the_others_of_layer_norm_alone(rng):
    x = normal(rng, 200, 64)
    x[3, 5], x[4, 5], x[5, 5] = NAN, INF, -INF

    out = agree("layer_norm", x, None, None, rank=1, tolerance=1e-5)[0]

    assert np.isnan(out[3:6]).all()
    assert np.isfinite(np.delete(out, [3, 4, 5], 0)).all()


@pytest.mark.parametrize("shape", [(128, 10), (33, 257), (1, 5000), (5000, 1)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [True, False])
def test_cross_entropy_and_its_gradient(rng, used, shape, reduction, weighted):
    x, target = normal(rng, *shape) * 3, rng.integers(0, shape[1], shape[0])
    target[::7] = -100
    if shape[0] == 1:
        target[0] = 17
    weight = np.abs(normal(rng, shape[1])) if weighted else None
    g = np.float32(0.7) if reduction != "none" else normal(rng, shape[0])

    _, total = agree("cross_entropy", x, target, weight, reduction=reduction, tolerance=2e-5)
    agree("cross_entropy_grad", g, x, total, target, weight, reduction=reduction, tolerance=2e-5)

    assert used == ["cross_entropy", "cross_entropy_grad"]


def test_cross_entropy_of_infinite_scores(rng, used):
    x, target = normal(rng, 200, 7), rng.integers(0, 7, 200)
    x[0], x[1, 2], x[2, 2], x[3, 2], x[4], x[5] = -INF, -INF, INF, NAN, INF, NAN
    x[6] = [INF, NAN, 0, 0, 0, 0, 0]
    target[:7] = [0, 2, 2, 3, 0, 0, 3]

    _, total = agree("cross_entropy", x, target, None, reduction="none")
    agree("cross_entropy_grad", np.ones(200, np.float32), x, total, target, None, reduction="none")

    assert used == ["cross_entropy", "cross_entropy_grad"]


def test_cross_entropy_of_absent_targets_only(rng):
    x, target = normal(rng, 200, 7), np.full(200, -100)

    loss, total = kernel("cross_entropy")(x, target, None)

    assert np.isnan(loss)
    assert not kernel("cross_entropy_grad")(np.float32(1), x, total, target, None).any()


@pytest.mark.parametrize("bad", [-1, 7])
def test_cross_entropy_names_a_target_outside_the_classes(rng, bad):
    target = np.zeros(200, np.int64)
    target[150] = bad

    with pytest.raises(IndexRangeError, match=f"Target {bad} is out of bounds"):
        kernel("cross_entropy")(normal(rng, 200, 7), target, None)


@pytest.mark.parametrize("count", [8192, 8193, 10007, 200003])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_its_slope(used, count, approximate):
    x = np.linspace(-14, 14, count, dtype=np.float32)

    agree("gelu", x, approximate=approximate, tolerance=1e-6)

    assert used == ["gelu" if approximate == "none" else "gelu_tanh"]


def test_silu_and_its_slope(used):
    x = np.concatenate([np.linspace(-120, 120, 10007, dtype=np.float32), np.float32([1e38, -1e38, 0, -0.0])])

    agree("silu", x, tolerance=1e-6)

    assert used == ["silu"]


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "attrs"), [("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {})], ids=str
)
def test_without_gradients_activations_leave_their_slopes_out(name, attrs, dtype):
    op = ops.__getattr__(name)
    x = np.linspace(-14, 14, 10007, dtype=np.float32).astype(
        tenon.zeros(1, dtype=getattr(tenon, dtype)).raw.dtype
    )
    x[:3] = NAN, INF, -INF
    whole = BACKEND.kernel_for(op, (x,))

    made = BACKEND.for_values(op, whole)(x, **attrs)

    assert len(made) == 1
    found, expected = (m.astype(np.float32) for m in (made[0], whole(x, **attrs)[0]))
    np.testing.assert_allclose(found, expected, rtol=1e-2 if dtype == "bfloat16" else 1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_nan_passes_through_activations(name):
    x = np.zeros(10000, np.float32)
    x[7], x[9000] = NAN, -NAN

    out, slope = kernel(name)(x)

    assert np.flatnonzero(np.isnan(out)).tolist() == [7, 9000]
    assert np.flatnonzero(np.isnan(slope)).tolist() == [7, 9000]


def test_closed_gates_give_zero_even_to_infinite_gradients(rng, used):
    g, out = normal(rng, 101, 103), np.maximum(normal(rng, 101, 103), 0)
    g[0], g[1], out[2] = INF, NAN, NAN

    agree("relu_grad", g, out)

    assert used == ["relu_grad"]


@pytest.mark.parametrize("shape", [(300,), (7, 43), (1, 301)])
def test_rows_by_index_and_their_sums(rng, used, shape):
    table, indices = normal(rng, 37, 41), rng.integers(0, 37, shape)
    g = normal(rng, *shape, 41)

    agree("embedding", table, indices)
    agree("embedding_grad", g, indices, rows=37)
    agree("embedding_grad", g, indices, rows=37, padding_idx=5)

    assert used == ["gather", "scatter_add", "scatter_add"]


@pytest.mark.parametrize("bad", [-1, 37])
def test_an_index_outside_the_table_is_named(rng, bad):
    indices = rng.integers(0, 37, 300)
    indices[299] = bad

    with pytest.raises(IndexRangeError, match=f"got index {bad}"):
        kernel("embedding")(normal(rng, 37, 41), indices)


POOL = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False}


@pytest.mark.parametrize("shape", [(3, 5, 24, 26), (2, 7, 25, 27), (1, 1, 2, 5000), (3000, 2, 2, 2)])
def test_max_pooling_by_two_and_its_gradient(rng, used, shape):
    x = normal(rng, *shape).round(1)  # with ties
    x[0, 0, 0, 0], x[0, 0, 1, 1], x[-1, -1, 0, 1] = NAN, INF, -INF

    out = agree("max_pool", x, **POOL)
    agree("max_pool_grad", normal(rng, *out.shape), x, out, **POOL)

    assert used == ["max_pool_2x2", "max_pool_2x2_grad"]


def lying_differently(x):
    """The same values in other layouts: reversed columns, other strides, read-only, misaligned, byte-swapped."""
    wide = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    yield wide[..., ::2]
    yield np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    yield np.asfortranarray(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    yield frozen
    shifted = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    yield shifted


def test_arrays_in_other_memory_orders_give_the_same(rng, used):
    x, g = normal(rng, 97, 133), normal(rng, 97, 133)
    out = kernel("softmax")(x, axis=1)
    expected = [
        out,
        kernel("softmax_grad")(g, out, axis=1),
        kernel("gelu")(x)[0],
        kernel("layer_norm")(x, None, None, rank=1)[0],
    ]
    used.clear()

    for other, slope in zip(lying_differently(x), lying_differently(g), strict=True):
        actual = [
            kernel("softmax")(other, axis=1),
            kernel("softmax_grad")(slope, out, axis=1),
            kernel("gelu")(other)[0],
            kernel("layer_norm")(other, None, None, rank=1)[0],
        ]
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(a, e)

    assert used == ["softmax", "softmax_grad", "gelu", "standardise"] * 5


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_dtypes_keep_theirs(rng, used, dtype):
    x = tenon.tensor(normal(rng, 97, 133)).to(getattr(tenon, dtype)).requires_grad_()

    made = tenon.nn.functional.gelu(tenon.nn.functional.layer_norm(x.softmax(-1), (133,)))
    made.sum().backward()

    assert made.dtype == x.grad.dtype == getattr(tenon, dtype)
    if dtype == "float64":
        assert used == []


def test_nothing_is_nothing():
    nothing = np.empty((0, 5), np.float32)

    assert kernel("softmax")(nothing, axis=1).shape == (0, 5)
    assert kernel("gelu")(nothing)[0].shape == (0, 5)
    assert kernel("embedding")(nothing.reshape(5, 0), np.zeros(9000, np.int64)).shape == (9000, 0)


def test_parameters_of_the_wrong_size_never_reach_the_compiled_loop(rng, used):
    x = normal(rng, 100, 100)

    with pytest.raises(ValueError):
        kernel("layer_norm")(x, normal(rng, 99), None, rank=1)
    with pytest.raises(ValueError):
        kernel("softmax_grad")(x, normal(rng, 100, 101), axis=1)

    assert not used


def test_gradients_through_compiled_kernels_equal_differences(rng):
    x = tenon.tensor(normal(rng, 96, 96), requires_grad=True)
    target = tenon.tensor(rng.integers(0, 96, 96))
    weight, bias = (tenon.tensor(normal(rng, 96), requires_grad=True) for _ in range(2))

    def loss(shift=0.0):
        made = tenon.nn.functional.layer_norm(x + shift * direction, (96,), weight, bias)
        return tenon.nn.functional.cross_entropy(tenon.nn.functional.gelu(made), target)

    direction = tenon.tensor(normal(rng, 96, 96))
    loss().backward()

    slope = (loss(5e-3) - loss(-5e-3)).item() / 1e-2
    assert slope == pytest.approx((x.grad * direction).sum().item(), rel=2e-2)


def test_second_order_goes_through_the_parts(rng):
    x = tenon.tensor(normal(rng, 96, 96), requires_grad=True)

    (first,) = tenon.autograd.grad(tenon.nn.functional.gelu(x).sum(), x, create_graph=True)
    (second,) = tenon.autograd.grad(first.sum(), x)

    wide = x.detach().double().requires_grad_()
    (first,) = tenon.autograd.grad(tenon.nn.functional.gelu(wide).sum(), wide, create_graph=True)
    (expected,) = tenon.autograd.grad(first.sum(), wide)
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["exp", "exp_below", "sigmoid"])
def test_vectors_functions_are_right_to_a_few_units_in_the_last_place(name):
    function = getattr(vectors, name)
    source = "def run(x, out):\n    for i in range(x.size):\n        out[i] = function(x[i])\n"
    run = jit.compiled(source, "run", "void(float32[::1], float32[::1])", {"function": function})
    x = np.linspace(-87, 0 if name == "exp_below" else 88, 100003, dtype=np.float32)
    out = np.empty_like(x)

    run(x, out)

    exact = {"sigmoid": lambda v: 1 / (1 + np.exp(-v))}.get(name, np.exp)(x.astype(np.float64))
    assert np.max(np.abs(out - exact) / np.spacing(exact.astype(np.float32))) < 4
