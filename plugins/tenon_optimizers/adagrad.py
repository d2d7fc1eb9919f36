"""Adagrad."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011), as torch.optim.Adagrad; its state is created by the constructor."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value, foreach=foreach, maximize=maximize,
            differentiable=differentiable, fused=fused,
        ))  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                self.start(p)

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the initial sum of squared gradients."""
        first = float(self.defaults["initial_accumulator_value"])
        return {"sum": f.new_full(p, shape=tuple(p.shape), value=first)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter; the learning rate decays with the step count by ``lr_decay``."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        total = s["sum"] + f.mul(g, g)
        rate = h.lr / (1 + (h.step - 1) * h.lr_decay)
        return p - rate * f.div(g, f.sqrt(total) + h.eps), {"sum": total}
