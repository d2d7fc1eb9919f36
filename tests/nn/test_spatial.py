"""What the parity catalogue does not say about pooling, padding, resizing and sampling."""

import itertools
import math

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.nn import functional as F


def numbers(*shape, seed=0):
    return tenon.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_wide_padding_is_that_of_numpy(mode):
    x = numbers(2, 3, 90)

    made = F.pad(x, (70, 50), mode=mode)  # too wide for copies of single elements: by tables

    wanted = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    np.testing.assert_array_equal(made.numpy(), np.pad(x.numpy(), [(0, 0), (0, 0), (70, 50)], mode=wanted))


def test_unpooling_puts_back_what_pooling_found():
    x = numbers(2, 3, 8, 8)
    pooled, places = F.max_pool2d(x, 2, return_indices=True)

    restored = F.max_unpool2d(pooled, places, 2)

    kept = restored.numpy() != 0
    assert int(kept.sum()) == pooled.numel()
    np.testing.assert_array_equal(restored.numpy()[kept], x.numpy()[kept])
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        F.max_unpool2d(pooled, places + 60, 2)


def test_sampling_at_the_identity_gives_the_image():
    x = numbers(2, 3, 5, 6)
    theta = tenon.tensor([[[1.0, 0, 0], [0, 1, 0]]]).expand(2, 2, 3)

    made = F.grid_sample(x, F.affine_grid(theta, (2, 3, 5, 6), align_corners=True), align_corners=True)

    np.testing.assert_allclose(made.numpy(), x.numpy(), atol=1e-6)


def test_a_sample_outside_reads_nothing_not_even_nan():
    x = tenon.full((1, 1, 90, 120), math.nan)
    grid = tenon.full((1, 90, 120, 2), 3.0)  # large enough for compiled loops

    assert float(F.grid_sample(x, grid, align_corners=False).abs().max()) == 0
    assert float(F.grid_sample(x[..., :4, :4], grid[:, :2, :2], align_corners=False).abs().max()) == 0


def test_large_grids_sample_as_small_ones_do():
    x, grid = numbers(1, 2, 30, 20), numbers(1, 100, 60, 2, seed=1)
    parts = [
        F.grid_sample(x, grid[:, i : i + 10], mode="bicubic", padding_mode="reflection", align_corners=False)
        for i in range(0, 100, 10)
    ]

    whole = F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False)

    np.testing.assert_allclose(whole.numpy(), tenon.cat(parts, 2).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: F.interpolate(x, size=(5, 9), mode="bicubic", antialias=True),
        lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"),
        lambda x: F.grid_sample(x, x[:, :, :4, :2].tanh(), align_corners=False),
        lambda x: F.adaptive_max_pool2d(x, 3),
        lambda x: F.fold(F.unfold(x, 3), (8, 8), 3),
        lambda x: F.instance_norm(x),
    ],
)
def test_a_compiled_function_gives_the_same_values_and_gradients(function):
    def step(x):
        y = x.clone().requires_grad_()
        total = (function(y) ** 2).sum()
        total.backward()
        return total.detach(), y.grad

    compiled, x = tenon.compile(step), numbers(2, 4, 8, 8)
    compiled(x)

    for made, wanted in zip(compiled(x + 1), step(x + 1), strict=True):
        np.testing.assert_allclose(made.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)


def test_given_samples_decide_the_windows_of_fractional_pooling():
    x, samples = numbers(2, 3, 9, 9), tenon.rand(2, 3, 2)
    pool = nn.FractionalMaxPool2d(2, output_size=4, _random_samples=samples)

    assert (pool(x) == pool(x)).all()
    assert nn.FractionalMaxPool2d(2, 4)(x).shape == (2, 3, 4, 4)


@pytest.mark.oracle
def test_cross_map_norm_is_torchs_on_few_channels_and_local_response_norm_on_more():
    torch = pytest.importorskip("torch")
    few, many = numbers(2, 2, 5, 4), numbers(2, 9, 5, 4)
    ours, theirs = nn.CrossMapLRN2d(3, 0.5, k=2.0), torch.nn.CrossMapLRN2d(3, 0.5, k=2.0)

    wanted = theirs(torch.from_numpy(few.numpy())).numpy()
    np.testing.assert_allclose(ours(few).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(
        ours(many).numpy(), F.local_response_norm(many, 3, 0.5, k=2.0).numpy(), rtol=1e-5
    )
    assert repr(ours) == repr(theirs)


def test_instance_norm_refuses_statistics_that_it_does_not_track():
    state = nn.InstanceNorm1d(3, track_running_stats=True).state_dict()
    del state._metadata

    with pytest.raises(RuntimeError, match="track_running_stats=True"):
        nn.InstanceNorm1d(3).load_state_dict(state)


@pytest.mark.oracle
def test_max_pooling_of_long_lines_is_torchs():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(0, 9, (40, 8, 61)).astype(np.float32)
    for size, step, before, dilation in ((2, 2, 0, 1), (3, 2, 1, 1), (3, 1, 1, 2), (5, 3, 2, 1)):
        made, wanted = [], []
        for lib, found in ((tenon, made), (torch, wanted)):
            leaf = lib.from_numpy(x.copy()).requires_grad_()
            y, places = lib.nn.functional.max_pool1d(leaf, size, step, before, dilation, return_indices=True)
            (y * y).sum().backward()
            found += [y.detach().numpy(), places.numpy(), leaf.grad.numpy()]

        for a, b in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_grid_sampler_takes_the_modes_as_numbers(rng):
    x, grid = (tenon.tensor(rng.uniform(-1, 1, size)) for size in ((1, 2, 4, 5), (1, 3, 3, 2)))

    for mode, number in F.GRID_SAMPLE_INTERPOLATION_MODES.items():
        for padding, other in F.GRID_SAMPLE_PADDING_MODES.items():
            wanted = F.grid_sample(x, grid, mode, padding, align_corners=True)
            assert tenon.equal(tenon.grid_sampler(x, grid, number, other, True), wanted)
    with pytest.raises(ValueError, match="interpolation_mode should be 0, 1 or 2, but got 3"):
        tenon.grid_sampler(x, grid, 3, 0, True)


def test_a_grid_of_affine_maps_keeps_nothing_for_backward_so_it_may_run_twice():
    theta = tenon.rand(2, 3, 4, dtype=tenon.float64, requires_grad=True)
    grid = F.affine_grid(theta, (2, 1, 2, 3, 4), align_corners=True)
    slope = tenon.rand(grid.shape, dtype=tenon.float64)

    grid.backward(slope)
    once = theta.grad.clone()
    grid.backward(slope)

    assert tenon.allclose(theta.grad, 2 * once)
    short = F.affine_grid(theta.detach().bfloat16(), (2, 1, 2, 3, 4), align_corners=True)
    assert short.dtype == tenon.bfloat16
    assert tenon.allclose(short.double(), grid.detach(), atol=0.05)


@pytest.mark.parametrize(
    ("rank", "dtype", "compiled"),
    [
        (3, "float16", False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in itertools.product((2, 3), ("float16", "bfloat16"), (False, True))
            if case != (3, "float16", False)
        ),
    ],
)
def test_sampling_16_bit_floats_reads_the_elements_that_wide_coordinates_name(rank, dtype, compiled):
    sizes = (4, 5, 6)[:rank]
    x, grid = (
        numbers(2, *shape).clamp(-1.5, 1.5).to(getattr(tenon, dtype))
        for shape in ((3, *sizes), (*sizes, rank))
    )

    for mode, padding, align in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)
    ):

        def sampled(x, grid, settings=(mode, padding, align)):
            x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
            y = F.grid_sample(x, grid, *settings)
            return y, *tenon.autograd.grad(y.double().square().sum(), [x, grid])

        function = tenon.compile(sampled) if compiled else sampled
        for _ in range(3):
            found = function(x, grid)

        for ours, exact in zip(found, sampled(x.double(), grid.double()), strict=True):
            unit = tenon.finfo(ours.dtype).eps
            tenon.testing.assert_close(
                ours.double(), exact, rtol=4 * unit, atol=8 * unit * float(exact.abs().max())
            )
