"""Convolution with oneDNN against the NumPy kernels in double precision, and against torch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from bfloat import BFLOAT, in_bfloat

from tenon import errors, ops
from tenon.kernels.backend import Backend, backend_named
from tenon_cpu.onednn import convolution as onednn
from tenon_cpu.onednn.runtime import available
from tenon_cpu.onednn.winograd import Winograd

NAMES = ("conv", "convolution", "conv_input_grad", "conv_weight_grad")
F = SimpleNamespace(**{name: backend_named("cpu").kernels[getattr(ops, name)] for name in NAMES})
pytestmark = [pytest.mark.skipif(not available(), reason="oneDNN is not installed"), pytest.mark.together]


class Reference(Backend):
    """The reference forwards over NumPy."""

    name, xp, array_type = "reference", np, np.ndarray


REFERENCE = SimpleNamespace(**{name: Reference().kernels[getattr(ops, name)] for name in NAMES})
#: channels, filters, groups
CHANNELS = [(3, 4, 1), (16, 32, 1), (32, 33, 1), (6, 9, 3), (16, 16, 16), (32, 48, 2), (1, 8, 1)]
#: kernel, stride, padding, dilation
WINDOWS = [(3, 1, 1, 1), (3, 2, 1, 1), (2, 1, 0, 2), (1, 1, 0, 1), (1, 2, 0, 1), (5, 3, 4, 1), (3, 1, 5, 1)]


def attributes(rank, window, groups=1):
    kernel, stride, padding, dilation = window
    del kernel
    return {
        "stride": (stride,) * rank,
        "padding": (padding,) * rank,
        "dilation": (dilation,) * rank,
        "groups": groups,
    }


def arrays(rng, rank, channels, kernel, batch=2, sizes=(9, 8, 7)):
    c, o, groups = channels
    x = rng.standard_normal((batch, c, *sizes[:rank]), dtype=np.float32)
    weight = rng.standard_normal((o, c // groups, *(kernel,) * rank), dtype=np.float32)
    return x, weight, rng.standard_normal(o, dtype=np.float32)


def double(*values):
    return [v.astype(np.float64) for v in values]


def assert_close(made, wanted, tolerance=1e-5):
    assert made.shape == wanted.shape
    assert made.flags.c_contiguous
    np.testing.assert_allclose(made, wanted, rtol=tolerance, atol=tolerance * max(1.0, abs(wanted).max()))


def used(kind):
    """Whether the last convolution of this kind went through oneDNN."""
    entries = onednn._cache.entries().values
    key = next(k for k in reversed(entries) if k[0] == kind)
    return entries[key] is not None


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_result_and_both_gradients_are_those_of_the_reference(rank, channels, window):
    rng = np.random.default_rng(rank)
    attrs = attributes(rank, window, channels[2])
    x, weight, bias = arrays(rng, rank, channels, window[0])

    out = F.convolution(x, weight, bias, **attrs)
    g = rng.standard_normal(out.shape, dtype=np.float32)
    dx = F.conv_input_grad(g, weight, sizes=x.shape[2:], **attrs)
    dw = F.conv_weight_grad(x, g, kernel=weight.shape[2:], **attrs)

    assert_close(out, REFERENCE.convolution(*double(x, weight, bias), **attrs))
    assert_close(dx, REFERENCE.conv_input_grad(*double(g, weight), sizes=x.shape[2:], **attrs))
    assert_close(dw, REFERENCE.conv_weight_grad(*double(x, g), kernel=weight.shape[2:], **attrs))
    assert used("forward")
    assert used("input")
    assert used("weight")


def test_sizes_that_differ_by_axis_are_not_mixed_up():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 16, 13, 10), dtype=np.float32)
    weight = rng.standard_normal((16, 16, 3, 2), dtype=np.float32)
    attrs = {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 3), "groups": 1}

    out = F.conv(x, weight, **attrs)
    g = rng.standard_normal(out.shape, dtype=np.float32)

    assert_close(out, REFERENCE.conv(*double(x, weight), **attrs))
    assert_close(
        F.conv_input_grad(g, weight, sizes=(13, 10), **attrs),
        REFERENCE.conv_input_grad(*double(g, weight), sizes=(13, 10), **attrs),
    )
    assert_close(
        F.conv_weight_grad(x, g, kernel=(3, 2), **attrs),
        REFERENCE.conv_weight_grad(*double(x, g), kernel=(3, 2), **attrs),
    )


def test_transposed_convolution_reaches_every_size_that_its_stride_allows():
    rng = np.random.default_rng(1)
    g = rng.standard_normal((2, 16, 5, 5), dtype=np.float32)
    weight = rng.standard_normal((16, 32, 3, 3), dtype=np.float32)
    attrs = {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}

    for sizes in ((9, 9), (10, 10), (9, 10)):
        made = F.conv_input_grad(g, weight, sizes=sizes, **attrs)

        assert_close(made, REFERENCE.conv_input_grad(*double(g, weight), sizes=sizes, **attrs))


def _views(x):
    """The same values in other orders of memory."""
    yield "channels last", np.ascontiguousarray(np.moveaxis(x, 1, -1)).transpose(0, 3, 1, 2)
    wide = np.zeros((*x.shape[:3], 2 * x.shape[3]), x.dtype)
    wide[..., ::2] = x
    yield "every other column", wide[..., ::2]
    yield "reversed", np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1]
    yield "unaligned", np.frombuffer(b"\0" * 4 + x.tobytes(), x.dtype, offset=4).reshape(x.shape)


def test_arrays_may_have_any_memory_order():
    rng = np.random.default_rng(2)
    attrs = attributes(2, WINDOWS[0])
    x, weight, bias = arrays(rng, 2, (16, 16, 1), 3)
    wanted = F.convolution(x, weight, bias, **attrs)
    g = rng.standard_normal(wanted.shape, dtype=np.float32)
    wanted_dx = F.conv_input_grad(g, weight, sizes=x.shape[2:], **attrs)
    wanted_dw = F.conv_weight_grad(x, g, kernel=(3, 3), **attrs)

    for (name, x2), (_, w2), (_, g2) in zip(_views(x), _views(weight), _views(g), strict=True):
        assert_close(F.convolution(x2, w2, bias, **attrs), wanted)
        assert_close(F.conv_input_grad(g2, w2, sizes=x.shape[2:], **attrs), wanted_dx)
        assert_close(F.conv_weight_grad(x2, g2, kernel=(3, 3), **attrs), wanted_dw)
        assert used("weight") or name == "reversed"


def test_a_broadcast_gradient_is_copied_and_computed():
    rng = np.random.default_rng(3)
    attrs = attributes(2, WINDOWS[0])
    x, _, _ = arrays(rng, 2, (16, 16, 1), 3)
    g = np.broadcast_to(np.float32(0.5), (2, 16, 9, 8))

    made = F.conv_weight_grad(x, g, kernel=(3, 3), **attrs)

    assert_close(made, REFERENCE.conv_weight_grad(*double(x, g), kernel=(3, 3), **attrs))


def test_an_empty_batch_gives_an_empty_result_and_zero_weight_gradients():
    attrs = attributes(2, WINDOWS[0])
    x, weight, bias = arrays(np.random.default_rng(4), 2, (16, 16, 1), 3, batch=0)

    out = F.convolution(x, weight, bias, **attrs)
    dw = F.conv_weight_grad(x, out, kernel=(3, 3), **attrs)

    assert out.shape == (0, 16, 9, 8)
    assert F.conv_input_grad(out, weight, sizes=(9, 8), **attrs).shape == x.shape
    assert dw.shape == weight.shape
    assert not dw.any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [(3, 5, 1), (16, 16, 1), (16, 16, 16)], ids=str)
def test_nan_and_infinity_reach_the_windows_that_see_them_and_no_other(value, channels):
    attrs = attributes(2, WINDOWS[0], channels[2])
    x, weight, bias = arrays(np.random.default_rng(5), 2, channels, 3)
    x[0, 0, 4, 4] = value

    made = F.convolution(x, weight, bias, **attrs)

    wanted = REFERENCE.convolution(*double(x, weight, bias), **attrs)
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))
    assert_close(made[1], wanted[1])


def test_double_precision_goes_to_the_numpy_kernel():
    attrs = attributes(2, WINDOWS[0])
    x, weight, bias = double(*arrays(np.random.default_rng(6), 2, (3, 4, 1), 3))

    made = F.convolution(x, weight, bias, **attrs)

    assert made.dtype == np.float64
    np.testing.assert_array_equal(made, REFERENCE.convolution(x, weight, bias, **attrs))


def test_a_refused_argument_raises_as_without_onednn():
    x, weight, bias = arrays(np.random.default_rng(7), 2, (3, 4, 1), 3)

    with pytest.raises(errors.ShapeError, match="expected bias to be 1-dimensional with 4"):
        F.convolution(x, weight, bias[:3], **attributes(2, WINDOWS[0]))
    with pytest.raises(errors.ShapeError, match="Kernel size can't be greater"):
        F.conv(x, weight, stride=(1, 1), padding=(0, 0), dilation=(9, 9), groups=1)
    with pytest.raises(errors.ShapeError, match="g has sizes"):
        F.conv_weight_grad(x, x, kernel=(3, 3), **attributes(2, (3, 2, 1, 1)))
    with pytest.raises(errors.DTypeError, match="should be the same"):
        F.conv(x, weight.astype(np.float64), **attributes(2, WINDOWS[0]))


def test_a_second_call_of_a_shape_prepares_nothing_and_keeps_no_array():
    import sys

    attrs = attributes(2, WINDOWS[0])
    x, weight, bias = arrays(np.random.default_rng(8), 2, (16, 16, 1), 3, sizes=(11, 11))
    F.convolution(x, weight, bias, **attrs)
    before, count = onednn._cache.counts().misses, sys.getrefcount(x)
    fresh = np.empty(2)

    out = F.convolution(x, weight, bias, **attrs)

    assert onednn._cache.counts().misses == before
    assert sys.getrefcount(x) == count
    assert sys.getrefcount(out) == sys.getrefcount(fresh)


def test_two_threads_convolve_at_the_same_time():
    import threading

    attrs = attributes(2, WINDOWS[0])
    rng = np.random.default_rng(9)
    cases = [arrays(rng, 2, (16, 16, 1), 3, batch=8, sizes=(24, 24)) for _ in range(2)]
    wanted = [F.convolution(*case, **attrs) for case in cases]
    wrong: list[int] = []

    def work(i):
        for _ in range(20):
            if not np.array_equal(F.convolution(*cases[i], **attrs), wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


@in_bfloat
def test_bfloat16_is_computed_in_bfloat16():
    bfloat16 = pytest.importorskip("tenon").bfloat16
    attrs = attributes(2, WINDOWS[0])
    x, weight, bias = arrays(np.random.default_rng(10), 2, (16, 32, 1), 3)
    dtype = np.dtype(getattr(bfloat16, "numpy", bfloat16))

    made = F.convolution(x.astype(dtype), weight.astype(dtype), bias.astype(dtype), **attrs)

    assert made.dtype == dtype
    assert used("forward")
    assert_close(made.astype(np.float32), REFERENCE.convolution(*double(x, weight, bias), **attrs), 0.03)


@pytest.mark.parametrize("dtype, share", [(BFLOAT, 2.0**-8), (np.dtype(np.float16), 2.0**-11)], ids=str)
def test_16_bit_floats_are_rounded_once_where_onednn_has_no_kernel_for_them(dtype, share):
    attrs = attributes(2, (3, 1, 1, 1), 4)
    given = [a.astype(dtype) for a in arrays(np.random.default_rng(13), 2, (16, 32, 4), 3)]
    exact = REFERENCE.convolution(*double(*given), **attrs)

    made = F.convolution(*given, **attrs)

    assert made.dtype == dtype
    assert (np.abs(made.astype(np.float64) - exact) <= share * np.abs(exact) + 1e-5).all()


@pytest.mark.oracle
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_values_and_gradients_are_those_of_torch(groups):
    torch = pytest.importorskip("torch")
    x, weight, bias = arrays(np.random.default_rng(11), 2, (16, 32, groups), 3, sizes=(14, 14))
    attrs = attributes(2, (3, 2, 1, 1), groups)
    tensors = [torch.from_numpy(v).requires_grad_() for v in (x, weight, bias)]
    theirs = torch.nn.functional.conv2d(*tensors, stride=2, padding=1, groups=groups)
    g = np.random.default_rng(12).standard_normal(theirs.shape, dtype=np.float32)
    theirs.backward(torch.from_numpy(g))

    assert_close(F.convolution(x, weight, bias, **attrs), theirs.detach().numpy())
    assert_close(F.conv_input_grad(g, weight, sizes=(14, 14), **attrs), tensors[0].grad.numpy())
    assert_close(F.conv_weight_grad(x, g, kernel=(3, 3), **attrs), tensors[1].grad.numpy())


@pytest.mark.parametrize(
    ("rank", "dtype", "stride", "row"),
    [
        (2, "float32", 1, "oneDNN"),
        (2, "float32", -1, "oneDNN, of copies"),
        (2, "float64", 1, "NumPy, products of pieces"),
        (3, "float64", 1, "reference"),
        (2, "int64", 1, "reference"),
    ],
)
def test_the_row_that_takes_a_convolution_is_named(rank, dtype, stride, row):
    x, weight, _ = arrays(np.random.default_rng(0), rank, (3, 4, 1), 3)
    x, weight = x.astype(dtype)[..., ::stride], weight.astype(dtype)

    *_, (taken, why) = (
        backend_named("cpu").choice(ops.conv).explain([x, weight], attributes(rank, WINDOWS[0]))
    )

    assert why == "" and taken.name.removesuffix(", by Winograd's algorithm where that is faster") == row


def test_the_row_of_winograds_algorithm_takes_the_calls_that_it_computes():
    rng = np.random.default_rng(0)
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    for channels, size, row in [
        (64, 32, "oneDNN, by Winograd's algorithm"),
        (64, 4, "oneDNN"),
        (5, 32, "oneDNN"),
    ]:
        x = rng.standard_normal((4, channels, size, size), np.float32)
        weight = rng.standard_normal((channels, channels, 3, 3), np.float32)
        calls = [
            (ops.conv, [x, weight], geometry),
            (ops.convolution, [x, weight, None], geometry),
            (ops.conv_input_grad, [x, weight], geometry | {"sizes": (size, size)}),
            (ops.conv_weight_grad, [x, x], geometry | {"kernel": (3, 3)}),
        ]
        for op, arguments, attrs in calls:
            *_, (taken, why) = backend_named("cpu").choice(op).explain(arguments, attrs)

            assert (taken.name, why) == (row, "")
            prepared = list(onednn._cache.entries().values.values())[-1][0]
            assert isinstance(prepared, Winograd) == ("Winograd" in row)
