"""How the graph shows gradients that were copied, sums that were spread, and views that were changed."""

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
    """The class of ``fn`` and of all behind it."""
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
