"""Pooling agrees with torch over windows, strides, paddings, ceil mode and ties."""

from __future__ import annotations

import numpy as np
import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]

LAYOUTS = {
    "two": ((2, 3, 6, 8), {"kernel_size": 2}),
    "odd sizes": ((2, 3, 7, 5), {"kernel_size": 2}),
    "odd sizes ceil": ((2, 3, 7, 5), {"kernel_size": 2, "ceil_mode": True}),
    "overlapping": ((2, 3, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "overlapping ceil": ((2, 3, 8, 8), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    "uneven": ((2, 3, 9, 8), {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0)}),
    "gaps": ((1, 2, 9, 9), {"kernel_size": 2, "stride": 4}),
    "whole": ((2, 3, 4, 4), {"kernel_size": 4}),
    "empty batch": ((0, 3, 6, 8), {"kernel_size": 2}),
    "unbatched": ((3, 6, 8), {"kernel_size": 2}),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_max_pool2d_agrees(agree, rng, name, dtype):
    shape, options = LAYOUTS[name]

    agree(lambda t, F, x: F.max_pool2d(x, **options), rng.standard_normal(shape).astype(dtype))


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "unbatched"])
def test_max_pool2d_indices_agree(agree, rng, name):
    shape, options = LAYOUTS[name]

    agree(lambda t, F, x: F.max_pool2d(x, **options, return_indices=True), rng.standard_normal(shape))


@pytest.mark.parametrize("name", ["two", "overlapping", "odd sizes ceil"])
def test_ties_go_to_the_first_element(agree, rng, name):
    shape, options = LAYOUTS[name]

    agree(lambda t, F, x: F.max_pool2d(x, **options), rng.integers(0, 2, shape).astype(np.float64))


def test_dilated_max_pool_agrees(agree, rng):
    agree(lambda t, F, x: F.max_pool2d(x, 2, 1, 1, 2), rng.standard_normal((2, 3, 7, 8)))


def test_max_pool_of_minus_infinity_and_nan_agrees(agree):
    x = np.full((1, 1, 4, 4), -np.inf)
    x[0, 0, 2, 2] = np.nan

    agree(lambda t, F, x: F.max_pool2d(x, 2), x, order=0)


@pytest.mark.parametrize("scale", [1, 8])
@pytest.mark.parametrize("layout", [(2,), (3, 2, 1), (2, 2, 0, 2)], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_of_several_nans_the_last_is_chosen(rng, rank, layout, scale):
    torch = pytest.importorskip("torch")
    sizes = {1: (64,), 2: (16, 16), 3: (8, 8, 8)}[rank]
    x = rng.standard_normal((2 * scale, 3 * scale, *sizes)).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = np.nan
    found = []

    for lib in (tenon, torch):
        pool = getattr(lib.nn.functional, f"max_pool{rank}d")
        leaf = lib.from_numpy(x.copy()).requires_grad_()
        values, places = pool(leaf, *layout, return_indices=True)
        out = pool(leaf, *layout)
        g = lib.from_numpy(np.arange(out.numel(), dtype=np.float32).reshape(tuple(out.shape)))
        slopes = [lib.autograd.grad(o, leaf, g)[0] for o in (values, out)]
        found.append([t.detach().numpy() for t in (values, places, out, *slopes)])

    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("name", ["adaptive_max_pool1d", "adaptive_max_pool2d"])
@pytest.mark.parametrize("scale", [1, 8])
def test_of_several_nans_in_uneven_windows_the_last_is_chosen(agree, rng, name, scale):
    x = rng.standard_normal((2 * scale, 3 * scale, *(16,) * int(name[-2]))).astype(np.float32)
    x[rng.random(x.shape) < 0.3] = np.nan

    agree(lambda t, F, x: getattr(F, name)(x, 5, return_indices=True), x, order=0)


@pytest.mark.parametrize("name", ["two", "overlapping", "gaps"])
def test_second_order_agrees(agree, rng, name):
    shape, options = LAYOUTS[name]
    x = rng.standard_normal(shape)

    agree(lambda t, F, x: F.max_pool2d(x, **options) ** 3, x, order=2)
    agree(lambda t, F, x: F.avg_pool2d(x, **options) ** 3, x, order=2)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("include", [True, False])
def test_avg_pool2d_agrees(agree, rng, name, include):
    shape, options = LAYOUTS[name]

    agree(lambda t, F, x: F.avg_pool2d(x, **options, count_include_pad=include), rng.standard_normal(shape))


def test_divisor_override_agrees(agree, rng):
    agree(lambda t, F, x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5), rng.standard_normal((2, 3, 7, 7)))


@pytest.mark.parametrize(
    "options", [{"kernel_size": 3}, {"kernel_size": 2, "stride": 1, "padding": 1, "ceil_mode": True}]
)
def test_pooling_in_one_and_three_axes_agrees(agree, rng, options):
    for shape, rank in (((2, 3, 8), 1), ((3, 8), 1), ((2, 3, 5, 6, 4), 3)):
        x = rng.standard_normal(shape)
        agree(lambda t, F, x, rank=rank: getattr(F, f"max_pool{rank}d")(x, **options), x)
        agree(lambda t, F, x, rank=rank: getattr(F, f"avg_pool{rank}d")(x, **options), x)


@pytest.mark.parametrize("sizes", [1, (1, 1), (2, 3), (3, None), 7, (9, 2), (5, 10)])
def test_adaptive_avg_pool2d_agrees(agree, rng, sizes):
    agree(lambda t, F, x: F.adaptive_avg_pool2d(x, sizes) ** 2, rng.standard_normal((2, 3, 7, 5)), order=2)


def test_adaptive_avg_pool1d_and_unbatched_agree(agree, rng):
    agree(lambda t, F, x: F.adaptive_avg_pool1d(x, 3), rng.standard_normal((2, 3, 8)))
    agree(lambda t, F, x: F.adaptive_avg_pool2d(x, 2), rng.standard_normal((3, 5, 8)))


def test_strided_inputs_agree(agree, rng):
    x = rng.standard_normal((8, 6, 3, 2))

    agree(lambda t, F, x: F.max_pool2d(x.permute(3, 2, 1, 0), 2), x)
    agree(lambda t, F, x: F.avg_pool2d(x.permute(3, 2, 1, 0)[:, ::2], 2), x)


def test_grad_fn_prints_as_in_torch():
    torch = pytest.importorskip("torch")
    names = []
    for t in (tenon, torch):
        F = t.nn.functional
        x = t.ones(2, 3, 4, 4, requires_grad=True)
        results = [
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 3),
            F.adaptive_avg_pool2d(x, 1),
        ]
        names.append([r.grad_fn.name() for r in results])

    assert names[0] == names[1]


REFUSED = {
    "too small": lambda t, F, x: F.max_pool2d(x, 9),
    "too much padding": lambda t, F, x: F.max_pool2d(x, 2, padding=2),
    "flat": lambda t, F, x: F.max_pool2d(x[0, 0], 2),
    "average too small": lambda t, F, x: F.avg_pool2d(x, 9),
    "average padding": lambda t, F, x: F.avg_pool2d(x, 2, padding=2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_windows_are_refused_in_torchs_words(refuse, name):
    refuse(REFUSED[name], np.ones((1, 1, 4, 4), np.float32))


@pytest.mark.parametrize(("size", "dilation"), [(3, 1), (3, 2), (40, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_windows_of_padding_and_minus_infinity_choose_their_first_element(size, dilation, dtype):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (tenon, torch):
        x = lib.full((2, 3, size, size), -np.inf, dtype=getattr(lib, dtype), requires_grad=True)
        options = {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": dilation}
        out, places = lib.nn.functional.max_pool2d(x, **options, return_indices=True)
        (through_places,) = lib.autograd.grad(out.sum(), x)
        (plain,) = lib.autograd.grad(lib.nn.functional.max_pool2d(x, **options).sum(), x)
        found.append([each.detach().numpy() for each in (out, places, through_places, plain)])

    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("norm", [float("inf"), -float("inf")])
def test_infinite_norms_are_the_largest_and_the_smallest_size_in_a_window(rank, norm, rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((2, 3, *[5] * rank))
    ours, theirs = tenon.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    pooled = [
        getattr(lib.nn.functional, f"lp_pool{rank}d")(t, norm, 2, None, True)
        for lib, t in ((tenon, ours), (torch, theirs))
    ]

    for made in pooled:
        made.sum().backward()

    np.testing.assert_array_equal(pooled[0].detach().numpy(), pooled[1].detach().numpy())
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_windows_with_a_stride_of_zero_or_too_many_sizes_are_refused(rank):
    F, x = tenon.nn.functional, tenon.ones(1, 2, *(4,) * rank)
    pools = [getattr(F, f"{kind}_pool{rank}d") for kind in ("max", "avg")]

    for pool in pools:
        with pytest.raises(RuntimeError, match="stride should not be zero: stride "):
            pool(x, 2, stride=0)
        with pytest.raises(RuntimeError, match=rf"{pool.__name__}.* .?kernel_size"):
            pool(x, (2,) * 4)
    with pytest.raises(RuntimeError, match=r"dilation (must|should) be greater than zero"):
        pools[0](x, 2, dilation=0)
    if rank > 1:
        uneven = getattr(F, f"fractional_max_pool{rank}d")
        with pytest.raises(RuntimeError, match="kernel_size must either be a single Int or tuple of"):
            uneven(x, (1,), output_size=2)
        with pytest.raises(RuntimeError, match="output_size must either be a single Int or tuple of"):
            uneven(x, 2, output_size=())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_places_that_were_changed_give_no_gradient(rank):
    x = tenon.arange(float(2 * 4**rank)).reshape(1, 2, *(4,) * rank).requires_grad_()
    made, places = getattr(tenon.nn.functional, f"max_pool{rank}d")(x, 2, return_indices=True)
    made.sum().backward(retain_graph=True)

    places += 1

    assert x.grad.sum() == made.numel()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()


@pytest.mark.parametrize("dtype", [tenon.bfloat16, tenon.float16])
def test_averages_of_short_numbers_are_rounded_once(dtype):
    x = tenon.linspace(-1, 2, 64).reshape(1, 1, 8, 8).to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()

    for given in (x, wide):
        made = tenon.nn.functional.avg_pool2d(given, 7, 1)
        made.sum().backward()

    assert tenon.equal(tenon.nn.functional.avg_pool2d(x, 7, 1), made.to(dtype))
    assert x.grad.dtype is dtype and tenon.equal(x.grad, wide.grad.to(dtype))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_adaptive_pools_need_a_size_per_axis(rank):
    F, x = tenon.nn.functional, tenon.ones(1, 2, *(4,) * rank)

    for kind in ("avg", "max"):
        words = "should contain one int" if rank == 1 else f"output_size.* must be {rank}"
        with pytest.raises(RuntimeError, match=words):
            getattr(F, f"adaptive_{kind}_pool{rank}d")(x, (1,) * (rank + 1))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 2), "3 dimensions, got 2"),
        ((1, 3, 2), r"size\(1\) equals"),
        ((1, 2, 3), r"size\(2\) equals to 2; got 3"),
    ],
)
def test_random_samples_that_do_not_fit_are_refused(shape, words):
    with pytest.raises(RuntimeError, match=f"Expect _random_samples.*{words}"):
        tenon.nn.functional.fractional_max_pool2d(
            tenon.ones(1, 2, 4, 4), 2, output_size=2, _random_samples=tenon.ones(shape)
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_powers_of_16_bit_floats_whose_root_is_in_range_are(dtype):
    x = tenon.full((1, 1, 4), 300.0, dtype=getattr(tenon, dtype), requires_grad=True)

    y = tenon.nn.functional.lp_pool1d(x, 2, 4)
    y.sum().backward()

    assert y.dtype == x.dtype and y.item() == 600.0
    assert x.grad.flatten().tolist() == [0.5] * 4
