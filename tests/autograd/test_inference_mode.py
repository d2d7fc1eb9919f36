"""Tensors made in ``inference_mode`` stay out of autograd, as PyTorch's do."""

from __future__ import annotations

import copy

import pytest

import tenon
from tenon.errors import GradError

pytestmark = pytest.mark.together


def made(t):
    with t.inference_mode():
        return t.arange(4.0).reshape(2, 2) + 0


def leaf(t):
    return t.arange(1.0, 5.0).reshape(2, 2).clone().requires_grad_()


def nested(t):
    modes = []
    with t.inference_mode(), t.inference_mode(False):
        modes += [t.is_inference_mode_enabled(), t.is_grad_enabled(), t.ones(1).is_inference()]
        modes.append((leaf(t) * 2).requires_grad)
    return modes


def enabled_inside(t):
    w = leaf(t)
    with t.inference_mode(), t.enable_grad():
        y = w * 2
    return y.requires_grad, y.is_inference()


def seen_inside(t):
    normal = t.ones(2, 2)
    with t.inference_mode():
        view = normal.view(4)
        view.add_(1)
        return view.is_inference(), view._version, (normal * 2).is_inference(), normal.is_inference()


def leaf_made_inside(t):
    with t.inference_mode():
        x = t.ones(2, requires_grad=True)
    (x + 2).sum().backward()
    return x.is_inference(), x.requires_grad, x.grad


def of_leaves_made_inside(t):
    with t.inference_mode():
        x, y = t.ones(2, requires_grad=True), t.ones(2)
    weight = t.ones(2, requires_grad=True)
    results = [x * x, x * y, x.sin(), x.view(1, 2), t.cat([x, y]), x[0]]
    (x + weight).sum().backward()
    return [(r.requires_grad, r.is_leaf, r._is_view()) for r in results], x.grad, weight.grad


def of_random_numbers(t):
    with t.inference_mode():
        x = t.randn(3)
        return x.is_inference(), x.uniform_(0, 1).is_inference(), t.sort(x)[1].is_inference()


KEPT = {
    "leaves made inside": of_leaves_made_inside,
    "flags": lambda t: [
        v(made(t)).is_inference() for v in (lambda s: s, lambda s: s[0], lambda s: s.detach())
    ],
    "copies are normal": lambda t: [made(t).clone().is_inference(), copy.deepcopy(made(t)).is_inference()],
    "results are normal": lambda t: (made(t) * t.ones(2, 2)).is_inference(),
    "not needed by the backward": lambda t: (made(t) + leaf(t)).relu(),
    "read by a write": lambda t: t.ones(2, 2).add_(made(t)),
    "requires_grad off": lambda t: made(t).requires_grad_(False).requires_grad,
    "nested": nested,
    "enabled inside": enabled_inside,
    "seen inside": seen_inside,
    "leaf made inside": leaf_made_inside,
    "random": of_random_numbers,
}
REFUSED = {
    "saved by a product": (lambda t: made(t) * leaf(t), "cannot be saved for backward"),
    "saved by linear": (lambda t: t.nn.functional.linear(made(t), leaf(t)), "cannot be saved for backward"),
    "add_": (lambda t: made(t).add_(1), "outside InferenceMode"),
    "add_ without gradients": (lambda t: t.no_grad()(lambda: made(t).add_(1))(), "outside InferenceMode"),
    "a view": (lambda t: made(t)[0].add_(1), "outside InferenceMode"),
    "assignment": (lambda t: made(t).__setitem__(0, 1.0), "outside InferenceMode"),
    "uniform_": (lambda t: made(t).uniform_(0, 1), "outside InferenceMode"),
    "out=": (lambda t: t.add(t.ones(2, 2), 1, out=made(t)), "outside InferenceMode"),
    "version": (lambda t: made(t)._version, "do not track version"),
    "requires_grad": (lambda t: made(t).requires_grad_(), "outside InferenceMode"),
}


@pytest.mark.oracle
@pytest.mark.parametrize("program", KEPT.values(), ids=KEPT)
def test_what_is_allowed(parity, program):
    parity(program)


@pytest.mark.oracle
@pytest.mark.parametrize(("program", "match"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(parity, program, match):
    parity(program, match)


def test_a_refused_write_changes_nothing():
    x = made(tenon)
    for write in (lambda: x.add_(1), lambda: x.__setitem__(0, 1.0), lambda: x.normal_()):
        with pytest.raises(GradError):
            write()

    assert x.tolist() == [[0, 1], [2, 3]]


def test_a_custom_function_cannot_save_one():
    class Scale(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor)
            return x * factor

    with pytest.raises(GradError, match="cannot be saved for backward"):
        Scale.apply(leaf(tenon), made(tenon))


def test_a_model_trains_after_it_was_used_for_inference():
    net = tenon.nn.Sequential(tenon.nn.Conv1d(1, 2, 3), tenon.nn.BatchNorm1d(2), tenon.nn.Dropout(0.1))
    with tenon.inference_mode():
        net(tenon.randn(2, 1, 8))
    net(tenon.randn(2, 1, 8)).sum().backward()

    assert net[0].weight.grad is not None
