"""Lion."""

from __future__ import annotations

from typing import Any

from tenon.extend import Optimizer
from tenon_optimizers.checks import betas as checked
from tenon_optimizers.checks import learning_rate, non_negative


class Lion(Optimizer):
    """Lion (Chen et al., 2023): the sign of an interpolated momentum; PyTorch has none.

    Rates are 3 to 10 times smaller than AdamW's, ``weight_decay`` (decoupled) as much larger.
    """

    elementwise = True
    counts_steps = False

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        learning_rate(lr)
        betas = checked(betas)
        non_negative("weight_decay value", weight_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize,
                "differentiable": differentiable,
            },
        )  # fmt: skip

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """Return a zero momentum."""
        return {"exp_avg": f.zeros_like(p)}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> Any:
        """Return the parameter after a step by the sign, and the updated momentum."""
        beta1, beta2 = h.betas
        m = s["exp_avg"]
        if h.weight_decay:
            p = p * (1 - h.lr * h.weight_decay)
        step = f.sign(beta1 * m + (1 - beta1) * g)
        return p - h.lr * step, {"exp_avg": beta2 * m + (1 - beta2) * g}
