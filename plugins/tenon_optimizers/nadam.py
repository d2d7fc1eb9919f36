"""NAdam."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import number, scalar, weight_decayed


class NAdam(Optimizer):
    """NAdam (Dozat, 2016), as torch.optim.NAdam: Adam with a Nesterov momentum that grows."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 2e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, differentiable=differentiable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return zero first and second moments of the gradient, and the product of momenta, 1."""
        return {"mu_product": scalar(f, p, 1.0), "exp_avg": f.zeros_like(p), "exp_avg_sq": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and state."""
        beta1, beta2 = h.betas
        p, g = weight_decayed(p, g, h)
        momentum = beta1 * (1 - 0.5 * 0.96 ** (h.step * h.momentum_decay))
        following = beta1 * (1 - 0.5 * 0.96 ** ((h.step + 1) * h.momentum_decay))
        mu_product = s["mu_product"] * momentum
        product = number(f, mu_product)
        m = s["exp_avg"] + (1 - beta1) * (g - s["exp_avg"])
        v = beta2 * s["exp_avg_sq"] + (1 - beta2) * f.mul(g, g)
        below = f.sqrt(v * (1 / (1 - beta2**h.step))) + h.eps
        result = p - h.lr * (1 - momentum) / (1 - product) * f.div(g, below)
        result = result - h.lr * following / (1 - product * following) * f.div(m, below)
        return result, {"mu_product": mu_product, "exp_avg": m, "exp_avg_sq": v}
