"""Dynamic int8 products: equal to integer arithmetic, packed once, correct when weights may change."""

import threading

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.kernels.backend import backend_named
from tenon.ops.quantized import int8_dynamic_linear as op
from tenon_cpu.onednn import available, int8_dynamic
from tenon_cpu.onednn.int8 import generated

pytestmark = pytest.mark.together

F = backend_named("cpu").raw
needs_onednn = pytest.mark.skipif(not available(), reason="oneDNN is not available")
needs_exact = pytest.mark.skipif(not generated(), reason="exact 8-bit products are generated for AVX2")


def weights(columns, inner, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.integers(-127, 128, (columns, inner)).astype(np.int8)
    return values, (2.0 ** rng.integers(-9, -3, columns)).astype(np.float32)


def whole_numbers(rows, inner, seed=1):
    """Numbers that are integers times a power of two, so that quantization does not round them."""
    x = np.random.default_rng(seed).integers(-127, 128, (rows, inner)).astype(np.float32)
    x[0, 0] = 127
    return x * np.float32(0.25)


def reference(x, values, scale, bias):
    sums = np.rint(x * 4).astype(np.int64) @ values.astype(np.int64).T
    assert np.abs(sums).max() < 2**24  # float32 holds them
    return sums * (scale.astype(np.float64) / 4) + (0 if bias is None else bias)


@pytest.mark.parametrize(
    "shape", [(1, 64, 48), (7, 33, 5), (32, 1024, 96), (3, 1, 1), (130, 70, 64)], ids=str
)
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("way", ["kernel", "reference"])
def test_results_are_those_of_whole_numbers_bit_for_bit(shape, biased, way):
    rows, inner, columns = shape
    values, scale = weights(columns, inner)
    x = whole_numbers(rows, inner)
    bias = np.arange(columns, dtype=np.float32) if biased else None
    if way == "reference":
        made = op.forward(np, x, values, scale, bias)
    else:
        given = [None if a is None else tenon.from_numpy(a) for a in (x, values, scale, bias)]
        made = ops.int8_dynamic_linear(*given).numpy()

    np.testing.assert_array_equal(made, reference(x, values, scale, bias).astype(np.float32))


@needs_onednn
@pytest.mark.parametrize("way", ["loops", "NumPy"])
def test_numbers_are_rounded_as_the_reference_rounds_them(way, monkeypatch):
    if way == "NumPy":
        monkeypatch.setattr(int8_dynamic, "fits", lambda *arrays: False)
    x = np.random.default_rng(3).normal(size=(64, 96)).astype(np.float32)
    values, scale = np.eye(96, dtype=np.int8), np.ones(96, np.float32)

    made = F.int8_dynamic_linear(x, values, scale, None)

    np.testing.assert_array_equal(made, op.forward(np, x, values, scale, None))


@needs_onednn
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_gives_nan(odd):
    values, scale = weights(48, 64)
    x = whole_numbers(4, 64)
    x[2, 3] = odd

    made = F.int8_dynamic_linear(x, values, scale, None)

    assert np.isnan(made).all() and np.isnan(op.forward(np, x, values, scale, None)).all()


@needs_onednn
@pytest.mark.parametrize("size", [0.0, 1e-40])
def test_zeros_and_almost_zeros_give_the_bias(size):
    values, scale = weights(48, 64)
    bias = np.arange(48, dtype=np.float32)
    x = np.full((4, 64), size, np.float32)

    for made in (
        F.int8_dynamic_linear(x, values, scale, bias),
        op.forward(np, x, values, scale, bias),
    ):
        np.testing.assert_array_equal(made, np.broadcast_to(bias, (4, 48)))


@needs_exact
def test_a_weight_is_packed_once_if_it_cannot_be_written():
    values, scale = weights(48, 64)
    x = whole_numbers(4, 64)
    kept = int8_dynamic._weights._entries
    before = len(kept)

    F.int8_dynamic_linear(x, values, scale, None)
    assert len(kept) == before  # somebody may write it
    values.setflags(write=False)
    scale.setflags(write=False)
    F.int8_dynamic_linear(x, values, scale, None)
    packed = kept[id(values), id(scale)][2]
    F.int8_dynamic_linear(x, values, scale, None)

    assert kept[id(values), id(scale)][2] is packed
    del values, scale
    assert len(kept) == before


@needs_onednn
def test_a_weight_that_is_written_counts_from_the_next_call_on():
    values, scale = weights(48, 64)
    x = whole_numbers(4, 64)
    F.int8_dynamic_linear(x, values, scale, None)
    values += 0
    values[:] = -np.clip(values, -127, 127)

    made = F.int8_dynamic_linear(x, values, scale, None)

    np.testing.assert_array_equal(made, reference(x, values, scale, None).astype(np.float32))


@needs_onednn
def test_a_read_only_view_of_what_can_be_written_is_not_kept():
    values, scale = weights(48, 64)
    view = values[:]
    view.setflags(write=False)
    scale.setflags(write=False)
    x = whole_numbers(4, 64)
    F.int8_dynamic_linear(x, view, scale, None)
    values[:] = 1

    made = F.int8_dynamic_linear(x, view, scale, None)

    np.testing.assert_array_equal(made, reference(x, values, scale, None).astype(np.float32))


@needs_onednn
def test_threads_compute_side_by_side():
    values, scale = weights(96, 64)
    for array in (values, scale):
        array.setflags(write=False)
    inputs = [whole_numbers(8, 64, seed) for seed in range(4)]
    results = {}

    def work(i):
        for _ in range(50):
            results[i] = F.int8_dynamic_linear(inputs[i], values, scale, None)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for i, x in enumerate(inputs):
        np.testing.assert_array_equal(results[i], reference(x, values, scale, None).astype(np.float32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight": tenon.zeros(3, 4)}, "Quantize it to int8"),
        ({"weight": tenon.zeros(3, 5, dtype=tenon.int8)}, "the input has 4 features"),
        ({"scale": tenon.ones(2)}, "scale has shape"),
        ({"bias": tenon.ones(2)}, "bias has shape"),
        ({"x": tenon.zeros(2, 4, dtype=tenon.int64)}, "it must be floats"),
    ],
    ids=["float weight", "other width", "scales", "bias", "integers"],
)
def test_what_does_not_fit_is_named(change, words):
    given = {
        "x": tenon.zeros(2, 4), "weight": tenon.zeros(3, 4, dtype=tenon.int8), "scale": tenon.ones(3), "bias": None,
    } | change  # fmt: skip

    with pytest.raises((tenon.errors.ShapeError, tenon.errors.DTypeError), match=words):
        ops.int8_dynamic_linear(*given.values())
