"""Kernels that write into a program's memory, and the temporary arrays that its kernels share."""

import numpy as np
import pytest

from tenon import ops
from tenon.kernels.backend import backend_named
from tenon_cpu.jit.compiler.compile import available
from tenon_cpu.jit.fusion import scratch

CPU = backend_named("cpu")
RANDOM = np.random.default_rng(3)
pytestmark = pytest.mark.skipif(not available(), reason="needs numba")


def test_a_table_is_read_into_the_given_array_and_an_index_outside_raises():
    table, indices = RANDOM.normal(size=(50, 64)).astype(np.float32), RANDOM.integers(0, 50, (16, 32))
    out = np.empty((16, 32, 64), np.float32)
    run = CPU.compiler.prepare(ops.embedding, (table, indices), {}, (out,))

    run()
    np.testing.assert_array_equal(out, table[indices])
    indices[3, 3] = 50

    with pytest.raises(IndexError):
        run()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_gradient_of_a_loss_may_take_the_place_of_the_scores(reduction):
    x, target = RANDOM.normal(size=(256, 64)).astype(np.float32), RANDOM.integers(0, 64, 256)
    g, total = np.array(2, np.float32), np.log(np.exp(x).sum(1, keepdims=True))
    target[::5] = -100
    want = CPU.raw.cross_entropy_grad(g, x, total, target, None, reduction=reduction)
    place = x.copy()

    run = CPU.compiler.prepare(
        ops.cross_entropy_grad, (g, place, total, target, None), {"reduction": reduction}, (place,)
    )
    run()

    np.testing.assert_array_equal(place, want)


@pytest.mark.parametrize(
    "out", [np.empty((8, 8), np.float32), np.empty((128, 64)), np.empty((64, 128), np.float32).T]
)
def test_small_arrays_and_those_that_no_loop_fills_are_left_to_a_copy(out):
    table, indices = RANDOM.normal(size=(50, out.shape[1])).astype(out.dtype), np.zeros(out.shape[0], int)

    assert CPU.compiler.prepare(ops.embedding, (table, indices), {}, (out,)) is None


def test_kernels_of_one_program_share_temporary_arrays_and_others_do_not():
    with CPU.compiler.binding():
        first, second = scratch.arrays((100, 7))
        (again,) = scratch.arrays((90,))
        (larger,) = scratch.arrays((1000,))
        (after,) = scratch.arrays((100,))
    (alone,) = scratch.arrays((100,))

    assert np.shares_memory(first, again) and np.shares_memory(larger, after)
    assert not np.shares_memory(first, second) and not np.shares_memory(after, alone)
    assert (larger.size, first.size, second.size) == (1000, 100, 7)
