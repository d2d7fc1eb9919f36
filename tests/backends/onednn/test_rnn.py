"""The CPU backend's recurrent layers against the ops' own rules, gradients and parts of a batch included."""

from __future__ import annotations

import gc
from itertools import pairwise

import numpy as np
import pytest

from tenon import ops
from tenon.kernels.backend import backend_named
from tenon_cpu import onednn, threads
from tenon_cpu.jit.compiler.compile import available

if not (onednn.available() and available()):
    pytest.skip("needs oneDNN and numba", allow_module_level=True)

from tenon_cpu.onednn import rnn, rnn_loop

pytestmark = pytest.mark.together

CPU = backend_named("cpu")
F = CPU.raw
GATES = {"rnn": 1, "lstm": 4, "gru": 3}
#: By default one of them: each has kernels that take a second to compile.
KINDS = [pytest.param(kind, marks=() if kind == "lstm" else pytest.mark.slow) for kind in GATES]
SIZES = {
    "equal": (9,) * 7,
    "packed": (40, 33, 33, 17, 16, 3, 1, 1),
    "one": (1,) * 30,
    "step": (40,),
}
DTYPE = np.float32


def kernel_of(name):
    return CPU.kernels[ops.__getattr__(name)]


def arguments(kind, sizes, width=37, inputs=21, bias=True, dtype=DTYPE):
    draw = np.random.default_rng(len(sizes))
    rows, count, batch = sum(sizes), GATES[kind] * width, sizes[0]

    def normal(*shape, scale=1.0):
        return (draw.standard_normal(shape) * scale).astype(dtype)

    states = [normal(batch, width) for _ in range(2 if kind == "lstm" else 1)]
    weights = [normal(count, inputs, scale=0.3), normal(count, width, scale=0.3)]
    biases = [normal(count), normal(count)] if bias else [None, None]
    return [normal(rows, inputs), *states, *weights, *biases, *([None] if kind == "lstm" else [])]


def reference(kind, args, attrs):
    op = ops.__getattr__(f"{kind}_sequence")
    return (op.raw_forward if op.residuals else op.decompose)(F, *args, **attrs)


def gradient_arguments(kind, args, made):
    """Of the gradient's op: random gradients of the results, what the forward op saved, its residuals."""
    draw = np.random.default_rng(1)
    visible = 3 if kind == "lstm" else 2
    given = [draw.standard_normal(m.shape).astype(m.dtype) for m in made[:visible]]
    states_and_weights = args[: 3 + visible - 1]
    tail = [None] if kind == "lstm" else []
    return [*given, made[0], *states_and_weights, *tail, *made[visible:]]


def close(mine, expected, loose=1.0):
    assert len(mine) == len(expected)
    for a, b in zip(mine, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        scale = max(1.0, float(np.abs(b.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=2e-5 * loose, atol=2e-6 * scale * loose)


@pytest.fixture(params=["alone", "split"])
def shared(request, monkeypatch):
    """Whether several threads take parts of the batch; on this pool of any size, one after the other."""
    if request.param == "split":
        monkeypatch.setattr(rnn_loop, "usable", lambda: 3)
    monkeypatch.setattr(rnn, "LEAST", 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_walk_computes_what_the_rules_do(kind, sizes, reverse, bias, shared):
    args = arguments(kind, SIZES[sizes], bias=bias)
    attrs = {"sizes": SIZES[sizes], "reverse": reverse}
    kernel, kernel_grad = (kernel_of(f"{kind}_sequence{end}") for end in ("", "_grad"))

    made = kernel(*args, **attrs)

    expected = reference(kind, args, attrs)
    close(made, expected)
    given = gradient_arguments(kind, args, expected)
    attrs["needs"] = (*(a is not None for a in args[:-1]), kind != "lstm" and bias)
    op = ops.__getattr__(f"{kind}_sequence_grad")
    close(kernel_grad(*given, **attrs), op.decompose(F, *given, **attrs), loose=4)


@pytest.mark.slow
def test_relu_walk_computes_what_the_rules_do(shared):
    args, attrs = arguments("rnn", SIZES["packed"]), {"sizes": SIZES["packed"], "nonlinearity": "relu"}

    made = kernel_of("rnn_sequence")(*args, **attrs)

    close(made, reference("rnn", args, attrs))
    given = gradient_arguments("rnn", args, made)
    attrs["needs"] = (True,) * 6
    expected = ops.rnn_sequence_grad.decompose(F, *given, **attrs)
    close(kernel_of("rnn_sequence_grad")(*given, **attrs), expected, loose=4)


@pytest.mark.parametrize("kind", KINDS)
def test_16_bits_are_computed_in_float32_and_rounded_once(kind, monkeypatch):
    monkeypatch.setattr(rnn, "LEAST", 0)
    short = [None if a is None else a.astype(np.float16) for a in arguments(kind, SIZES["equal"])]
    wide = [None if a is None else a.astype(DTYPE) for a in short]
    kernel, attrs = kernel_of(f"{kind}_sequence"), {"sizes": SIZES["equal"]}

    made = kernel(*short, **attrs)

    for a, b in zip(made, kernel(*wide, **attrs), strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float16))


@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_in_its_sequence_and_infinity_saturates(kind, monkeypatch):
    monkeypatch.setattr(rnn, "LEAST", 0)
    args = arguments(kind, SIZES["equal"])
    args[0][9 + 4] = np.nan  # sequence 4 at step 1
    args[0][9 + 5] = np.inf

    with np.errstate(all="ignore"):
        out = kernel_of(f"{kind}_sequence")(*args, sizes=SIZES["equal"])[0].reshape(7, 9, -1)
        expected = reference(kind, args, {"sizes": SIZES["equal"]})[0].reshape(7, 9, -1)

    assert np.isnan(out[1:, 4]).all() and np.isfinite(out[:, :4]).all() and np.isfinite(out[:, 6:]).all()
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-6)


def test_arrays_may_be_unaligned_and_inputs_are_not_changed(monkeypatch):
    monkeypatch.setattr(rnn, "LEAST", 0)
    args = arguments("lstm", SIZES["equal"])
    askew = [None if a is None else np.repeat(a, 2, axis=-1)[..., ::2] for a in args]
    before = [None if a is None else a.copy() for a in args]
    attrs = {"sizes": SIZES["equal"]}

    made = kernel_of("lstm_sequence")(*askew, **attrs)

    close(made, kernel_of("lstm_sequence")(*args, **attrs))
    for a, b in zip(args, before, strict=True):
        assert a is None or np.array_equal(a, b)


def test_parts_of_a_packed_batch_have_about_as_many_rows(monkeypatch):
    monkeypatch.setattr(rnn_loop, "usable", lambda: 4)
    sizes = tuple(64 - t for t in range(60))

    bounds = rnn_loop.parts(sizes)

    lengths = [sum(size > row for size in sizes) for row in range(64)]
    rows = [sum(lengths[a:b]) for a, b in pairwise(bounds)]
    assert bounds[0] == 0 and bounds[-1] == 64 and len(rows) == 4
    assert max(rows) < 1.1 * min(rows)


def test_real_threads_give_the_same_numbers_and_one_thread_is_restored():
    args, attrs = arguments("lstm", (40,) * 12, width=64), {"sizes": (40,) * 12}
    one = kernel_of("lstm_sequence")(*args, **attrs)
    count = threads.usable()
    try:
        threads.set_count(2)
        two = kernel_of("lstm_sequence")(*args, **attrs)
    finally:
        threads.set_count(count)
        gc.collect()

    close(two, one)
    close(kernel_of("lstm_sequence")(*args, **attrs), one)


@pytest.mark.parametrize(
    ("dtype", "width", "row"),
    [
        ("float32", 64, "oneDNN, compiled loop"),
        ("float16", 64, "oneDNN, compiled loop in float32"),
        ("float16", 4, "reference, in float32"),
        ("float32", 4, "reference"),
        ("float64", 64, "reference"),
    ],
)
def test_the_row_that_takes_a_layer_is_named(dtype, width, row):
    args = arguments("gru", SIZES["equal"], width, dtype=dtype)

    *_, (taken, why) = CPU.choice(ops.gru_sequence).explain(args, {"sizes": SIZES["equal"]})

    assert (taken.name, why) == (row, "")
