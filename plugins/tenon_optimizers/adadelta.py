"""Adadelta."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated


class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012), as torch.optim.Adadelta: step sizes scaled by the RMS of past steps."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(params, validated(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable,
            foreach=foreach, differentiable=differentiable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return zero running means of squared gradients and of squared steps."""
        return {"square_avg": f.zeros_like(p), "acc_delta": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and running means."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        square = h.rho * s["square_avg"] + (1 - h.rho) * f.mul(g, g)
        step = f.mul(f.div(f.sqrt(s["acc_delta"] + h.eps), f.sqrt(square + h.eps)), g)
        steps = h.rho * s["acc_delta"] + (1 - h.rho) * f.mul(step, step)
        return p - h.lr * step, {"square_avg": square, "acc_delta": steps}
