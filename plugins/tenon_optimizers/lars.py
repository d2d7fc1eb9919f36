"""LARS."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import norm


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017): SGD for very large batches.

    The rate of a parameter is ``lr * trust_coefficient * |p| / (|g| + weight_decay * |p| + eps)``; parameters
    of one axis (biases, norms) take ``lr`` itself, and no decay.
    """

    counts_steps = False

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1.0, momentum: float = 0.9, weight_decay: float = 0,
        trust_coefficient: float = 1e-3, eps: float = 1e-8, *, nesterov: bool = False,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, momentum=momentum, weight_decay=weight_decay, trust_coefficient=trust_coefficient,
            eps=eps, nesterov=nesterov, maximize=maximize,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return a zero momentum buffer."""
        return {"momentum_buffer": f.zeros_like(p)} if self.defaults["momentum"] else {}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and momentum."""
        if p.ndim > 1:
            size, slope = norm(f, p), norm(f, g)
            trust = h.trust_coefficient * size / (slope + h.weight_decay * size + h.eps)
            if h.weight_decay:
                g = g + h.weight_decay * p
            g = f.mul(f.where(f.gt(f.mul(size, slope), 0), trust, 1.0), g)
        if not h.momentum:
            return p - h.lr * g, {}
        buffer = h.momentum * s["momentum_buffer"] + g
        step = g + h.momentum * buffer if h.nesterov else buffer
        return p - h.lr * step, {"momentum_buffer": buffer}
