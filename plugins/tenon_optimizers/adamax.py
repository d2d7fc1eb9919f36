"""Adamax."""

from __future__ import annotations

from typing import Any

from tenon.extend import Optimizer
from tenon_optimizers.checks import betas as checked
from tenon_optimizers.checks import learning_rate, non_negative


class Adamax(Optimizer):
    """Adamax (Kingma and Ba, 2014), as torch.optim.Adamax: Adam with the infinity norm."""

    elementwise = True

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        learning_rate(lr)
        non_negative("epsilon value", eps)
        betas = checked(betas)
        non_negative("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
                "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """Return a zero first moment and a zero exponentially decayed maximum of ``|g|``."""
        return {"exp_avg": f.zeros_like(p), "exp_inf": f.zeros_like(p)}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> Any:
        """Return the updated parameter and state."""
        beta1, beta2 = h.betas
        if h.weight_decay:
            g = g + h.weight_decay * p
        m = s["exp_avg"] + (1 - beta1) * (g - s["exp_avg"])
        u = f.maximum(beta2 * s["exp_inf"], f.abs(g) + h.eps)
        return p - h.lr / (1 - beta1**h.step) * f.div(m, u), {"exp_avg": m, "exp_inf": u}
