"""Fused clusters equal their ops run one by one: random graphs, layouts, dtypes and special values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tenon.ops  # noqa: F401  (fills the op table)
from tenon.errors import ArgumentError, NotFusableError
from tenon.graph.cluster import Builder, Namespace
from tenon.graph.fused import fused
from tenon.kernels.backend import backend_named

pytest.importorskip("llvmlite")

from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.fusion import clusters

pytestmark = pytest.mark.together

UNARY = ("neg", "abs", "relu", "tanh", "sigmoid", "square", "sign", "floor")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
REDUCE = ("sum", "mean", "amax", "amin")
RELAXED = settings(
    max_examples=16, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def expected(cluster, arrays):
    with np.errstate(all="ignore"):
        return fused.forward(backend_named("cpu"), *arrays, cluster=cluster)


def run(cluster, arrays, outs=None):
    kernel = clusters.fuse(cluster)
    if kernel is None:
        return None
    avals = [cluster.aval(r) for r in cluster.outputs]
    outs = [np.full(a.shape, 7, a.dtype) for a in avals] if outs is None else outs
    kernel(*arrays, *outs)
    return outs


def same(made, wanted, digits=2e-5):
    wanted = np.asarray(wanted)
    assert made.dtype == wanted.dtype and made.shape == wanted.shape
    if wanted.dtype.kind not in "fV":
        assert np.array_equal(made, wanted)
        return
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    assert np.allclose(a, b, rtol=digits, atol=digits * (1 + finite.max(initial=0)), equal_nan=True)


def compare(cluster, arrays):
    made = run(cluster, arrays)
    if made is not None:
        for m, w in zip(made, expected(cluster, arrays), strict=True):
            same(m, w)
    return made is not None


def laid_out(rng, shape, dtype, layout):
    """Values in memory that is contiguous, transposed, strided, or reversed."""
    values = np.asarray(rng.standard_normal(shape) * 2)
    values = values.astype(dtype)
    if layout == "special" and values.size > 2 and dtype.startswith("float"):
        values.reshape(-1)[:3] = [np.nan, np.inf, -np.inf]
    if layout == "transposed" and shape:
        return np.ascontiguousarray(values.T).T
    if layout == "spread" and shape:
        wide = np.zeros((*shape[:-1], shape[-1] * 2), values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    return values[::-1] if layout == "backwards" and shape else values


@st.composite
def graphs(draw, reductions):
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 40]), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(["float32", "float32", "float64"]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    layouts = st.sampled_from(["plain", "plain", "special", "transposed", "spread", "backwards"])
    builder = Builder()
    f = Namespace(builder)
    arrays, values = [], []
    for position in range(draw(st.integers(1, 3))):
        own = shape
        if position:
            kept = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
            own = tuple(s if k else 1 for s, k in zip(shape, kept, strict=True))[
                draw(st.integers(0, len(shape))) :
            ]
        arrays.append(laid_out(rng, own, dtype, draw(layouts)))
        values.append(builder.input(own, dtype))
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(
            st.sampled_from(["unary", "binary", "binary", "where", "reduce" if reductions else "unary"])
        )
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from([*values, 0.5, 2]))
        try:
            if kind == "unary":
                made = getattr(f, draw(st.sampled_from(UNARY)))(x)
            elif kind == "binary":
                made = getattr(f, draw(st.sampled_from(BINARY)))(x, y)
            elif kind == "where":
                made = f.where(f.gt(x, 0.25), x, y)
            else:
                axes = tuple(i for i in range(x.ndim) if draw(st.booleans()))
                keep = draw(st.booleans())
                made = getattr(f, draw(st.sampled_from(REDUCE)))(x, axes=axes, keepdims=keep)
        except (NotFusableError, ValueError):
            continue
        values.append(made)
    outs = values[len(arrays) :]
    assume(outs)
    return builder.build(outs[-draw(st.integers(1, 3)) :]), arrays


@RELAXED
@given(graphs(reductions=False))
def test_random_elementwise_graphs_fuse_to_the_same_values(graph):
    cluster, arrays = graph

    assert compare(cluster, arrays)


@RELAXED
@given(graphs(reductions=True))
def test_random_graphs_with_reductions_fuse_to_the_same_values(graph):
    compare(*graph)


def built(shapes, rule, dtype="float32"):
    builder = Builder()
    made = rule(Namespace(builder), *[builder.input(s, dtype) for s in shapes])
    return builder.build(made if isinstance(made, tuple) else (made,))


def draw_all(shapes, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def softmax(f, x):
    e = f.exp(f.sub(x, f.amax(x, axes=(1,), keepdims=True)))
    return f.div(e, f.sum(e, axes=(1,), keepdims=True))


def softmax_grad(f, g, y):
    return f.mul(y, f.sub(g, f.sum(f.mul(g, y), axes=(1,), keepdims=True)))


def log_softmax(f, x):
    s = f.sub(x, f.amax(x, axes=(1,), keepdims=True))
    return f.sub(s, f.log(f.sum(f.exp(s), axes=(1,), keepdims=True)))


def rms_norm(f, x, w):
    return f.mul(f.mul(x, f.rsqrt(f.add(f.mean(f.square(x), axes=(1,), keepdims=True), 1e-5))), w)


def layer_norm(f, x, w, b):
    return f.layer_norm(x, w, b, rank=1)


def layer_norm_grad(f, g, x, w, mean, deviation):
    return f.layer_norm_grad(g, x, w, mean, deviation, rank=1, needs=(True, True, True))


def batch_norm(f, x, w, b):
    return f.batch_norm(x, w, b)


def loss(f, x, y):
    d = f.sub(x, y)
    return f.mean(f.mul(d, d), axes=(0, 1)), f.mul(d, 2.0 / (x.shape[0] * x.shape[1]))


def norm(f, x):
    return f.sqrt(f.sum(f.mul(x, x), axes=(0,)))


def bias_gelu_grad(f, g, slope):
    made = f.mul(g, slope)
    return made, f.sum(made, axes=(0,))


def column_scale(f, x):
    return f.mul(f.sum(x, axes=(0,)), 0.5), f.sqrt(f.mean(f.square(x), axes=(0, 1)))


CASES = {
    "softmax": (softmax, lambda n, c: [(n, c)]),
    "softmax gradient": (softmax_grad, lambda n, c: [(n, c)] * 2),
    "log softmax": (log_softmax, lambda n, c: [(n, c)]),
    "rms norm": (rms_norm, lambda n, c: [(n, c), (c,)]),
    "layer norm": (layer_norm, lambda n, c: [(n, c), (c,), (c,)]),
    "layer norm gradient": (layer_norm_grad, lambda n, c: [(n, c), (n, c), (c,), (n, 1), (n, 1)]),
    "loss": (loss, lambda n, c: [(n, c)] * 2),
    "norm": (norm, lambda n, c: [(n * c,)]),
    "bias and gradient": (bias_gelu_grad, lambda n, c: [(n, c)] * 2),
    "columns": (column_scale, lambda n, c: [(n, c)]),
}


@pytest.mark.parametrize(
    "size",
    [
        (33, 64),
        (1, 7),
        *(pytest.param(size, marks=pytest.mark.slow) for size in ((3, 5), (70, 1), (257, 1000), (5, 9000))),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", CASES)
def test_rows_and_columns_of_any_size(name, size):
    rule, shapes = CASES[name]

    assert compare(built(shapes(*size), rule), draw_all(shapes(*size)))


@pytest.mark.parametrize("shape", [(4, 3, 10), (8, 16, 5, 5)], ids=str)
def test_batch_norm_reduces_the_axes_around_the_channels(shape):
    shapes = [shape, (shape[1],), (shape[1],)]
    cluster = built(shapes, batch_norm)

    assert compare(cluster, draw_all(shapes))


@pytest.mark.parametrize("name", ["softmax", "layer norm", "layer norm gradient", "loss"])
def test_infinities_and_nan_stay_in_their_rows(name):
    rule, shapes = CASES[name]
    arrays = draw_all(shapes(6, 40))
    arrays[0][1, 3], arrays[0][2, 5], arrays[0][3, 0] = np.nan, np.inf, -np.inf

    assert compare(built(shapes(6, 40), rule), arrays)


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "amax", "amin", "any", "all"])
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        *(
            pytest.param(dtype, marks=pytest.mark.slow)
            for dtype in ("float64", "int32", "int64", "uint8", "bool", "float16")
        ),
    ],
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_every_reduction_of_every_dtype_is_numpys_or_left_alone(op, dtype, axes):
    x = laid_out(np.random.default_rng(0), (7, 33), "float64", "plain") * 3
    x = 1 + x / 90 if op == "prod" and dtype.startswith("float") else x
    x = x.astype(dtype) if dtype != "bool" else x > -4
    builder = Builder()
    try:
        cluster = builder.build([getattr(Namespace(builder), op)(builder.input(x.shape, x.dtype), axes=axes)])
    except NotFusableError:
        return
    made = run(cluster, [x])
    if made is not None:
        wanted = getattr(backend_named("cpu").raw, op)(x, axes=axes)
        same(made[0], np.asarray(wanted).astype(made[0].dtype), digits=2e-3 if dtype == "float16" else 2e-5)


@pytest.mark.parametrize(("size", "units"), [(4099, 4), (1 << 17, 1.1), (1_000_003, 1.1)])
def test_sums_are_accurate_to_a_few_units_in_the_last_place(size, units):
    """NumPy's pairwise sums of such numbers are up to 1.04 units off. Short ones are one run of additions in each
    lane here, the shorter the more lanes a processor has: up to 0.9 units with 16 lanes, 1.5 with 8, 3.0 with 4."""
    rng = np.random.default_rng(0)
    x = (rng.random(size) + 0.1).astype(np.float32)
    (made,) = run(built([(size,)], lambda f, v: f.sum(v, axes=(0,))), [x])
    exact = x.astype(np.float64).sum()

    assert abs(made - exact) <= units * np.spacing(np.float32(exact))


def test_column_sums_of_many_rows_are_accurate():
    x = (np.random.default_rng(0).random((20000, 8)) + 0.5).astype(np.float32)
    (made,) = run(built([x.shape], lambda f, v: f.sum(v, axes=(0,))), [x])

    assert np.allclose(made, x.astype(np.float64).sum(0), rtol=1e-6)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    shapes = [(513, 300), (513, 300), (300,), (513, 1), (513, 1)]
    arrays, results = draw_all(shapes), []
    llvm.compiler()
    for threads in (1, 2, 3):
        monkeypatch.setattr(llvm._team, "value", threads)
        results.append([o.tobytes() for o in run(built(shapes, layer_norm_grad), arrays)])

    assert results[0] == results[1] == results[2]


def test_sizes_of_zero_need_no_work():
    made = run(built([(0, 5), (5,)], lambda f, x, y: f.add(x, y)), draw_all([(0, 5), (5,)]))

    assert made[0].shape == (0, 5)


def test_numbers_are_read_anew_at_every_call():
    builder = Builder()
    x, n = builder.input((50,), np.float32), builder.number()
    kernel = clusters.fuse(builder.build([x * n]))
    given_x, out = np.ones(50, np.float32), np.empty(50, np.float32)
    place = np.zeros(())
    bound = kernel.bind(given_x, place, out)
    for value in (2.0, 3.5):
        place[()] = value
        bound()
        assert out[7] == value
    kernel(given_x, 4.0, out)
    assert out[0] == 4.0


def test_an_output_may_share_memory_with_an_input_of_an_elementwise_cluster():
    x, y = draw_all([(300, 7), (300, 7)])
    cluster = built([(300, 7)] * 2, lambda f, a, b: (f.add(a, b), f.sub(a, b)))
    wanted = (x + y, x - y)
    run(cluster, [x, y], [x, y])

    assert np.array_equal(x, wanted[0]) and np.array_equal(y, wanted[1])


def test_a_reduction_refuses_to_overwrite_what_it_reads():
    x = draw_all([(4, 8)])[0]

    with pytest.raises(NotFusableError, match="overwrite"):
        clusters.fuse(built([(4, 8)], softmax)).bind(x, x)


def test_arrays_of_another_shape_are_refused_by_name():
    kernel = clusters.fuse(built([(4, 8)], softmax))

    with pytest.raises(ArgumentError, match=r"float32\[4, 9\]"):
        kernel(np.zeros((4, 9), np.float32), np.zeros((4, 9), np.float32))


def test_a_matrix_that_meets_its_own_row_sums_across_is_left_alone():
    cluster = built([(6, 6)], lambda f, x: f.add(x, f.sum(x, axes=(1,))))

    assert clusters.fuse(cluster) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_floats_are_computed_in_float32(dtype):
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = draw_all([(40, 33)])[0].astype(kind)
    (made,) = run(built([x.shape], softmax, kind), [x])
    wide = x.astype(np.float32)
    e = np.exp(wide - wide.max(1, keepdims=True))

    assert np.allclose(made.astype(np.float32), e / e.sum(1, keepdims=True), rtol=1e-2)


def test_integers_and_booleans_compute_as_numpys():
    x, y = np.arange(-8, 8, dtype=np.int32), np.arange(16, dtype=np.int32)[::-1].copy()
    builder = Builder()
    f = Namespace(builder)
    a, b = builder.input((16,), np.int32), builder.input((16,), np.int32)
    mask = f.logical_and(f.gt(a, b), f.ne(a, 0))
    cluster = builder.build(
        [f.where(mask, a * b, f.neg(a)), f.bitwise_xor(a, b), f.cast(mask, dtype=np.dtype("int64"))]
    )

    for made, wanted in zip(run(cluster, [x, y]), expected(cluster, [x, y]), strict=True):
        same(made, wanted)


def test_a_cluster_prints_its_steps():
    text = str(built([(4, 8)], softmax))

    assert "%1: float32[4, 1] = amax(%0, axes=(1,), keepdims=True)" in text and text.endswith("return %5")


def test_views_that_only_add_axes_of_size_1_are_part_of_a_cluster():
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    cluster = built([(4, 8)], lambda f, x: f.unsqueeze(f.exp(x), shape=(4, 1, 8)))

    same(run(cluster, [x])[0], np.exp(x)[:, None])
    assert [step.op for step in cluster.steps] == ["exp", "reshape"]


def test_a_view_that_moves_elements_between_axes_is_left_alone():
    with pytest.raises(NotFusableError, match="moves elements"):
        built([(4, 8)], lambda f, x: f.view(f.exp(x), shape=(8, 4)))
