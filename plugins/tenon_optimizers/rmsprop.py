"""RMSprop."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import non_negative, validated


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012), as torch.optim.RMSprop, centered and with momentum on request."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        non_negative("alpha value", alpha)
        super().__init__(params, validated(
            lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay,
            capturable=capturable, foreach=foreach, maximize=maximize, differentiable=differentiable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the zero running mean of squared gradients."""
        return {"square_avg": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and state."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        square = h.alpha * s["square_avg"] + (1 - h.alpha) * f.mul(g, g)
        new = {"square_avg": square}
        if h.centered:
            mean = s.get("grad_avg")
            mean = (1 - h.alpha) * g if mean is None else mean + (1 - h.alpha) * (g - mean)
            new["grad_avg"] = mean
            square = square - f.mul(mean, mean)
        step = f.div(g, f.sqrt(square) + h.eps)
        if h.momentum > 0:
            buffer = s.get("momentum_buffer")
            step = new["momentum_buffer"] = step if buffer is None else h.momentum * buffer + step
        return p - h.lr * step, new
