"""Convolution and padding agree with torch over shapes, strides, paddings, dilations and groups."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops

pytestmark = [pytest.mark.oracle, pytest.mark.together]

# input, weight, options
PLANES = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 3), {}),
    "padded": ((2, 3, 7, 6), (4, 3, 3, 3), {"padding": 1}),
    "strided": ((2, 3, 9, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "uneven": ((2, 3, 9, 8), (4, 3, 3, 2), {"stride": (2, 3), "padding": (0, 2), "dilation": (1, 2)}),
    "dilated": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilation": 2, "padding": 2}),
    "grouped": ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((2, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "stride": 2}),
    "pointwise": ((3, 5, 4, 4), (2, 5, 1, 1), {}),
    "pointwise strided": ((3, 5, 5, 4), (2, 5, 1, 1), {"stride": 2}),
    "whole window": ((3, 2, 4, 4), (5, 2, 4, 4), {}),
    "one row": ((2, 3, 1, 9), (4, 3, 1, 3), {"padding": (0, 1)}),
    "stride past window": ((2, 3, 8, 8), (4, 3, 2, 2), {"stride": 3}),
    "same": ((2, 3, 6, 5), (4, 3, 3, 4), {"padding": "same"}),
    "same dilated": ((2, 3, 6, 7), (4, 3, 3, 2), {"padding": "same", "dilation": (2, 3)}),
    "valid": ((2, 3, 6, 5), (4, 3, 3, 3), {"padding": "valid"}),
    "empty batch": ((0, 3, 6, 5), (4, 3, 3, 3), {}),
    "many small": ((70, 2, 3, 3), (3, 2, 2, 2), {"padding": 1}),
}


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conv2d_agrees(agree, rng, name, dtype):
    shape, window, options = PLANES[name]
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in (shape, window, window[:1]))

    agree(
        lambda t, F, x, w, b: F.conv2d(x, w, b, **options),
        x,
        w,
        b,
        tolerance=2e-4 if dtype == "float32" else 1e-10,
    )


@pytest.mark.parametrize(
    "name", ["plain", "strided", "uneven", "dilated", "grouped", "pointwise strided", "same"]
)
def test_conv2d_has_a_second_order(agree, rng, name):
    shape, window, options = PLANES[name]
    x, w, b = (rng.standard_normal(s) for s in (shape, window, window[:1]))

    agree(lambda t, F, x, w, b: F.conv2d(x, w, b, **options), x, w, b, order=2)
    agree(lambda t, F, x, w: F.conv2d(x, w, **options), x, w, order=2)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2}, {"padding": "same"}]
)
def test_conv1d_and_conv3d_agree(agree, rng, options):
    x, w, b = (rng.standard_normal(s) for s in ((2, 4, 9), (6, 4 // options.get("groups", 1), 3), (6,)))
    agree(lambda t, F, x, w, b: F.conv1d(x, w, b, **options), x, w, b, order=2)

    x, w, b = (
        rng.standard_normal(s) for s in ((2, 4, 5, 6, 5), (2, 4 // options.get("groups", 1), 2, 3, 2), (2,))
    )
    agree(lambda t, F, x, w, b: F.conv3d(x, w, b, **options), x, w, b)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"groups": 2, "dilation": 2},
        {"stride": (1, 3)},
    ],
)
def test_conv_transpose2d_agrees(agree, rng, options):
    x, w = rng.standard_normal((2, 4, 4, 5)), rng.standard_normal((4, 3, 3, 2))
    b = rng.standard_normal(3 * options.get("groups", 1))

    agree(lambda t, F, x, w, b: F.conv_transpose2d(x, w, b, **options), x, w, b, order=2)


def test_conv_transpose1d_agrees(agree, rng):
    x, w = rng.standard_normal((2, 4, 5)), rng.standard_normal((4, 3, 3))

    agree(lambda t, F, x, w: F.conv_transpose1d(x, w, stride=2, padding=1), x, w)


def test_convolution_of_strided_inputs_agrees(agree, rng):
    x, w = rng.standard_normal((6, 3, 7, 2)), rng.standard_normal((3, 3, 4, 3))

    agree(lambda t, F, x, w: F.conv2d(x.permute(3, 1, 0, 2), w.permute(2, 0, 3, 1)[::2]), x, w)
    agree(
        lambda t, F, x, w: F.conv2d(x[:1, :, :, :1].expand(4, 3, 7, 6), w),
        x,
        rng.standard_normal((2, 3, 2, 2)),
    )


def test_unbatched_convolution_agrees(agree, rng):
    agree(
        lambda t, F, x, w: F.conv2d(x, w), rng.standard_normal((3, 5, 5)), rng.standard_normal((2, 3, 2, 2))
    )
    agree(lambda t, F, x, w: F.conv1d(x, w), rng.standard_normal((3, 5)), rng.standard_normal((2, 3, 2)))


def test_inputs_are_left_alone(rng):
    x, w, b = (
        tenon.from_numpy(rng.standard_normal(s)).requires_grad_() for s in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))
    )
    before = [v.detach().clone() for v in (x, w, b)]

    tenon.nn.functional.conv2d(x, w, b, padding=1).sum().backward()

    assert all(bool((v.detach() == o).all()) for v, o in zip((x, w, b), before, strict=True))


def test_results_do_not_share_scratch_memory(rng):
    x, w = (
        tenon.from_numpy(rng.standard_normal((2, 3, 6, 6))),
        tenon.from_numpy(rng.standard_normal((4, 3, 3, 3))),
    )
    first = tenon.nn.functional.conv2d(x, w)
    kept = first.clone()

    tenon.nn.functional.conv2d(x * 2, w)

    assert bool((first == kept).all())


REFERENCE = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}


def test_kernels_equal_the_reference_forwards(rng):
    backend = tenon.zeros(1)._backend
    x, w = rng.standard_normal((3, 4, 7, 8)), rng.standard_normal((6, 2, 3, 2))
    out = ops.conv.forward(np, x, w, **REFERENCE)
    g = rng.standard_normal(out.shape)

    np.testing.assert_allclose(backend.raw.conv(x, w, **REFERENCE), out, atol=1e-12)
    np.testing.assert_allclose(
        backend.raw.conv_input_grad(g, w, sizes=(7, 8), **REFERENCE),
        ops.conv_input_grad.forward(np, g, w, sizes=(7, 8), **REFERENCE),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        backend.raw.conv_weight_grad(x, g, kernel=(3, 2), **REFERENCE),
        ops.conv_weight_grad.forward(np, x, g, kernel=(3, 2), **REFERENCE),
        atol=1e-12,
    )


def test_meta_tensors_learn_their_shape_without_data():
    x, w = tenon.empty(2, 3, 9, 9, device="meta"), tenon.empty(4, 3, 3, 3, device="meta")

    assert tenon.nn.functional.conv2d(x, w, stride=2, padding=1).shape == (2, 4, 5, 5)


PADS = {
    "constant": ((1, 2, 0, 1), "constant", 1.5),
    "negative": ((-1, 2, 0, -1), "constant", None),
    "reflect": ((1, 2, 2, 1), "reflect", None),
    "replicate": ((3, 1, 0, 5), "replicate", None),
    "circular": ((2, 1, 1, 3), "circular", None),
    "one side": ((0, 2, 1, 0), "reflect", None),
}


@pytest.mark.parametrize("name", PADS)
def test_padding_agrees(agree, rng, name):
    widths, mode, value = PADS[name]

    agree(
        lambda t, F, x: F.pad(x, widths, mode=mode, value=value), rng.standard_normal((2, 3, 4, 5)), order=2
    )


def test_padding_of_one_axis_agrees(agree, rng):
    for mode in ("reflect", "replicate", "circular"):
        agree(lambda t, F, x, mode=mode: F.pad(x, (2, 1), mode=mode), rng.standard_normal((2, 3, 4)))


def test_unfold_agrees(agree, rng):
    x = rng.standard_normal((2, 3, 6, 7))

    agree(lambda t, F, x: F.unfold(x, (2, 3)), x)
    agree(lambda t, F, x: F.unfold(x, 3, dilation=2, padding=1, stride=2), x)


REFUSED = {
    "channels": lambda t, F, x, w: F.conv2d(x[:, :4], w),
    "small input": lambda t, F, x, w: F.conv2d(x[:, :, :2, :2], w),
    "flat input": lambda t, F, x, w: F.conv2d(x[0, 0], w),
    "bias": lambda t, F, x, w: F.conv2d(x, w, t.zeros(4)),
    "groups": lambda t, F, x, w: F.conv2d(x, w, groups=4),
    "stride": lambda t, F, x, w: F.conv2d(x, w, stride=0),
    "padding": lambda t, F, x, w: F.conv2d(x, w, padding=-1),
    "bias dtype": lambda t, F, x, w: F.conv2d(x.double(), w.double(), t.zeros(3)),
    "strided same": lambda t, F, x, w: F.conv2d(x, w, stride=2, padding="same"),
    "padding name": lambda t, F, x, w: F.conv2d(x, w, padding="foo"),
    "odd pad": lambda t, F, x, w: F.pad(x, (1,)),
    "pad rank": lambda t, F, x, w: F.pad(x[0, 0], (1, 1, 1, 1), mode="reflect"),
}


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in ("odd pad", "padding name")])
def test_bad_input_is_refused_in_torchs_words(refuse, rng, name):
    refuse(
        REFUSED[name], rng.standard_normal((2, 6, 4, 4)).astype(np.float32), np.ones((3, 6, 3, 3), np.float32)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda F, x, w: F.conv2d(x.double(), w),
            r"Input type \(double\) and weight type \(float\) should be the same",
        ),
        (lambda F, x, w: F.pad(x, (1,)), "Padding length must be divisible by 2"),
        (
            lambda F, x, w: F.pad(x, (5, 1, 0, 0), mode="reflect"),
            r"padding \(5, 1\) at dimension 3 of input \[2, 6, 4, 4\]",
        ),
        (lambda F, x, w: F.pad(x, (5, 1, 0, 0), mode="circular"), "wrapping around more than once"),
        (lambda F, x, w: F.conv2d(x, w, padding="foo"), "Invalid padding string"),
    ],
)
def test_errors_name_what_is_wrong(change, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        change(tenon.nn.functional, tenon.ones(2, 6, 4, 4), tenon.ones(3, 6, 3, 3))
