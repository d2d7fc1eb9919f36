"""The target c in float64 and in integers: the layers of ``test_ops.py``, their gradients, and what moves elements."""

import numpy as np
import pytest
from tests.plugins.target_c.programs import each, sanitized, write
from tests.plugins.target_c.test_ops import LAYERS

import tenon as t
from tenon import nn
from tenon.export import capture
from tenon.nn import functional as F
from tenon_target_c.building import build

#: Sums of some hundred products: 1e-16 each.
TOLERANCE = 1e-12


@pytest.fixture(autouse=True)
def seeded():
    t.manual_seed(0)


def joined(cases):
    """Return one function of all cases, pairs of a function and its arguments, and the arguments of all."""

    def function(*given):
        outputs, start = [], 0
        for call, args in cases:
            outputs.append(call(*given[start : start + len(args)]))
            start += len(args)
        return outputs

    return function, [x for _, args in cases for x in args]


def layers(dtype):
    return [
        (each(*(layer.to(dtype) for layer in make())), [t.randn(shape, dtype=dtype)])
        for shape, make in map(LAYERS.get, ("convolution", "pooling", "one_axis", "three_axes"))
    ]


def doubles():
    """Further ops of float64."""
    image, grid = t.randn(2, 4, 8, 8).double(), t.rand(2, 5, 5, 2).double() * 2 - 1
    indices, classes, weight = t.randint(0, 7, (2, 5)), t.arange(4), t.rand(5).double()
    return [
        (
            each(
                lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1].double(),
                lambda x: F.adaptive_max_pool2d(x, 3), lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
                lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True),
                lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), lambda x: F.fold(F.unfold(x, 3), (8, 8), 3),
                lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7), lambda x: F.adaptive_avg_pool2d(x, 1),
                *(
                    lambda x, m=m, p=p: F.grid_sample(x, grid, mode=m, padding_mode=p, align_corners=False)
                    for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection")
                ),
            ),
            [image],
        ),
        (lambda x: F.cross_entropy(x, classes, weight=weight), [t.randn(4, 5).double()]),
        (lambda w: F.embedding_bag(indices, w, mode="mean"), [t.randn(7, 3).double()]),
        (lambda w: F.embedding(indices, w), [t.randn(7, 3).double()]),
        (lambda m: F.affine_grid(m, (2, 3, 4, 5), align_corners=False), [t.randn(2, 2, 3).double()]),
    ]  # fmt: skip


def gradients(cases):
    """Return the gradients of a sum over each case's results, for its arguments."""

    def differentiated(call):
        def gradient(*args):
            leaves = [a.detach().requires_grad_() for a in args]
            results = call(*leaves)
            total = sum(
                (r * r).sum()
                for r in (results if isinstance(results, list) else [results])
                if r.requires_grad
            )
            return list(t.autograd.grad(total, leaves))

        return gradient

    return [(differentiated(call), args) for call, args in cases]


def whole(dtype):
    """Ops of integers, with sums that wrap around."""

    def some(*shape):
        return t.randint(-100 if dtype is not t.uint8 else 0, 100, shape).to(dtype)

    filters, bias, matrix, places = some(4, 1, 3, 3), some(4), some(9, 4), t.randint(0, 8, (2, 2, 5, 9))
    calls = each(
        lambda x: F.conv2d(x, filters, bias, padding=1, stride=2, groups=2),
        lambda x: F.conv_transpose2d(x, filters[:2], stride=2), lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, 2, return_indices=True)[1], lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"),
        lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), lambda x: F.fold(F.unfold(x, 3), (8, 9), 3),
        lambda x: x @ matrix, lambda x: x.scatter(2, places, x[:, :, :5]), lambda x: x.scatter_add(2, places, x[:, :, :5]),
    )  # fmt: skip
    return [(calls, [some(2, 2, 8, 9)])]


def test_convolutions_pooling_and_resampling_of_doubles_have_a_form():
    x = t.randn(1, 2, 6, 6, dtype=t.float64)
    model = nn.Sequential(
        nn.Conv2d(2, 2, 3), nn.MaxPool2d(2), nn.Upsample(scale_factor=2), nn.AvgPool2d(2)
    ).double()

    program = build(capture(model, x))

    names = [s.function for s in program.steps]
    assert names == [
        "k_plain_convolution_f64",
        "k_max_pool_f64",
        "k_resample_f64",
        "k_resample_f64",
        "k_average_pool_f64",
    ]
    assert {b.ctype for b in program.buffers()} == {"double", "int32_t"}


CASES = {
    "layers": lambda: layers(t.float64),
    "layer_gradients": lambda: gradients(layers(t.float64)),
    "doubles": doubles,
    "double_gradients": lambda: gradients(doubles()),
    "integers": lambda: [case for dtype in (t.int64, t.int16, t.uint8) for case in whole(dtype)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ops_equal_tenon_on_sanitizers(name, tmp_path):
    function, examples = joined(CASES[name]())

    vectors = write(tmp_path, function, *examples, tolerance=TOLERANCE, train="gradients" in name)

    kinds = {a.dtype.kind for run in vectors.runs for a in run.outputs}
    assert kinds == {"i", "u"} if name == "integers" else "f" in kinds
    assert not any(a.dtype == np.float32 for run in vectors.runs for a in run.outputs)
    assert "1 vectors, 0 failures" in sanitized(tmp_path)
