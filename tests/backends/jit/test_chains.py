"""Consecutive bound kernels merged into one call, and generated code for tiny matrix products."""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.graph.cluster import Builder

pytest.importorskip("llvmlite")

from tenon_cpu.jit.fusion import chains, clusters

SHAPES = [
    ((4,), (4, 3), (3,)),
    ((2, 4), (4, 3), (2, 3)),
    ((3, 5), (5,), (3,)),
    ((6,), (6,), ()),
    ((1, 1), (1, 1), (1, 1)),
    ((13, 9), (9, 17), (13, 17)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("x", "y", "out"), SHAPES, ids=str)
def test_tiny_products_are_those_of_numpy(x, y, out, dtype):
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal(x).astype(dtype), rng.standard_normal(y).astype(dtype), np.empty(out, dtype)

    chains.prepare("matmul", [a, b], {}, [c])()

    # Another order of the additions shows where terms cancel.
    assert np.allclose(c, a @ b, rtol=1e-5, atol=np.finfo(dtype).eps * (np.abs(a) @ np.abs(b)).max())


def test_tiny_products_of_transposed_and_spread_matrices():
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((5, 3)).astype(np.float32).T,
        rng.standard_normal((5, 8)).astype(np.float32)[:, ::-2],
    )
    out = np.empty((4, 3), np.float32).T

    chains.prepare("matmul", [a, b], {}, [out])()

    assert np.allclose(out, a @ b, rtol=1e-5)


def test_infinities_and_nan_go_through_tiny_products():
    a = np.array([[np.inf, 1.0], [np.nan, 2.0], [3.0, 4.0]], np.float32)
    b, out = np.array([[0.0, 1.0], [1.0, 2.0]], np.float32), np.empty((3, 2), np.float32)
    chains.prepare("matmul", [a, b], {}, [out])()

    with np.errstate(invalid="ignore"):
        assert np.array_equal(out, a @ b, equal_nan=True)


@pytest.mark.parametrize(
    "reason", ["large", "integers", "mixed", "empty", "batched", "overlapping", "another op"]
)
def test_other_products_are_left_to_libraries(reason):
    x, y, out = (np.ones(s, np.float32) for s in ((4, 4), (4, 4), (4, 4)))
    name = "matmul"
    if reason == "large":
        x, y, out = (
            np.ones((64, 64), np.float32),
            np.ones((64, 64), np.float32),
            np.ones((64, 64), np.float32),
        )
    if reason == "integers":
        x, y, out = x.astype(int), y.astype(int), out.astype(int)
    if reason == "mixed":
        y = y.astype(np.float64)
    if reason == "empty":
        x, out = x[:0], out[:0]
    if reason == "batched":
        x, out = x[None], out[None]
    if reason == "overlapping":
        out = x
    if reason == "another op":
        name = "dot"

    assert chains.prepare(name, [x, y], {}, [out]) is None


def doubled(source, target):
    builder = Builder()
    x = builder.input(source.shape, source.dtype)
    return clusters.fuse(builder.build([x * 2.0])).bind(source, target)


def test_a_chain_does_its_steps_in_order_and_keeps_their_arrays_alive():
    arrays = [np.full(10, 1.5, np.float32) for _ in range(4)]
    steps = [doubled(a, b) for a, b in pairwise(arrays)]
    last = arrays[3]

    def other():
        last[0] = -1

    groups = chains.chain([*steps, other, steps[0]])

    assert [count for count, _ in groups] == [3, 1, 1]
    first = arrays[0]
    del arrays, steps
    first[:] = 3
    groups[0][1]()
    assert np.all(last == 24)
    ((count, whole),) = chains.chain([groups[0][1], groups[0][1]])
    last[:] = 0
    whole()
    assert count == 2
    assert np.all(last == 24)


def test_a_bound_kernel_takes_no_arguments_and_goes_with_its_arrays():
    source = np.ones(10, np.float32)
    thunk = doubled(source, np.empty_like(source))
    entries = weakref.ref(chains.entries_of(thunk))

    with pytest.raises(TypeError):
        thunk(source)
    del thunk

    assert entries() is None
    assert chains.entries_of(print) is None


def test_a_tiny_training_step_is_one_call_and_trains_as_eager_does():
    def make():
        tenon.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
        optimizer = tenon.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
        x, y = tenon.randn(8, 4), tenon.randn(8, 1)

        def step():
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    eager, compiled = make(), tenon.compile(make())
    losses = [(float(eager()), float(compiled())) for _ in range(30)]

    assert np.allclose(*zip(*losses, strict=True), rtol=1e-4)
    (program,) = compiled.programs
    assert program.source.count("together_") == 1


def test_a_compiler_without_chains_calls_its_steps_one_by_one():
    from tenon.extend import Compiler

    one, other = (lambda: None), (lambda: None)

    assert list(Compiler().chain([one, other])) == [(1, one), (1, other)]
