"""Half of the channels of small networks of many kinds: masked, removed, reloaded, with the same outputs."""

import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.nn.utils import parametrizations

pytestmark = pytest.mark.together

F = nn.functional


class Dense(nn.Module):
    """Every layer reads the results of all layers before it."""

    def __init__(self):
        super().__init__()
        self.stem, self.out = nn.Conv2d(2, 4, 1), nn.Conv2d(16, 2, 1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 + 4 * i) for i in range(3))
        self.layers = nn.ModuleList(nn.Conv2d(4 + 4 * i, 4, 3, padding=1) for i in range(3))

    def forward(self, x):
        x = self.stem(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = tenon.cat([x, layer(F.relu(norm(x)))], 1)
        return self.out(x)


class Gated(nn.Module):
    """The feed-forward part of a language model."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.up, self.gate, self.down = (nn.Linear(*s, bias=False) for s in ((8, 16), (8, 16), (16, 8)))

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Last(nn.Module):
    """The last state of a recurrent layer, by cells or by the whole layer."""

    def __init__(self, cell):
        super().__init__()
        self.layer = nn.LSTMCell(4, 6) if cell else nn.GRU(4, 6, 2, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        if isinstance(self.layer, nn.GRU):
            return self.out(self.layer(x)[1][-1])
        state = None
        for step in range(x.shape[1]):
            state = self.layer(x[:, step], state)
        return self.out(state[0])


class Projected(nn.Module):
    """Recurrent layers of which a part of the states goes on, over bags of words."""

    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.EmbeddingBag(9, 6), nn.LSTM(6, 8, 2, bidirectional=True, proj_size=4)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        bags = self.words((x.reshape(-1, x.shape[-1]).abs() * 4).long().clamp(max=8))
        return self.out(self.layer(bags.reshape(*x.shape[:2], -1))[0])


class Einsum(nn.Module):
    """Parameters outside of layers: a map by einsum, and added positions."""

    def __init__(self):
        super().__init__()
        self.first, self.places = nn.Linear(4, 6), nn.Parameter(tenon.randn(1, 3, 6))
        self.weight = nn.Parameter(tenon.randn(6, 5))

    def forward(self, x):
        return tenon.einsum("bti,io->bto", (self.first(x) + self.places).relu(), self.weight)


class Stepped(nn.Module):
    """A recurrence of its own, whose state begins with a size that is an attribute."""

    def __init__(self):
        super().__init__()
        self.hidden = 6
        self.first, self.next, self.out = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.hidden)
        for step in range(x.shape[1]):
            state = (self.first(x[:, step]) + self.next(state)).tanh()
        return self.out(state)


def normalized():
    """Weights that are computed, in the class itself."""
    layers = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)
    first, second = parametrizations.weight_norm(layers[0]), parametrizations.spectral_norm(layers[1])
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), layers[2])


class Grouped(nn.Module):
    """Queries in groups that share their keys and values."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(16)
        self.q, self.k, self.v, self.o = (
            nn.Linear(*s, bias=False) for s in ((16, 16), (16, 8), (16, 8), (16, 16))
        )

    def forward(self, x):
        y, heads = self.norm(x), (*x.shape[:-1], -1, 4)
        q, k, v = (layer(y).view(heads).transpose(1, 2) for layer in (self.q, self.k, self.v))
        batch, several, length, width = k.shape
        every = batch, several, q.shape[1] // several, length, width
        k, v = (t[:, :, None].expand(every).reshape(batch, -1, length, width) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return x + self.o(y.reshape(*x.shape[:-1], -1))


class Squares(nn.Module):
    """Patches of pixels, each embedded as a vector."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Conv2d(2, 6, 3, padding=1), nn.Linear(24, 5)

    def forward(self, x):
        x = self.first(x).relu()
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
        return self.out(x.reshape(batch, -1, 4 * channels))


class Head(nn.Module):
    """One head of attention, which divides by the root of a width that it takes from a tensor."""

    def __init__(self):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(16, 4, bias=False) for _ in range(3))

    def forward(self, x):
        k, q, v = self.key(x), self.query(x), self.value(x)
        return (q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5).softmax(-1) @ v


class Heads(nn.Module):
    """Heads as modules of a list, one after the other."""

    def __init__(self):
        super().__init__()
        self.heads, self.proj = nn.ModuleList(Head() for _ in range(4)), nn.Linear(16, 16)

    def forward(self, x):
        return self.proj(tenon.cat([head(x) for head in self.heads], -1))


class Shuffled(nn.Module):
    """Half of the channels goes through a branch, then both halves are shuffled (Ma et al., 2018)."""

    def __init__(self):
        super().__init__()
        self.stem, self.out = nn.Conv2d(2, 16, 1), nn.Conv2d(16, 2, 1)
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1),
            )
            for _ in range(2)
        )  # fmt: skip

    def forward(self, x):
        x = self.stem(x).relu()
        for branch in self.branches:
            same, other = x.chunk(2, 1)
            x = tenon.cat([same, branch(other)], 1)
            batch, channels, height, width = x.shape
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)
        return self.out(x)


class Unit(nn.Module):
    """Convolutions in groups, whose results are shuffled among the groups (Zhang et al., 2017)."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(12, 24, 1, groups=3, bias=False), nn.Conv2d(24, 12, 1, groups=3)
        self.norm, self.within = nn.BatchNorm2d(24), nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False)

    def forward(self, x):
        y = self.norm(self.first(x)).relu()
        batch, channels, height, width = y.shape
        y = y.view(batch, 3, channels // 3, height, width).transpose(1, 2).reshape(batch, -1, height, width)
        return (x + self.last(self.within(y))).relu()


class Timed(nn.Module):
    """A module that creates constants whose size is in its code."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(4, 12), nn.SiLU(), nn.Linear(12, 8))
        self.first, self.out = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.out((self.first(x) + self.time(tenon.ones(x.shape[0], 4))).relu())


def images(layers):
    return lambda: nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), *layers(), nn.Conv2d(8, 2, 1))


PLANES, WORDS = (2, 2, 6, 6), (2, 3, 4)
NETWORKS = {
    "dense": (Dense, PLANES),
    "gated": (Gated, (2, 3, 8)),
    "cells": (lambda: Last(True), WORDS),
    "gru": (lambda: Last(False), WORDS),
    "projections": (Projected, WORDS),
    "einsum": (Einsum, WORDS),
    "steps": (Stepped, WORDS),
    "normalized": (normalized, (3, 4)),
    "groups": (Grouped, (2, 5, 16)),
    "squares": (Squares, PLANES),
    "heads": (Heads, (2, 5, 16)),
    "timed": (Timed, (3, 4)),
    "halves": (Shuffled, PLANES),
    "decoder": (lambda: nn.Transformer(16, 4, 1, 1, 32, batch_first=True), (2, 4, 16), (2, 5, 16)),
    "groups of a norm": (images(lambda: [nn.GroupNorm(4, 8), nn.SiLU(), nn.Conv2d(8, 8, 1)]), PLANES),
    "groups without numbers": (images(lambda: [nn.GroupNorm(4, 8, affine=False), nn.SiLU()]), PLANES),
    "shuffled groups": (
        lambda: nn.Sequential(nn.Conv2d(2, 12, 1), Unit(), Unit(), nn.Conv2d(12, 2, 1)), PLANES
    ),
    "cardinality": (
        images(lambda: [nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(16),
                        nn.ReLU(), nn.ConvTranspose2d(16, 8, 2, groups=4)]),
        PLANES,
    ),
    "instance norm": (images(lambda: [nn.InstanceNorm2d(8, affine=True), nn.ReLU()]), PLANES),
    "depthwise up": (
        images(lambda: [nn.Upsample(scale_factor=2, mode="bilinear"), nn.ConvTranspose2d(8, 8, 2, 2, groups=8)]),
        PLANES,
    ),
    "shuffle": (lambda: nn.Sequential(nn.Conv2d(2, 16, 1), nn.PixelShuffle(2), nn.Conv2d(4, 2, 1)), PLANES),
    "circular": (
        images(lambda: [nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), nn.LeakyReLU()]),
        PLANES,
    ),
    "maxima": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 6, 3), nn.MaxPool1d(2), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(12, 2)
        ),
        (2, 2, 20),
    ),
    "glu": (lambda: nn.Sequential(nn.Conv1d(2, 16, 3), nn.GLU(1), nn.Conv1d(8, 2, 3)), (2, 2, 9)),
    "volumes": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 4, 3), nn.BatchNorm3d(4), nn.ELU(), nn.AvgPool3d(2), nn.Flatten(), nn.Linear(32, 3)
        ),
        (2, 1, 6, 6, 6),
    ),
    "bfloat16": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)).bfloat16(), (3, 4)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_half_of_a_network_goes_and_what_it_says_stays(name):
    make, *shapes = NETWORKS[name]
    tenon.manual_seed(0)
    model = make().eval()
    dtype = next(model.parameters()).dtype
    args = tuple(tenon.randn(shape).to(dtype) for shape in shapes)
    count = tenon.prune.mask_channels(model, args, 0.5)
    wanted = model(*args)

    receipt = tenon.prune.compact(model, args, seconds=0)

    assert count > 0 and receipt[""].parameters.ratio < 0.8 and receipt.notes == ()
    assert difference(model(*args), wanted) < 1e-5
    fresh = tenon.prune.load(make().eval(), model.state_dict())
    assert difference(fresh(*args), wanted) < 1e-5
