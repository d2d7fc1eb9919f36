"""Gradients where a formula alone gives NaN or favours one operand: ties, NaN, the origin; and their layout."""

import pytest

pytestmark = pytest.mark.oracle


@pytest.fixture(params=["tenon", "torch"])
def t(request):
    """The library under test, and the one that it is compared with."""
    return pytest.importorskip(request.param)


@pytest.mark.parametrize("name", ["min", "max", "median", "nanmedian"])
def test_extremes_of_everything_share_their_gradient_also_among_nans(t, name):
    nan = float("nan")

    def gradient(*values):
        x = t.tensor(values, requires_grad=True)
        getattr(t, name)(x).backward()
        return x.grad.tolist()

    third = pytest.approx(1 / 3)
    assert gradient(1.0, 0.0, 1.0, 0.0, 1.0, 0.0) == (
        [third, 0, third, 0, third, 0] if name == "max" else [0, third, 0, third, 0, third]
    )
    assert gradient(nan, nan, nan) == [third] * 3
    assert gradient(nan, 2.0, nan) == ([0, 1, 0] if name == "nanmedian" else [0.5, 0, 0.5])


def test_the_angle_of_the_origin_has_no_gradient(t):
    x, y = (t.zeros(1, requires_grad=True) for _ in range(2))

    t.atan2(x, y).backward()

    assert x.grad.item() == y.grad.item() == 0.0


def test_gradients_have_the_memory_order_of_their_leaves(t):
    for own in (t.contiguous_format, t.channels_last):
        for other in (t.contiguous_format, t.channels_last):
            a, b = (t.rand(2, 3, 4, 5).to(memory_format=f).requires_grad_() for f in (own, other))
            (a * b).sum().backward()
            assert (a.grad.stride(), b.grad.stride()) == (a.stride(), b.stride())
            a.grad = None
            a.sum().backward()
            assert a.grad.stride() == a.stride()
