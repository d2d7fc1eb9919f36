"""Sliding windows along an axis."""

from __future__ import annotations

import pytest

import tenon
from tenon import ops


def test_windows_are_a_view():
    x = tenon.arange(6.0)

    windows = x.unfold(0, 3, 2)
    x[2] = 9.0

    assert windows.tolist() == [[0, 1, 9], [9, 3, 4]]


def test_overlapping_windows_add_up_in_the_gradient():
    x = tenon.arange(5.0, requires_grad=True)

    x.unfold(0, 3, 1).sum().backward()

    assert x.grad.tolist() == [1, 2, 3, 2, 1]


def test_folding_is_the_transpose_of_unfolding():
    tenon.manual_seed(0)
    x, y = tenon.randn(3, 7, dtype=tenon.float64), tenon.randn(3, 3, 2, dtype=tenon.float64)

    left = (ops.unfold_axis(x, axis=1, size=2, step=2) * y).sum()
    right = (x * ops.fold_axis(y, shape=(3, 7), axis=1, step=2)).sum()

    assert left.item() == pytest.approx(right.item())


def test_windows_have_gradients_of_both_orders():
    x = tenon.randn(2, 6, 3, dtype=tenon.float64, requires_grad=True)

    assert tenon.autograd.gradgradcheck(lambda t: t.unfold(1, 3, 2) ** 2, (x,))


def test_a_number_has_windows_of_at_most_one():
    assert tenon.tensor(3.0).unfold(0, 1, 1).tolist() == [3.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 9, 1), "maximum size for tensor at dimension 0 is 5 but size is 9"),
        ((0, 2, 0), "step is 0 but must be > 0"),
    ],
)
def test_impossible_windows_are_refused(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        tenon.arange(5.0).unfold(*arguments)
