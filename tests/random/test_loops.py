"""Compiled loops draw the same numbers as NumPy, and leave the stream in the same state."""

from __future__ import annotations

import numpy as np
import pytest

from tenon import random
from tenon.random import box_muller, loops
from tenon.random.mt19937 import MersenneTwister

draws = pytest.importorskip("tenon_cpu.draws")
jit = pytest.importorskip("tenon_cpu.jit.compiler.compile")
pytestmark = [
    pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}"),
    pytest.mark.together,
]


@pytest.fixture
def both():
    """Run a function with NumPy's loops and with the compiled ones; both results."""
    before = loops._State.loops

    def run(function):
        results = []
        for use in (None, draws.CompiledLoops()):
            loops.use(use)
            results.append(function())
        return results

    yield run
    loops.use(before)


@pytest.mark.parametrize("first", [0, 1, 623, 624, 3000])
@pytest.mark.parametrize("count", [8192, 8193, 100_000])
def test_words_and_what_follows_them(both, first, count):
    def take():
        stream = MersenneTwister(5)
        stream.take(first)
        return [stream.take(n).copy() for n in (count, 10, count, 5000)] + [stream.state()]

    for a, b in zip(*both(take), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_restored_state_continues_the_same(both):
    def take():
        stream = MersenneTwister(9)
        stream.take(20_000)
        other = MersenneTwister(0)
        other.set_state(stream.state())
        return np.concatenate([stream.take(30_000), other.take(30_000)])

    plain, compiled = both(take)
    np.testing.assert_array_equal(plain, compiled)
    np.testing.assert_array_equal(compiled[:30_000], compiled[30_000:])


@pytest.mark.parametrize("count", [8192, 100_003])
def test_normals_to_the_last_bit(both, count):
    def draw():
        generator = random.Generator().manual_seed(3)
        return [random.normal(generator, (count,)), random.normal(generator, (count,), mean=1.0, std=0.3)]

    for a, b in zip(*both(draw), strict=True):
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_every_64th_radius_and_angle(both):
    words = np.arange(0, 1 << 24, 64, dtype=np.uint32)
    words = np.concatenate([words, words[::-1]])

    def draw():
        out = np.empty(words.size, np.float32)
        box_muller.unit32(words, out)
        return out.view(np.int32)

    np.testing.assert_array_equal(*both(draw))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_coins(both, p, dtype):
    def draw():
        return random.bernoulli(random.Generator().manual_seed(1), p, (70_001,), np.dtype(dtype))

    plain, compiled = both(draw)
    assert plain.dtype == compiled.dtype == dtype
    np.testing.assert_array_equal(plain, compiled)


def test_permutations(both):
    def draw():
        return random.randperm(random.Generator().manual_seed(3), 40_000)

    plain, compiled = both(draw)
    assert plain.dtype == compiled.dtype == np.int64
    np.testing.assert_array_equal(plain, compiled)


def test_exponential_numbers_to_the_last_bit(both):
    def draw():
        generator = random.Generator().manual_seed(3)
        return random.exponential(generator, (40_001,), np.float64, 0.7)

    plain, compiled = both(draw)
    np.testing.assert_array_equal(plain.view(np.int64), compiled.view(np.int64))


def test_short_draws_do_without(monkeypatch):
    monkeypatch.setattr("sys.modules", {})

    assert not draws.CompiledLoops().is_faster(1000)
    assert not draws.CompiledLoops().is_faster(100_000)
