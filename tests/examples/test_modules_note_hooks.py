"""PyTorch's Modules note, continued: initialization, and hooks with the numbers that PyTorch prints."""

import pytest

import tenon as torch
from tenon import nn

# Module Initialization.


def test_modules_start_as_32_bit_floats_on_the_cpu():
    m = nn.Linear(5, 3)

    assert m.weight.dtype is torch.float32 and m.weight.device.type == "cpu"


def test_modules_can_be_made_in_16_bit():
    m = nn.Linear(5, 3, dtype=torch.half)

    assert m.weight.dtype is torch.float16 and m.bias.dtype is torch.float16


def test_default_initialization_can_be_skipped():
    m = torch.nn.utils.skip_init(nn.Linear, 5, 3)

    returned = nn.init.orthogonal_(m.weight)

    assert returned is m.weight
    product = (m.weight @ m.weight.t()).detach()
    assert torch.all((product - torch.eye(3)).abs() < 1e-5)


def test_dtype_holds_for_floating_buffers_too():
    m = nn.BatchNorm2d(3, dtype=torch.half)

    assert repr(m.running_mean) == "tensor([0., 0., 0.], dtype=torch.float16)"


# Module Hooks, with the numbers that PyTorch prints.


def forward_pre_hook(m, inputs):
    # Note that inputs are always wrapped in a tuple.
    assert isinstance(inputs, tuple)
    input = inputs[0]
    return input + 1.0


def forward_hook(m, inputs, output):
    # Residual computation a la ResNet; the inputs are those that the pre-hook made.
    return output + inputs[0]


def backward_hook(m, grad_inputs, grad_outputs):
    assert isinstance(grad_inputs, tuple) and isinstance(grad_outputs, tuple)
    new_grad_inputs = [torch.ones_like(gi) * 42.0 for gi in grad_inputs]
    return new_grad_inputs


def shown(tensor):
    """The numbers as PyTorch prints them."""
    return [[round(value, 4) for value in row] for row in tensor.tolist()]


PLAIN = [[-0.5059, -0.8158, 0.2390], [-0.0043, 0.4724, -0.1714]]
WITH_PRE_HOOK = [[-0.5752, -0.7421, 0.4942], [-0.0736, 0.5461, 0.0838]]
WITH_BOTH = [[-1.0980, 0.6396, 0.4666], [0.3634, 0.6538, 1.0256]]
GRADIENT = [[0.4497, -0.5046, 0.3146]] * 2


@pytest.fixture
def sample():
    torch.manual_seed(1)
    m = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    return m, x


def test_forward_hooks_change_the_printed_outputs(sample):
    m, x = sample

    out = m(x)
    assert shown(out) == PLAIN
    assert repr(out) == (
        "tensor([[-0.5059, -0.8158,  0.2390],\n"
        "        [-0.0043,  0.4724, -0.1714]], grad_fn=<AddmmBackward0>)"
    )

    forward_pre_hook_handle = m.register_forward_pre_hook(forward_pre_hook)
    assert shown(m(x)) == WITH_PRE_HOOK

    forward_hook_handle = m.register_forward_hook(forward_hook)
    both = m(x)
    assert shown(both) == WITH_BOTH
    assert "grad_fn=<AddBackward0>" in repr(both)
    assert torch.all(both == nn.functional.linear(x + 1, m.weight, m.bias) + (x + 1))

    forward_pre_hook_handle.remove()
    forward_hook_handle.remove()
    assert torch.all(m(x) == out)


def test_backward_hook_replaces_the_gradient_of_the_inputs(sample):
    m, x = sample

    m(x).sum().backward()
    assert shown(x.grad) == GRADIENT
    assert repr(x.grad) == "tensor([[ 0.4497, -0.5046,  0.3146],\n        [ 0.4497, -0.5046,  0.3146]])"

    m.zero_grad()
    x.grad.zero_()
    m.register_full_backward_hook(backward_hook)
    m(x).sum().backward()

    assert repr(x.grad) == "tensor([[42., 42., 42.],\n        [42., 42., 42.]])"


def test_gradients_accumulate_when_they_are_not_cleared(sample):
    m, x = sample

    m(x).sum().backward()
    once = x.grad.clone()
    m(x).sum().backward()

    assert torch.all(x.grad == once * 2)


def test_global_hooks_apply_to_modules_one_did_not_write(sample):
    m, x = sample
    seen = []
    register = torch.nn.modules.module
    handles = [
        register.register_module_forward_pre_hook(lambda m, inputs: seen.append("pre")),
        register.register_module_forward_hook(lambda m, inputs, output: seen.append("forward")),
        register.register_module_full_backward_pre_hook(lambda m, grads: seen.append("backward pre")),
        register.register_module_full_backward_hook(lambda m, grad_in, grad_out: seen.append("backward")),
    ]

    try:
        m(x).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    m(x)

    assert seen == ["pre", "forward", "backward pre", "backward"]


def test_pre_hooks_see_the_output_gradients_and_may_change_them(sample):
    m, x = sample
    m.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2,))

    m(x).sum().backward()

    assert shown(x.grad / 2) == GRADIENT
