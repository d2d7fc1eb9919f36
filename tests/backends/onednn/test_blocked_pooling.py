"""Max pooling of 2 by 2 windows in blocked layouts, and its gradient, against the reference."""

import numpy as np
import pytest

import tenon.ops  # noqa: F401  (fills the table of ops)
from tenon.engine.op import table
from tenon_cpu.onednn import blocked_pooling
from tenon_cpu.onednn.layouts import PLAIN, Layout, blocked
from tenon_cpu.onednn.runtime import available

QUARTERS = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
pytestmark = [
    pytest.mark.skipif(not available() or blocked() == PLAIN, reason="no oneDNN, no blocks"),
    pytest.mark.together,
]


def in_blocks(x, block):
    """``[N, C, H, W]`` in the memory order of blocks."""
    n, c, h, w = x.shape
    moved = np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))
    return moved.reshape(x.shape)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf, "ties"], ids=str)
@pytest.mark.parametrize("size", [(8, 6), (2, 2), (4, 26)], ids=str)
def test_maxima_and_their_gradient_in_the_place_of_x_are_the_references(size, value, block):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 32, *size), dtype=np.float32)
    if value == "ties":
        x = np.round(x)
    elif value is not None:
        x[0, :3, :1], x[1, 2, 1, 1] = value, value
    out = table["max_pool"].forward(np, x, **QUARTERS)
    g = rng.standard_normal(out.shape, dtype=np.float32)
    g[0, 0, 0, 0], g[2, 5, 0, 0] = np.nan, np.inf
    wanted = in_blocks(table["max_pool_grad"].forward(np, g, x, out, **QUARTERS), block)
    x, out, g = (in_blocks(a, block) for a in (x, out, g))
    made = np.empty_like(out)

    blocked_pooling.max_pool(x, made, block)()
    blocked_pooling.max_pool_grad(g, x, made, x, block)()

    np.testing.assert_array_equal(made, out)
    np.testing.assert_array_equal(x, wanted)


def test_only_whole_quarters_of_blocks_are_taken():
    x, own = np.empty((2, 32, 8, 6), np.float32), Layout("blocked", 16)

    assert blocked_pooling.takes(x, np.empty((2, 32, 4, 3)), QUARTERS, own, own)
    assert not blocked_pooling.takes(x, np.empty((2, 32, 4, 3)), QUARTERS, own, PLAIN)
    assert not blocked_pooling.takes(x[:, :, :7], np.empty((2, 32, 3, 3)), QUARTERS, own, own)
    assert not blocked_pooling.takes(x, np.empty((2, 32, 4, 3)), QUARTERS | {"kernel": (3, 3)}, own, own)
