"""Winograd's convolutions: values and gradients, shapes, layouts, special values, when they are chosen."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tenon.ops import conv, conv_input_grad, conv_weight_grad
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.onednn import convolution as eager
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn import winograd
from tenon_cpu.onednn.chain import Chain
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.layouts import PLAIN, blocked, reorder
from tenon_cpu.onednn.problems import Problem
from tenon_cpu.onednn.runtime import available
from tenon_cpu.onednn.winograd_code import matrices

pytestmark = pytest.mark.skipif(
    not (available() and llvm.available() and blocked().block), reason="needs oneDNN, LLVM, blocks"
)

FLOAT = np.dtype(np.float32)
ATTRS = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    """Let convolutions of a few tiles use Winograd's algorithm too."""
    monkeypatch.setattr(winograd, "_DIRECT", 1.0)
    eager._cache.clear()
    yield
    eager._cache.clear()


def values(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(made, expected):
    scale = np.sqrt(np.mean(expected**2)) or 1.0
    np.testing.assert_allclose(made / scale, expected / scale, rtol=0, atol=2e-5)


CASES = [
    # images, channels, filters, sizes, padding
    (1, 16, 16, (3, 3), (0, 0)),
    (2, 16, 32, (4, 9), (1, 1)),
    (3, 32, 16, (7, 5), (1, 0)),
    (2, 16, 16, (6, 1), (0, 2)),
    (5, 48, 16, (12, 13), (2, 1)),
    (40, 16, 16, (16, 15), (1, 1)),
    (3, 80, 16, (9, 8), (1, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_result_and_both_gradients_are_those_of_the_reference(case):
    images, channels, filters, sizes, padding = case
    x, weight = values(0, images, channels, *sizes), values(1, filters, channels, 3, 3)
    bias = values(2, filters)
    attrs = ATTRS | {"padding": padding}
    wide = [a.astype(np.float64) for a in (x, weight, bias)]
    expected = conv.forward(np, *wide[:2], **attrs) + wide[2][:, None, None]
    g = values(3, *expected.shape)

    close(eager.convolution(x, weight, bias, **attrs), expected)
    close(eager.conv(x, weight, **attrs), expected - wide[2][:, None, None])
    into_x = conv_input_grad.forward(np, g.astype(np.float64), wide[1], sizes=sizes, **attrs)
    close(eager.conv_input_grad(g, weight, sizes=sizes, **attrs), into_x)
    into_weight = conv_weight_grad.forward(np, wide[0], g.astype(np.float64), kernel=(3, 3), **attrs)
    close(eager.conv_weight_grad(x, g, kernel=(3, 3), **attrs), into_weight)
    assert all(isinstance(entry[0], winograd.Winograd) for entry in eager._cache.entries().values.values())


def test_arrays_may_have_any_memory_order():
    last = values(0, 2, 6, 7, 16).transpose(0, 3, 1, 2)
    weight = values(1, 3, 3, 16, 16).transpose(3, 2, 0, 1)
    attrs = ATTRS | {"padding": (1, 1)}

    made = eager.conv(last, weight, **attrs)

    close(made, eager.conv(last.copy(), weight.copy(), **attrs))
    close(made, conv.forward(np, last.astype(np.float64), weight.astype(np.float64), **attrs))


def test_blocked_arrays_are_read_and_written_where_they_lie():
    x, weight = values(0, 2, 32, 9, 8), values(1, 16, 32, 3, 3)
    problem = Problem(x.shape, weight.shape, (2, 16, 9, 8), FLOAT, (1, 1), (1, 1), (1, 1), 1)
    own, ins, out = blocked(), np.empty_like(x), np.empty((2, 16, 9, 8), FLOAT)
    reorder(x, PLAIN, ins, own)()
    inputs = [own.descriptor(x.shape, FLOAT), Descriptor.of(weight)]

    compute = winograd.Winograd(
        "forward", problem, inputs, [own.descriptor(out.shape, FLOAT)], lambda: pytest.fail("not finite")
    ).bound(ins, weight, out)
    for factor in (1, 2):  # what it reads is read anew
        weight *= factor
        compute()

        plain = np.empty_like(out)
        reorder(out, own, plain, PLAIN)()
        close(plain, conv.forward(np, x, weight, **(ATTRS | {"padding": (1, 1)})))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_reach_the_windows_that_see_them_and_no_other(value):
    x, weight = values(0, 1, 16, 8, 8), values(1, 16, 16, 3, 3)
    attrs = ATTRS | {"padding": (1, 1)}
    x[0, 5, 3, 3] = value
    g = values(2, 1, 16, 8, 8)
    g[0, 2, 0, 7] = value

    made = eager.conv(x, weight, **attrs)
    again = eager.conv(np.nan_to_num(x, posinf=0, neginf=0), weight, **attrs)

    seen = np.zeros((8, 8), bool)
    seen[2:5, 2:5] = True
    assert np.array_equal(~np.isfinite(made), np.broadcast_to(seen, made.shape))
    assert np.isfinite(again).all()
    into_x = eager.conv_input_grad(g, weight, sizes=(8, 8), **attrs)
    assert np.array_equal(
        np.isfinite(into_x), np.isfinite(conv_input_grad.forward(np, g, weight, sizes=(8, 8), **attrs))
    )
    into_weight = eager.conv_weight_grad(np.ones_like(x), g, kernel=(3, 3), **attrs)
    assert np.array_equal(np.flatnonzero(~np.isfinite(into_weight).all((1, 2, 3))), [2])


def test_sums_that_overflow_on_the_way_only_are_computed_directly():
    x, weight = np.full((1, 16, 4, 4), 1e38, FLOAT), np.zeros((16, 16, 3, 3), FLOAT)
    weight[:, 0, 1, 1] = 1.0

    made = eager.conv(x, weight, **(ATTRS | {"padding": (1, 1)}))

    np.testing.assert_array_equal(made, np.full_like(made, 1e38))


def test_the_matrices_compute_a_convolution_exactly_but_for_rounding():
    m = {name: np.array(rows) for name, rows in matrices().items()}
    d, w = values(0, 6).astype(np.float64), values(1, 3).astype(np.float64)

    made = m["output"] @ ((m["weight"] @ w) * (m["input"] @ d))

    np.testing.assert_allclose(made, np.convolve(d, w[::-1], "valid"), rtol=1e-12)
    np.testing.assert_array_equal(m["gradient"], m["output"].T)
    np.testing.assert_array_equal(m["flipped"], m["weight"][:, ::-1])


def problem(images=32, channels=64, size=32, **changes):
    given = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1} | changes
    shape = (images, channels, size, size)
    return Problem(shape, (channels, channels // given["groups"], 3, 3), shape, FLOAT, **given)


@pytest.mark.parametrize(
    "other",
    [
        problem(channels=60),
        problem(groups=2),
        problem(dilation=(2, 2), padding=(2, 2)),
        problem(stride=(2, 2)),
        problem(images=1, channels=512, size=4),  # more work on weights than on the image
        problem(size=2),  # most of a tile would be beyond the edge
    ],
    ids=str,
)
def test_other_convolutions_keep_the_direct_kernel(monkeypatch, other):
    monkeypatch.undo()

    assert winograd.is_faster(problem())
    assert not winograd.is_faster(other)


@pytest.mark.slow
def test_it_can_be_turned_off():
    code = (
        "from tenon_cpu.onednn import winograd; import numpy as np; from tenon_cpu.onednn.problems import *\n"
        "s = (32, 64, 32, 32); p = Problem(s, (64, 64, 3, 3), s, np.dtype('f4'), (1, 1), (1, 1), (1, 1), 1)\n"
        "print(winograd.is_faster(p))"
    )

    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={"TENON_WINOGRAD": value, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for value in ("0", "1")
    ]  # fmt: skip

    assert said == ["False", "True"]


def test_a_direct_chain_serves_where_there_is_a_second_result(avx2):
    own = problem(images=2, channels=16, size=4)
    made = own.weight_grad((blocked(), blocked()), bias=True)

    sides = own.activations((blocked(), blocked()))
    outputs = {c.DIFF_WEIGHTS: Descriptor.rows(own.weight, FLOAT), c.DIFF_BIAS: Descriptor.rows((16,), FLOAT)}
    chain = winograd.chain("weight", own, made, dict(zip((c.SRC, c.DIFF_DST), sides, strict=True)), outputs)

    assert isinstance(chain, Chain)
