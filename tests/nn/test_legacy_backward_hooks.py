"""``register_backward_hook``: torch's old name, with the gradients of a full hook."""

from collections import OrderedDict

import pytest

import tenon
from tenon import nn
from tenon.errors import OldHookWarning
from tenon.nn.modules import module as global_hooks


class Pair(nn.Module):
    def forward(self, both):
        return {"sum": both[0] + both[1], "product": both[0] * both[1]}


def test_old_hook_gets_the_gradients_of_the_module():
    seen = []
    module = nn.Sigmoid()
    module.register_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = tenon.zeros(2, requires_grad=True)

    module(x).backward(tenon.ones(2) * 2)

    ((grad_input,), (grad_output,)) = seen[0]
    assert grad_input.tolist() == [0.5, 0.5]
    assert grad_output.tolist() == [2.0, 2.0]


def test_old_hook_sees_tensors_in_lists_and_dictionaries():
    seen = []
    module = Pair()
    module.register_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    a = tenon.tensor([2.0], requires_grad=True)
    b = tenon.tensor([3.0], requires_grad=True)

    with pytest.warns(OldHookWarning, match="does not return a single Tensor or a tuple of Tensors"):
        out = module([a, b])
    (out["sum"] + out["product"]).backward()

    grad_input, grad_output = seen[0]
    assert [g.item() for g in grad_input] == [4.0, 3.0]
    assert [g.item() for g in grad_output] == [1.0, 1.0]


def test_old_hook_says_where_torch_would_give_other_gradients():
    class Twice(nn.Module):
        def forward(self, x):
            return x.exp().log()

    module = Twice()
    module.register_backward_hook(lambda *args: None)

    with pytest.warns(FutureWarning, match="the forward contains multiple autograd Nodes"):
        module(tenon.ones(1, requires_grad=True))


def test_one_module_takes_one_kind_of_backward_hook():
    old, full = nn.ReLU(), nn.ReLU()
    old.register_backward_hook(print)
    full.register_full_backward_hook(print)

    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        old.register_full_backward_hook(print)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        full.register_backward_hook(print)


def test_global_hooks_are_of_one_kind_while_there_are_any():
    handle = global_hooks.register_module_backward_hook(lambda *args: None)

    with handle, pytest.raises(RuntimeError, match="as a global Module hook"):
        global_hooks.register_module_full_backward_hook(print)
    global_hooks.register_module_full_backward_hook(print).remove()


def test_assigning_an_empty_dictionary_removes_the_global_hooks():
    calls = []
    global_hooks.register_module_forward_hook(lambda *args: calls.append(1))
    nn.ReLU()(tenon.ones(1))

    global_hooks._global_forward_hooks = OrderedDict()
    nn.ReLU()(tenon.ones(1))

    assert calls == [1]
    assert len(global_hooks._global_forward_hooks) == 0
