"""Filling, reversing, outer products and in-place addition by compiled loops equal the reference."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import IndexRangeError, ViewError
from tenon_cpu.jit.compiler import compile as jit

BACKEND = tenon.zeros(1)._backend
pytestmark = [
    pytest.mark.skipif(not jit.available(), reason=f"kernels cannot be compiled: {jit.reason()}"),
    pytest.mark.together,
]
ODD = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-40], np.float32)


def drawn(*shape):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[: ODD.size] = ODD[: x.size]
    return x


@pytest.mark.parametrize("value", [1.5, -0.0, float("nan"), True, 1e-40, 3])
def test_a_number_fills_new_arrays_and_old_ones(value):
    made = tenon.zeros(101, 99)
    before = made.raw

    filled = tenon.full((101, 99), value, dtype=tenon.float32)
    made.fill_(value)

    for found in (made, filled):
        np.testing.assert_array_equal(found.raw, np.full((101, 99), value, np.float32))
        assert np.signbit(found.raw).all() == np.signbit(value)
    assert made.raw is before


def test_filling_a_part_leaves_the_rest_alone():
    x = tenon.ones(200, 100)

    x[:, ::2].fill_(2.5)
    x[:50].zero_()

    assert x[50:, 1::2].eq(1).all() and x[50:, ::2].eq(2.5).all() and not x[:50].any()


@pytest.mark.parametrize("axes", [(2,), (0,), (1, 2), ()])
@pytest.mark.parametrize("lies", ["whole", "turned", "strided", "empty"])
def test_reversed_axes_equal_the_reference(axes, lies):
    x = {"whole": drawn(9, 33, 41), "turned": drawn(41, 33, 9).T, "strided": drawn(9, 33, 82)[..., ::2]}
    x = x.get(lies, np.zeros((0, 3, 4), np.float32))

    found = BACKEND.kernels[ops.flip](x, axes=axes)

    np.testing.assert_array_equal(found, np.flip(x, axes))
    assert found.flags.c_contiguous or (lies == "turned" and found.flags.f_contiguous)
    assert not np.may_share_memory(found, x)


@pytest.mark.parametrize("sizes", [(101, 97), (1, 9000), (9000, 1), (0, 9000)])
@pytest.mark.parametrize("step", [1, 2])
def test_all_products_of_two_vectors_and_their_gradients(sizes, step):
    vectors = [drawn(size * step)[::step] for size in sizes]
    x, y = (tenon.from_numpy(v).requires_grad_() for v in vectors)

    out = x.outer(y)

    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out.raw, np.multiply.outer(*vectors))
    assert out.grad_fn.name() == "MulBackward0"
    g = drawn(*sizes).clip(-1, 1) if 0 not in sizes else np.zeros(sizes, np.float32)
    g, x, y = np.nan_to_num(g), *(tenon.from_numpy(np.nan_to_num(v, posinf=2, neginf=-2)) for v in vectors)
    found = tenon.autograd.grad(
        x.requires_grad_().outer(y.requires_grad_()), (x, y), tenon.from_numpy(g.copy())
    )
    np.testing.assert_allclose(found[0].raw, g @ y.detach().raw, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1].raw, x.detach().raw @ g, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_slices_are_added_where_they_belong_without_a_copy(dim):
    x, index = tenon.from_numpy(drawn(99, 99)), tenon.tensor([3, 0, 3, 98, 7])
    source = tenon.from_numpy(drawn(*((5, 99) if dim == 0 else (99, 5))))
    expected, before = x.index_add(dim, index, source, alpha=2), x.raw

    x.index_add_(dim, index, source, alpha=2)

    np.testing.assert_array_equal(x.raw, expected.raw)
    assert x.raw is before and x._version == 1


def test_overlapping_memory_is_not_added_in_place():
    x = tenon.from_numpy(np.nan_to_num(drawn(99, 99), posinf=1, neginf=2))
    before = x.clone()

    with pytest.raises(ViewError, match="single memory location"):
        x.index_add_(0, tenon.tensor([1, 2]), x[:2])

    np.testing.assert_array_equal(x.raw, before.raw)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("size", [4, 120])
def test_a_place_that_is_none_changes_nothing(dim, size):
    x, source = tenon.ones(size, size), tenon.ones(*((2, size) if dim == 0 else (size, 2)))

    with pytest.raises(IndexRangeError):
        x.index_add_(dim, tenon.tensor([0, size]), source)

    assert x.eq(1).all() and x._version == 0


@pytest.mark.parametrize("axis", [0, 1])
def test_a_number_is_written_to_large_arrays(axis):
    x, index = drawn(150, 150), np.random.default_rng(0).integers(0, 150, (150, 150))
    expected = x.copy()
    np.put_along_axis(expected, index, np.float32(2.5), axis)

    found = tenon.from_numpy(x).scatter(axis, tenon.from_numpy(index), 2.5)

    np.testing.assert_array_equal(found.numpy(), expected)
    with pytest.raises(IndexRangeError, match="out of bounds"):
        tenon.from_numpy(x).scatter(axis, tenon.from_numpy(index + 1), 2.5)
