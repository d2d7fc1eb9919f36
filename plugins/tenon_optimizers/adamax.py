"""Adamax."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated


class Adamax(Optimizer):
    """Adamax (Kingma and Ba, 2014), as torch.optim.Adamax: Adam with the infinity norm."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 2e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return a zero first moment and a zero exponentially decayed maximum of ``|g|``."""
        return {"exp_avg": f.zeros_like(p), "exp_inf": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and state."""
        beta1, beta2 = h.betas
        if h.weight_decay:
            g = g + h.weight_decay * p
        m = s["exp_avg"] + (1 - beta1) * (g - s["exp_avg"])
        u = f.maximum(beta2 * s["exp_inf"], f.abs(g) + h.eps)
        return p - h.lr / (1 - beta1**h.step) * f.div(m, u), {"exp_avg": m, "exp_inf": u}
