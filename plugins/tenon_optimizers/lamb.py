"""LAMB."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import norm


class LAMB(Optimizer):
    """LAMB (You et al., 2019): AdamW for very large batches, its step scaled to ``|p|`` layer by layer."""

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 1e-2, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return zero first and second moments of the gradient."""
        return {"exp_avg": f.zeros_like(p), "exp_avg_sq": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the parameter after a step of norm ``lr * |p|``; AdamW's step if either norm is zero."""
        beta1, beta2 = h.betas
        m = s["exp_avg"] + (1 - beta1) * (g - s["exp_avg"])
        v = beta2 * s["exp_avg_sq"] + (1 - beta2) * f.mul(g, g)
        above = m * (1 / (1 - beta1**h.step))
        step = f.div(above, f.sqrt(v * (1 / (1 - beta2**h.step))) + h.eps) + h.weight_decay * p
        size, length = norm(f, p), norm(f, step)
        usual = f.eq(f.mul(size, length), 0)
        trust = f.where(usual, 1.0, f.div(size, f.where(usual, 1.0, length)))
        return p - h.lr * f.mul(trust, step), {"exp_avg": m, "exp_avg_sq": v}
