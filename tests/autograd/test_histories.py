"""Gradient nodes of copied gradients, of expanded sums, and of views that were changed in place."""

import importlib

import pytest

pytestmark = pytest.mark.oracle


@pytest.fixture(params=["tenon", "torch"])
def t(request):
    """The library under test, and the one that it is compared with."""
    found = pytest.importorskip(request.param)
    importlib.import_module(f"{request.param}.autograd._functions")
    return found


def described(fn):
    """The class of ``fn`` and of all nodes before it."""
    if fn is None:
        return "None"
    return f"{type(fn).__name__}({', '.join(described(f) for f, _ in fn.next_functions)})"


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_with_a_graph_is_a_copy_of_what_arrived(t):
    x, g = t.ones(2, 2, requires_grad=True), t.ones((), requires_grad=True)

    x.sum().backward(g, create_graph=True)

    assert described(x.grad.grad_fn) == "CopyBackwards(None, ExpandBackward0(AccumulateGrad()))"
    x.grad.sum().backward()
    assert g.grad.item() == 4.0
    x.grad = None


def test_a_view_of_what_was_changed_shows_as_strided_or_its_own_op(t):
    replay, base = t.autograd._force_original_view_tracking, t.ones(2, 2, requires_grad=True)
    enabled = t.autograd.is_view_replay_enabled

    def changed():
        view = base.clone().view(-1)
        view.add_(1)
        return type(view.grad_fn).__name__

    assert changed() == "AsStridedBackward0" and not enabled()
    with replay(True):
        assert changed() == "ViewBackward0" and enabled()
        with replay(False):
            replay(True)
            assert enabled()
    assert changed() == "AsStridedBackward0" and not enabled()
    replay(True)
    assert enabled()
    replay(False)
    base.clone().real.mul_(2).sum().backward()
    assert base.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_the_old_resize_gives_the_gradient_back_at_the_first_sizes(t):
    resize = t.autograd._functions.Resize.apply
    x = t.arange(6.0, requires_grad=True)

    (resize(x, (2, 3)) * t.ones(2, 3)).sum().backward()

    assert x.grad.tolist() == [1.0] * 6
    with pytest.raises(RuntimeError, match="requested resize to"):
        resize(x, (4,))
    shapes = t.autograd._calculate_shape(x, t.ones(5, 6), True)
    assert [tuple(s) for s in shapes] == [(6,), (6,)]


def test_a_change_of_one_part_of_complex_numbers_leaves_the_gradient_of_the_other(t):
    def gradient(change):
        z = t.tensor([1 + 2j, 3 + 4j], requires_grad=True)
        w = z.clone()
        change(w)
        (w.real * 2 + w.imag * 3).sum().backward()
        return z.grad.tolist()

    assert gradient(lambda w: w.real.mul_(2)) == [4 + 3j, 4 + 3j]
    assert gradient(lambda w: w[0].imag.mul_(5)) == [2 + 15j, 2 + 3j]
    assert gradient(lambda w: t.view_as_real(w).t()[1].mul_(3)) == [2 + 9j, 2 + 9j]
    x = t.ones(2, 2, requires_grad=True)
    y = x.clone()
    t.view_as_complex(y)[0] *= 2j
    (y * t.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert x.grad.tolist() == [[4.0, -2.0], [3.0, 4.0]]


def test_views_that_become_others_untaped_follow_their_base(t):
    for name, args in (("t_", ()), ("as_strided_", ((1, 0), (2, 2))), ("unsqueeze_", (0,))):
        base = t.ones(2, 3, requires_grad=True).clone()
        view, part = base.view_as(base), base.unbind()[0].view(1, 3)
        with t.no_grad():
            getattr(view, name)(*args)
            part.t_()
        view.mul_(2)
        assert base.grad_fn is not None and view.requires_grad
        with pytest.raises(RuntimeError, match="function that returns multiple views"):
            part.add_(1)
        with pytest.raises(RuntimeError, match="function that returns multiple views"):
            base.unbind()[0].unsqueeze_(0)
