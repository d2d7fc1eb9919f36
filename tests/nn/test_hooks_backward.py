"""Full backward hooks: in-place changes on both sides, what hooks may return, when they fire."""

from collections import namedtuple

import pytest

import tenon
from tenon import nn


class Double(nn.Module):
    def forward(self, x):
        return x * 2


class Identity(nn.Module):
    def forward(self, x):
        return x


class InPlace(nn.Module):
    def forward(self, x):
        return x.mul_(3)


def watch(module):
    seen = []
    module.register_full_backward_hook(
        lambda m, gi, go: seen.append(
            ([None if g is None else g.tolist() for g in gi], [g.tolist() for g in go])
        )
    )
    return seen


def test_in_place_change_of_a_hooked_modules_output_works():
    x = tenon.tensor([1.0, -2.0], requires_grad=True)
    module = Double()
    seen = watch(module)

    y = module(x)
    y.mul_(5)
    y.sum().backward()

    assert seen == [([[10.0, 10.0]], [[5.0, 5.0]])]
    assert x.grad.tolist() == [10.0, 10.0]


def test_in_place_module_with_a_hook_works():
    x = tenon.tensor([1.0, -2.0], requires_grad=True)
    module = InPlace()
    seen = watch(module)

    hidden = x * 2
    y = module(hidden)
    (y * 7).sum().backward()

    assert y.tolist() == [6.0, -12.0]
    assert seen == [([[21.0, 21.0]], [[7.0, 7.0]])]
    assert x.grad.tolist() == [42.0, 42.0]


def test_the_input_of_an_in_place_module_keeps_a_right_history():
    def run(hooked):
        x = tenon.tensor([1.0, 2.0], requires_grad=True)
        module = InPlace()
        if hooked:
            module.register_full_backward_hook(lambda m, gi, go: None)
        hidden = x * 2
        y = module(hidden)
        (y * hidden).sum().backward()
        return x.grad.tolist()

    assert run(hooked=True) == run(hooked=False) == [72.0, 144.0]


def test_in_place_change_of_a_leaf_is_still_refused():
    module = InPlace()
    watch(module)

    with pytest.raises(RuntimeError, match=r"leaf Variable that requires grad"):
        module(tenon.ones(2, requires_grad=True))


def test_in_place_change_of_a_saved_output_is_still_refused():
    class Exp(nn.Module):
        def forward(self, x):
            return x.exp()

    module = Exp()
    watch(module)
    y = module(tenon.ones(2, requires_grad=True))
    y.mul_(2)

    with pytest.raises(RuntimeError, match=r"modified by an inplace operation"):
        y.sum().backward()


def test_in_place_change_of_a_view_that_a_hooked_module_returns():
    class Flat(nn.Module):
        def forward(self, x):
            return x.reshape(-1)

    def run(hooked):
        x = tenon.ones(2, 2, requires_grad=True)
        module = Flat()
        if hooked:
            watch(module)
        hidden = x * 3
        y = module(hidden)
        y.mul_(2)
        (hidden * hidden).sum().backward()
        return x.grad.tolist()

    assert run(hooked=True) == run(hooked=False)


def test_identity_module_shows_the_same_gradient_twice():
    x = tenon.ones(2, requires_grad=True)
    module = Identity()
    seen = watch(module)

    (module(x) + x).sum().backward()

    assert seen == [([[1.0, 1.0]], [[1.0, 1.0]])]
    assert x.grad.tolist() == [2.0, 2.0]


def test_backward_hook_fires_once_per_call_of_a_shared_module():
    x = tenon.ones(1, requires_grad=True)
    module = Double()
    seen = watch(module)

    module(module(x)).sum().backward()

    assert seen == [([[2.0]], [[1.0]]), ([[4.0]], [[2.0]])]


def test_backward_hooks_see_nothing_without_gradients():
    module = Double()
    seen = watch(module)

    with tenon.no_grad():
        assert module(tenon.ones(1, requires_grad=True)).requires_grad is False
    module(tenon.ones(1))

    assert seen == []


def test_backward_pre_hook_alone_changes_the_gradient():
    module = Double()
    module.register_full_backward_pre_hook(lambda m, go: [go[0] * 3])
    x = tenon.ones(1, requires_grad=True)

    module(x).sum().backward()

    assert x.grad.tolist() == [6.0]


def test_backward_hook_with_a_dict_output_warns():
    class Named(nn.Module):
        def forward(self, x):
            return {"y": x * 2}

    module = Named()
    watch(module)

    with pytest.warns(UserWarning, match=r"module output should be a Tensor or a tuple of Tensors"):
        module(tenon.ones(1, requires_grad=True))


def test_backward_hook_keeps_named_tuples():
    Pair = namedtuple("Pair", ("a", "b"))

    class Two(nn.Module):
        def forward(self, x):
            return Pair(x * 2, 5)

    module = Two()
    seen = []
    module.register_full_backward_hook(lambda m, gi, go: seen.append(go))
    out = module(tenon.ones(1, requires_grad=True))
    out.a.sum().backward()

    assert isinstance(out, Pair) and out.b == 5
    assert seen[0][1] is None


@pytest.mark.parametrize(
    "returned, text",
    [
        (lambda gi: 5, "return None or a tuple of 1 grad_input"),
        (lambda gi: (gi[0], gi[0]), "invalid number of grad_input, got 2, but expected 1"),
        (lambda gi: (tenon.ones(5),), r"gradient of shape \[5\] for input 0 of shape \[2\]"),
    ],
)
def test_backward_hook_that_returns_no_gradient_is_named(returned, text):
    module = Double()
    module.register_full_backward_hook(lambda m, gi, go: returned(gi))

    with pytest.raises(RuntimeError, match=text):
        module(tenon.ones(2, requires_grad=True)).sum().backward()


def test_backward_hook_without_inputs_must_return_none():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(tenon.ones(1))

        def forward(self, x):
            return x * self.weight

    module = Weighted()
    module.register_full_backward_hook(lambda m, gi, go: (tenon.ones(1),))

    with (
        pytest.warns(UserWarning, match=r"no inputs require gradients"),
        pytest.raises(RuntimeError, match=r"should always return None"),
    ):
        module(tenon.ones(1)).sum().backward()


def test_backward_twice_through_a_kept_graph_fires_twice():
    module = Double()
    seen = watch(module)
    y = module(tenon.ones(1, requires_grad=True)).sum()

    y.backward(retain_graph=True)
    y.backward()

    assert len(seen) == 2


def test_autograd_grad_sees_backward_hooks():
    module = Double()
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    x = tenon.ones(1, requires_grad=True)

    (grad,) = tenon.autograd.grad(module(x).sum(), x)

    assert grad.tolist() == [20.0]


def test_hooks_on_every_layer_of_a_network_with_in_place_activations():
    """What breaks in torch: every module hooked, and ReLU(inplace=True) between them (pytorch#61519)."""

    def build():
        tenon.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 2)
        )

    def gradients(hooked):
        net, seen = build(), []
        x = tenon.arange(64, dtype=tenon.float32).reshape(2, 2, 4, 4).div(64).requires_grad_()
        if hooked:
            for path, module in net.named_modules():
                module.register_full_backward_hook(lambda m, gi, go, path=path: seen.append(path))
                module.register_full_backward_pre_hook(lambda m, go: None)
        (net(x) ** 2).sum().backward()
        return [p.grad.tolist() for p in net.parameters()], x.grad.tolist(), seen

    plain, hooked = gradients(hooked=False), gradients(hooked=True)

    assert hooked[:2] == plain[:2]
    assert hooked[2] == ["4", "3", "2", "1", "0", ""]
