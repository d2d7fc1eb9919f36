"""Prepared products: one call per step on the same memory, with fused epilogues."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from bfloat import BFLOAT, FLOATS, in_bfloat

from tenon import ops
from tenon_cpu.backend import CpuBackend
from tenon_cpu.onednn.prepared_matmul import PREPARE
from tenon_cpu.onednn.runtime import available

pytestmark = [pytest.mark.skipif(not available(), reason=available().reason), pytest.mark.together]

DTYPES = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def values(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def close(made, expected, dtype=np.float32):
    rtol, atol = (1e-5, 1e-4) if dtype is np.float32 else (2e-2, 2e-1)
    np.testing.assert_allclose(made.astype(np.float64), expected, rtol=rtol, atol=atol)


def wide(*arrays):
    return [a.astype(np.float64) for a in arrays]


@DTYPES
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((48, 40), (40, 56)),
        ((3, 24, 40), (40, 56)),
        ((2, 3, 24, 40), (2, 3, 40, 32)),
        ((2, 1, 24, 40), (3, 40, 32)),
        ((24, 40), (3, 40, 32)),
    ],
)
def test_a_prepared_product_reads_its_memory_anew_at_every_call(dtype, a, b):
    x, y = values(0, *a, dtype=dtype), values(1, *b, dtype=dtype)
    out = np.empty(np.matmul(x.astype("f"), y.astype("f")).shape, dtype)
    call = PREPARE["matmul"]((x, y), {}, (out,))

    for seed in (2, 3):
        x[:] = values(seed, *a, dtype=dtype)
        call()
        close(out, np.matmul(*wide(x, y)), dtype)


@DTYPES
def test_operands_and_output_may_be_transposed_or_parts_of_a_larger_array(dtype):
    x, y = values(0, 40, 48, dtype=dtype).T, values(1, 56, 40, dtype=dtype).T
    around = np.zeros((48, 100), dtype)
    out = around[:, 20:76]

    PREPARE["matmul"]((x, y), {}, (out,))()

    close(out, np.matmul(*wide(x, y)), dtype)
    assert not around[:, :20].any() and not around[:, 76:].any()


@DTYPES
@pytest.mark.parametrize("rows", [1, 2, 5, 64])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("constant", [(), (1,)])
def test_linear_with_bias_and_packed_weights(dtype, rows, biased, constant):
    x, w = values(0, rows, 96, dtype=dtype), values(1, 80, 96, dtype=dtype)
    bias = values(2, 80, dtype=dtype) if biased else None
    out = np.empty((rows, 80), dtype)
    call = PREPARE["linear"]((x, w, bias), {"constant": constant, "epilogue": (("mul", 2.0),)}, (out,))

    call()

    expected = np.matmul(*wide(x, w.T)) + (0 if bias is None else bias.astype(np.float64))
    close(out, 2 * expected, dtype)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ROW, COLUMN, FULL, MASK = (
    values(5, 56), values(6, 2, 3, 48, 1), values(7, 2, 3, 48, 56), values(8, 48, 56),
)  # fmt: skip
EPILOGUES = {
    "relu": ((("relu",),), lambda z: np.maximum(z, 0)),
    "gelu": ((("gelu_tanh",),), gelu),
    "tanh": ((("tanh",),), np.tanh),
    "logistic": ((("logistic",),), lambda z: 1 / (1 + np.exp(-z))),
    "scale": ((("mul", 0.125),), lambda z: z * 0.125),
    "number": ((("add", 3.0), ("sub", 1)), lambda z: z + 2),
    "row": ((("add", ROW),), lambda z: z + ROW),
    "column": ((("mul", COLUMN),), lambda z: z * COLUMN),
    "residual": ((("add", FULL),), lambda z: z + FULL),
    "mask": ((("mul", 0.5), ("add", MASK)), lambda z: 0.5 * z + MASK),
    "chain": (
        (("add", ROW), ("gelu_tanh",), ("mul", COLUMN), ("add", FULL)),
        lambda z: gelu(z + ROW) * COLUMN + FULL,
    ),
    "after relu": ((("add", ROW), ("relu",), ("add", FULL)), lambda z: np.maximum(z + ROW, 0) + FULL),
}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("batched", [True, False])
def test_epilogues_are_applied_in_order(name, batched):
    epilogue, follow = EPILOGUES[name]
    x, y = values(0, 2, 3, 48, 40), values(1, *((2, 3) if batched else ()), 40, 56)
    out = np.empty((2, 3, 48, 56), np.float32)
    call = PREPARE["matmul"]((x, y), {"epilogue": epilogue}, (out,))

    call()

    close(out, follow(np.matmul(*wide(x, y))))


@DTYPES
def test_a_sum_adds_to_what_the_output_held(dtype):
    x, y, out = (values(i, 48, 48, dtype=dtype) for i in range(3))
    before = out.astype(np.float64)

    PREPARE["matmul"]((x, y), {"epilogue": (("sum",),)}, (out,))()

    close(out, before + np.matmul(*wide(x, y)), dtype)


@pytest.mark.parametrize(
    "step", [("relu",), ("tanh",), ("logistic",), ("gelu_tanh",), ("abs",), ("square",), ("swish", 1.0)]
)
def test_nan_and_infinity_pass_through_the_curves(step):
    x = np.zeros((16, 16), np.float32)
    special = np.zeros((16, 16), np.float32)
    special[0, :5] = np.nan, np.inf, -np.inf, 1e30, -1e30
    out = np.empty_like(x)
    curve = {
        "relu": lambda z: np.maximum(z, 0),
        "tanh": np.tanh,
        "logistic": lambda z: 1 / (1 + np.exp(-z)),
        "gelu_tanh": gelu,
        "abs": np.abs,
        "square": np.square,
        "swish": lambda z: z * (1 / (1 + np.exp(-z))),
    }[step[0]]

    PREPARE["matmul"]((x, x), {"epilogue": (("add", special), step)}, (out,))()

    with np.errstate(all="ignore"):
        np.testing.assert_allclose(out, curve(special), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["clip", "exp", "gelu_erf", "max", "relux"])
def test_curves_that_lose_nan_or_are_unknown_are_refused(name):
    x, out = values(0, 48, 48), np.empty((48, 48), np.float32)

    assert PREPARE["matmul"]((x, x), {"epilogue": ((name,),)}, (out,)) is None


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.5, 1), (2, 0)])
def test_addmm(alpha, beta):
    x, a, b, out = values(0, 56), values(1, 48, 40), values(2, 40, 56), np.empty((48, 56), np.float32)

    PREPARE["addmm"]((x, a, b), {"alpha": alpha, "beta": beta}, (out,))()

    close(out, beta * x + alpha * np.matmul(*wide(a, b)))


@in_bfloat
def test_bfloat16_operands_may_give_a_float32_result():
    x, y, out = (
        values(0, 48, 40, dtype=BFLOAT),
        values(1, 40, 56, dtype=BFLOAT),
        np.empty((48, 56), np.float32),
    )

    PREPARE["matmul"]((x, y), {}, (out,))()

    close(out, np.matmul(*wide(x, y)))


@pytest.mark.parametrize(
    ("x", "y", "out"),
    [
        (np.ones((48, 0), "f"), np.ones((0, 48), "f"), np.empty((48, 48), "f")),
        (np.ones((48, 48)), np.ones((48, 48)), np.empty((48, 48))),
        (np.ones((48, 48), "f"), np.ones((48, 48), BFLOAT), np.empty((48, 48), "f")),
        (np.ones((48, 48), "f")[::-1], np.ones((48, 48), "f"), np.empty((48, 48), "f")),
        (np.ones((48, 48), "f"), np.ones((48, 48), "f"), np.empty((48, 48), "f").T),
        (np.ones((48, 48), "f"), np.ones((47, 48), "f"), np.empty((48, 48), "f")),
        (np.ones((4, 4), "f"), np.ones((4, 4), "f"), np.empty((4, 4), "f")),
        (2.0, np.ones((48, 48), "f"), np.empty((48, 48), "f")),
    ],
    ids=["empty", "float64", "mixed", "reversed", "output by columns", "sizes", "small", "a number"],
)
def test_the_rest_is_left_to_the_eager_kernel(x, y, out):
    assert PREPARE["matmul"]((x, y), {}, (out,)) is None


def test_a_product_never_overwrites_what_it_reads():
    x = values(0, 48, 48)

    assert PREPARE["matmul"]((x, values(1, 48, 48)), {}, (x,)) is None


@in_bfloat
@pytest.mark.parametrize(("a", "b"), [((512,), (512, 600)), ((600, 512), (512,))])
def test_vectors_in_bfloat16(a, b):
    x, y = values(0, *a, dtype=BFLOAT), values(1, *b, dtype=BFLOAT)
    out = np.empty((600,), BFLOAT)

    PREPARE["matmul"]((x, y), {}, (out,))()

    close(out, np.matmul(*wide(x, y)), BFLOAT)


def test_a_call_runs_on_any_thread_at_the_same_time_as_others():
    def work(seed, calls, wrong):
        for x, y, out, call in calls:
            for _ in range(20):
                call()
                if not np.allclose(out, x @ y, atol=1e-3):
                    wrong.append(seed)

    def some(seed):
        made = []
        for i in range(4):
            # Transposed: needs scratch memory, all of which this thread prepares.
            x, y = values(seed + i, 120, 100).T, values(seed + i + 1, 90, 120).T
            out = np.empty((100, 90), np.float32)
            made.append((x, y, out, PREPARE["matmul"]((x, y), {}, (out,))))
        return made

    wrong = []
    sets = [some(seed) for seed in (0, 10, 20)]
    threads = [threading.Thread(target=work, args=(i, s, wrong)) for i, s in enumerate(sets[1:])]
    for thread in threads:
        thread.start()
    work(9, sets[0], wrong)
    for thread in threads:
        thread.join()

    assert wrong == []


def test_the_backend_prepares_products_by_op():
    x, w, out = values(0, 64, 96), values(1, 80, 96), np.empty((64, 80), np.float32)

    call = CpuBackend().compiler.prepare(ops.linear, (x, w, None), {}, (out,))

    call()
    close(out, np.matmul(*wide(x, w.T)))
    assert CpuBackend().compiler.prepare(ops.exp, (x,), {}, (x,)) is None
