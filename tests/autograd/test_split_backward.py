"""A backward pass in two parts: the inputs' gradients first, all others later; each rule and function runs once."""

import copy

import pytest

import tenon as torch
from tenon import nn
from tenon.engine.split_backward import SplitBackward
from tenon.errors import GradError
from tenon.utils.checkpoint import checkpoint


class Times(torch.autograd.Function):
    """Counts its backward passes."""

    calls = 0

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        Times.calls += 1
        x, w = ctx.saved_tensors
        return g * w, g * x


class Layer(nn.Module):
    """``kind`` chooses what is peculiar about it."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.inner, self.w = kind, nn.Linear(6, 6), nn.Parameter(torch.rand(6))
        self.hooked = 0

    def forward(self, x):
        if self.kind == "checkpoint":
            return checkpoint(self.inner, x, use_reentrant=False)
        if self.kind == "function":
            return Times.apply(self.inner(x), self.w)
        if self.kind == "shared":
            return self.inner(torch.relu(self.inner(x))) + self.inner.weight.sum() * self.w
        if self.kind == "weights":
            return x * (self.w * 2).exp().sum() + self.inner(self.w).sum()
        x = self.inner(x)
        if self.kind == "hook" and x.requires_grad:
            x.register_hook(self.double)
        return x

    def double(self, g):
        self.hooked += 1
        return g * 2


KINDS = ["plain", "checkpoint", "function", "shared", "weights", "hook"]


@pytest.mark.parametrize("kind", KINDS)
def test_both_parts_give_the_gradients_of_a_whole_pass(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), Layer(kind), nn.LayerNorm(6), nn.Linear(6, 6))
    expected = copy.deepcopy(model)
    x, g = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)
    expected(x).backward(g)
    given = x.detach().clone().requires_grad_(True)
    output, calls = model(given), Times.calls

    split = SplitBackward([output], [g], [given])

    torch.testing.assert_close(split.input_gradients[0], x.grad)
    assert given.grad is None and all(p.grad is None for p in model.parameters())
    split.finish()
    split.finish()
    for (name, one), other in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, msg=name)
    assert Times.calls - calls == (kind == "function") and model[2].hooked == (kind == "hook")
    with pytest.raises(GradError, match="second time"):
        output.sum().backward()


def test_rules_of_weights_do_not_run_in_the_first_part():
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Tanh(), nn.Linear(6, 6, bias=False))
    x = torch.randn(4, 6, requires_grad=True)
    split = SplitBackward([model(x)], [torch.ones(4, 6)], [x])

    assert len(split._sweep.waiting) == 2 and split._sweep.deferred == []


def test_roots_that_depend_on_some_inputs_only_and_gradients_that_accumulate():
    w = torch.ones(3, requires_grad=True)
    x, y, unused = (torch.full((3,), float(n), requires_grad=True) for n in (2, 3, 4))
    w.grad = torch.ones(3)
    split = SplitBackward([(x * w).sum(), y * w, w * 5], [None, torch.ones(3), torch.ones(3)], [x, y, unused])

    assert [None if g is None else g.tolist() for g in split.input_gradients] == [[1.0] * 3, [1.0] * 3, None]
    assert w.grad.tolist() == [1.0] * 3
    split.finish()
    assert w.grad.tolist() == [11.0] * 3


def test_hooks_of_weights_run_once_on_their_whole_gradient():
    layer, seen = nn.Linear(3, 3), []
    layer.weight.register_hook(lambda g: seen.append(g.clone()))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    x = torch.randn(2, 3, requires_grad=True)
    split = SplitBackward([layer(layer(x))], [torch.ones(2, 3)], [x])

    assert seen == []
    split.finish()
    assert len(seen) == 2 and torch.equal(seen[0], seen[1]) and torch.equal(seen[1], layer.weight.grad)
