"""Adam, with coupled weight decay."""

from __future__ import annotations

from typing import Any

from tenon.extend import Optimizer
from tenon_optimizers.checks import betas as checked
from tenon_optimizers.checks import learning_rate, non_negative, numbers_for_lists, variants


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014), as torch.optim.Adam; ``weight_decay`` adds to the gradient."""

    elementwise = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        learning_rate(lr)
        non_negative("epsilon value", eps)
        betas = checked(betas)
        non_negative("weight_decay value", weight_decay)
        variants(foreach, fused, differentiable)
        numbers_for_lists(foreach, capturable, lr, betas)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                "maximize": maximize, "foreach": foreach, "capturable": capturable,
                "differentiable": differentiable, "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
            },
        )  # fmt: skip

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """Return zero first and second moments of the gradient."""
        return {"exp_avg": f.zeros_like(p), "exp_avg_sq": f.zeros_like(p)}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> Any:
        """Return the parameter and moments after one step with bias correction."""
        beta1, beta2 = h.betas
        if h.weight_decay:
            if h.decoupled_weight_decay:
                p = p * (1 - h.lr * h.weight_decay)
            else:
                g = g + h.weight_decay * p
        m, v = s["exp_avg"], s["exp_avg_sq"]
        m = m + (1 - beta1) * (g - m)
        v = beta2 * v + (1 - beta2) * f.mul(g, g)
        new = {"exp_avg": m, "exp_avg_sq": v}
        if h.amsgrad:
            seen = s.get("max_exp_avg_sq")
            v = new["max_exp_avg_sq"] = v if seen is None else f.maximum(seen, v)
        # lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), scalar factors combined first
        root = (1 - beta2**h.step) ** 0.5
        size = h.lr / (1 - beta1**h.step) * root
        return p - size * f.div(m, f.sqrt(v) + h.eps * root), new
