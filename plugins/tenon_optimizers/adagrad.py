"""Adagrad."""

from __future__ import annotations

from typing import Any

from tenon.extend import Optimizer
from tenon_optimizers.checks import learning_rate, non_negative, variants


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011), as torch.optim.Adagrad; its state is created by the constructor."""

    elementwise = True

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        learning_rate(lr)
        non_negative("lr_decay value", lr_decay)
        non_negative("weight_decay value", weight_decay)
        non_negative("initial_accumulator_value value", initial_accumulator_value)
        non_negative("epsilon value", eps)
        variants(foreach, fused, differentiable)
        super().__init__(
            params,
            {
                "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
                "maximize": maximize, "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                self.start(p)

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """Return the initial sum of squared gradients."""
        first = float(self.defaults["initial_accumulator_value"])
        return {"sum": f.new_full(p, shape=tuple(p.shape), value=first)}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> Any:
        """Return the updated parameter; the learning rate decays with the step count by ``lr_decay``."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        total = s["sum"] + f.mul(g, g)
        rate = h.lr / (1 + (h.step - 1) * h.lr_decay)
        return p - rate * f.div(g, f.sqrt(total) + h.eps), {"sum": total}
