"""NAdam."""

from __future__ import annotations

from typing import Any

from tenon.extend import Optimizer
from tenon_optimizers.checks import betas as checked
from tenon_optimizers.checks import learning_rate, non_negative
from tenon_optimizers.numbers import number, scalar


class NAdam(Optimizer):
    """NAdam (Dozat, 2016), as torch.optim.NAdam: Adam with a Nesterov momentum that grows."""

    elementwise = True

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        learning_rate(lr)
        non_negative("epsilon value", eps)
        betas = checked(betas)
        non_negative("weight_decay value", weight_decay)
        non_negative("momentum_decay value", momentum_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
                "maximize": maximize, "foreach": foreach, "capturable": capturable,
                "differentiable": differentiable,
            },
        )  # fmt: skip

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """Return zero first and second moments of the gradient, and the product of momenta, 1."""
        return {"mu_product": scalar(f, p, 1.0), "exp_avg": f.zeros_like(p), "exp_avg_sq": f.zeros_like(p)}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> Any:
        """Return the updated parameter and state."""
        beta1, beta2 = h.betas
        if h.weight_decay:
            if h.decoupled_weight_decay:
                p = p * (1 - h.lr * h.weight_decay)
            else:
                g = g + h.weight_decay * p
        momentum = beta1 * (1 - 0.5 * 0.96 ** (h.step * h.momentum_decay))
        following = beta1 * (1 - 0.5 * 0.96 ** ((h.step + 1) * h.momentum_decay))
        kept = s["mu_product"] * momentum
        product = number(f, kept)
        m = s["exp_avg"] + (1 - beta1) * (g - s["exp_avg"])
        v = beta2 * s["exp_avg_sq"] + (1 - beta2) * f.mul(g, g)
        below = f.sqrt(v * (1 / (1 - beta2**h.step))) + h.eps
        result = p - h.lr * (1 - momentum) / (1 - product) * f.div(g, below)
        result = result - h.lr * following / (1 - product * following) * f.div(m, below)
        return result, {"mu_product": kept, "exp_avg": m, "exp_avg_sq": v}
