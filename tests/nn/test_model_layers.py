"""Layers that models need and torch lacks: ``RoPE``, ``SinusoidalPositions``, ``DropPath``, ``PatchEmbed``."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import ModuleValueError, ShapeError

LENGTH, DIM = 7, 6


def turned(x, interleaved, offset=0, base=10000.0):
    """The pairs of ``x`` as complex numbers, rotated."""
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    places = offset + np.arange(x.shape[-2])[:, None]
    made = (first + 1j * second) * np.exp(1j * places * base ** (-np.arange(0, DIM, 2) / DIM))
    if interleaved:
        return np.stack([made.real, made.imag], -1).reshape(x.shape)
    return np.concatenate([made.real, made.imag], -1)


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("offset", [0, 5])
def test_rope_turns_pairs(rng, interleaved, offset):
    x = rng.standard_normal((2, 3, LENGTH, DIM))

    found = nn.RoPE(DIM, 500.0, interleaved=interleaved)(tenon.from_numpy(x), offset)

    np.testing.assert_allclose(found.numpy(), turned(x, interleaved, offset, 500.0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interleaved", [True, False])
def test_products_depend_on_the_distance_only(rng, interleaved):
    rope = nn.RoPE(DIM, interleaved=interleaved)
    q, k = (tenon.from_numpy(rng.standard_normal((1, DIM))) for _ in range(2))

    def product(at, back):
        return float((rope(q, at) * rope(k, at - back)).sum())

    assert product(3, 2) == pytest.approx(product(40, 2), abs=1e-5)
    assert product(3, 2) != pytest.approx(product(3, 1), abs=1e-3)


def test_rope_leaves_the_features_after_dim_and_has_no_state(rng):
    rope, x = nn.RoPE(DIM), tenon.from_numpy(rng.standard_normal((2, LENGTH, DIM + 3)))

    found = rope(x)

    assert tenon.equal(found[..., DIM:], x[..., DIM:])
    np.testing.assert_allclose(
        found[..., :DIM].numpy(), turned(x[..., :DIM].numpy(), False), rtol=1e-5, atol=1e-5
    )
    assert dict(rope.state_dict()) == {}
    assert repr(rope) == "RoPE(6, base=10000.0, interleaved=False, scale=1.0)"


def test_rope_takes_an_offset_for_each_sample(rng):
    rope, x = nn.RoPE(DIM), tenon.from_numpy(rng.standard_normal((2, 3, LENGTH, DIM)))

    found = rope(x, tenon.tensor([[0], [4]]))

    assert tenon.equal(found[0], rope(x[0]))
    assert tenon.equal(found[1], rope(x[1], 4))


def test_a_scale_stretches_the_places(rng):
    x = tenon.from_numpy(rng.standard_normal((1, DIM)))

    np.testing.assert_allclose(nn.RoPE(DIM, scale=0.5)(x, 8).numpy(), nn.RoPE(DIM)(x, 4).numpy(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_angles_of_short_floats_are_exact(rng, kind):
    x = tenon.from_numpy(rng.standard_normal((LENGTH, DIM)).astype(np.float32)).to(getattr(tenon, kind))

    found = nn.RoPE(DIM).to(x.dtype)(x, 4000)

    assert found.dtype is x.dtype
    np.testing.assert_allclose(
        found.float().numpy(), turned(x.float().numpy(), False, 4000), rtol=1e-2, atol=1e-2
    )


def test_a_turn_has_the_opposite_turn_as_its_gradient(rng):
    x = tenon.from_numpy(rng.standard_normal((LENGTH, DIM))).requires_grad_()
    g = rng.standard_normal((LENGTH, DIM))

    nn.RoPE(DIM)(x).backward(tenon.from_numpy(g))

    first, second = np.split(g, 2, -1)
    mirrored = turned(np.concatenate([first, -second], -1), False)
    expected = np.concatenate([mirrored[:, : DIM // 2], -mirrored[:, DIM // 2 :]], -1)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [6, 5])
def test_sinusoids_follow_the_paper(dim):
    found = nn.SinusoidalPositions(dim)(tenon.zeros(2, LENGTH, dim), offset=2).numpy()

    for place in range(LENGTH):
        for i in range(dim):
            angle = (place + 2) / 10000 ** (2 * (i // 2) / dim)
            expected = np.sin(angle) if i % 2 == 0 else np.cos(angle)
            assert found[1, place, i] == pytest.approx(expected, abs=1e-5)


def test_a_path_is_dropped_for_whole_samples():
    tenon.manual_seed(0)
    drop, x = nn.DropPath(0.25), tenon.ones(400, 3, 2, requires_grad=True)

    out = drop(x)
    out.sum().backward()

    rows = out.detach().numpy().reshape(400, -1)
    np.testing.assert_allclose(np.unique(rows), [0, 4 / 3], rtol=1e-6)
    assert (rows == rows[:, :1]).all()
    assert 60 < (rows[:, 0] == 0).sum() < 140
    np.testing.assert_array_equal(x.grad.numpy(), out.detach().numpy())
    assert set(np.unique(nn.DropPath(0.25, scale_by_keep=False)(x).detach().numpy())) == {0.0, 1.0}


def test_a_path_is_kept_in_evaluation_and_dropped_at_probability_one():
    x = tenon.ones(4, 3)

    assert nn.DropPath(0.9).eval()(x) is x
    assert nn.DropPath(0.0)(x) is x
    assert not nn.DropPath(1.0)(x).any()


def test_keyed_samples_drop_alike_in_every_batch():
    drop, x = nn.DropPath(0.5), tenon.ones(8, 3)

    with tenon.random.keyed(seed=3, step=5, samples=range(8)):
        whole = drop(x)
    with tenon.random.keyed(seed=3, step=5, samples=range(4, 8)):
        part = drop(x[4:])

    assert tenon.equal(whole[4:], part)
    assert whole.any() and not whole.all()


@pytest.mark.oracle
def test_patches_are_a_strided_convolution(agree, rng):
    def embed(t, F, x, weight, bias):
        if t is not tenon:
            return F.conv2d(x, weight, bias, stride=(4, 2)).flatten(2).transpose(1, 2)
        layer = nn.PatchEmbed((8, 6), (4, 2), 3, 5)
        return tenon.func.functional_call(layer, {"proj.weight": weight, "proj.bias": bias}, (x,))

    agree(embed, rng.standard_normal((2, 3, 8, 6)), rng.standard_normal((5, 3, 4, 2)), rng.standard_normal(5))


def test_patches_know_their_grid():
    layer = nn.PatchEmbed(8, 4, 3, 5, norm_layer=nn.LayerNorm, bias=False)

    assert (layer.grid_size, layer.num_patches) == ((2, 2), 4)
    assert list(layer.state_dict()) == ["proj.weight", "norm.weight", "norm.bias"]
    assert layer(tenon.zeros(2, 3, 8, 8)).shape == (2, 4, 5)
    assert nn.PatchEmbed(None, 4, 3, 5, flatten=False)(tenon.zeros(2, 3, 8, 12)).shape == (2, 5, 2, 3)


def test_layers_compile_to_the_same():
    tenon.manual_seed(0)
    model = nn.Sequential(nn.PatchEmbed(8, 4, 3, 6), nn.SinusoidalPositions(6), nn.RoPE(6), nn.DropPath(0.5))
    x = tenon.randn(16, 3, 8, 8)
    compiled = tenon.compile(model, fullgraph=True)

    seen = set()
    for _ in range(4):
        out = compiled(x).detach().numpy()
        kept = (out != 0).any((1, 2))
        seen.add(tuple(kept))
        expected = 2 * model[:3](x).detach().numpy()
        np.testing.assert_allclose(out[kept], expected[kept], rtol=1e-5, atol=1e-5)
    assert compiled.programs
    assert len(seen) > 1


REFUSED = {
    "odd pairs": (lambda: nn.RoPE(5), ModuleValueError, "even"),
    "few features": (lambda: nn.RoPE(6)(tenon.zeros(3, 4)), ShapeError, "at least 6"),
    "no axis of places": (lambda: nn.RoPE(6)(tenon.zeros(6)), ShapeError, "at least 6"),
    "no width": (lambda: nn.SinusoidalPositions(0), ModuleValueError, "positive"),
    "another width": (lambda: nn.SinusoidalPositions(4)(tenon.zeros(3, 5)), ShapeError, "L, 4"),
    "probability": (lambda: nn.DropPath(1.5), ModuleValueError, "between 0 and 1"),
    "indivisible image": (lambda: nn.PatchEmbed(9, 4), ShapeError, "do not divide"),
    "another image": (lambda: nn.PatchEmbed(8, 4)(tenon.zeros(1, 3, 8, 4)), ShapeError, "img_size=None"),
    "an indivisible one": (lambda: nn.PatchEmbed(None, 4)(tenon.zeros(1, 3, 8, 5)), ShapeError, "Crop"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_says_what_does_not_fit(what):
    call, error, words = REFUSED[what]

    with pytest.raises(error, match=words):
        call()
