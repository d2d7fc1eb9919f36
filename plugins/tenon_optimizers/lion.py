"""Lion."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated


class Lion(Optimizer):
    """Lion (Chen et al., 2023): the sign of an interpolated momentum; PyTorch has none.

    Rates are 3 to 10 times smaller than AdamW's, ``weight_decay`` (decoupled) as much larger.
    """

    elementwise = True
    counts_steps = False

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-4,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.99), weight_decay: float = 0, *,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize,
            differentiable=differentiable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return a zero momentum."""
        return {"exp_avg": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the parameter after a step by the sign, and the updated momentum."""
        beta1, beta2 = h.betas
        m = s["exp_avg"]
        if h.weight_decay:
            p = p * (1 - h.lr * h.weight_decay)
        step = f.sign(beta1 * m + (1 - beta1) * g)
        return p - h.lr * step, {"exp_avg": beta2 * m + (1 - beta2) * g}
