"""An optimizer written as PyTorch's own are, with what those import of ``torch.optim.optimizer``."""

from types import SimpleNamespace

import tenon
from tenon.optim import optimizer as names


class Descent(names.Optimizer):
    def __init__(self, params, lr=0.1, maximize=False, foreach=None, differentiable=False):
        lr = names._to_scalar(lr)
        super().__init__(params, {"lr": lr, "maximize": maximize, "differentiable": differentiable})

    @names._use_grad_for_differentiable
    def step(self, closure=None):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            grads = [p.grad for p in params]
            fused, foreach = names._default_to_fused_or_foreach(
                params, group["differentiable"], use_fused=False
            )
            assert not fused and not foreach
            names._view_as_real(params, grads)
            for p, grad in zip(params, grads, strict=True):
                p.add_(grad, alpha=-names._get_value(group["lr"]))


def test_an_optimizer_with_torchs_imports_descends():
    real, pairs = tenon.ones(2, requires_grad=True), tenon.ones(2, dtype=tenon.complex64, requires_grad=True)
    optimizer = Descent([real, pairs], lr=tenon.tensor([0.5]))
    real.grad, pairs.grad = tenon.full((2,), 2.0), tenon.full((2,), 2j)

    optimizer.step()

    assert real.tolist() == [0, 0] and pairs.tolist() == [1 - 1j, 1 - 1j]
    assert optimizer.param_groups[0]["lr"].shape == ()


def test_a_differentiable_step_records_and_others_do_not():
    x = tenon.ones(2, requires_grad=True)
    step = names._use_grad_for_differentiable(lambda self: (x * 2).requires_grad)

    found = [step(SimpleNamespace(defaults={"differentiable": each})) for each in (True, False)]
    assert found == [True, False] and tenon.is_grad_enabled()


def test_what_is_asked_about_parameters_and_steps():
    x = tenon.ones(2)

    assert names._default_to_fused_or_foreach([x, None], False, use_fused=True) == (True, False)
    assert names._default_to_fused_or_foreach([x.long()], False, use_fused=True) == (False, False)
    assert names._default_to_fused_or_foreach([x], True, use_fused=True) == (False, False)
    assert names._get_scalar_dtype() is tenon.float32 and names._stack_if_compiling([x]) == [x]
    assert "xla" not in names._get_capturable_supported_devices(supports_xla=False)
    assert names._disable_dynamo_if_unsupported()(len) is len
    assert names._global_optimizer_pre_hooks is names.step_hooks.GLOBAL_PRE
