"""LARS."""

from __future__ import annotations

from typing import Any

from tenon.extend import Optimizer
from tenon_optimizers.checks import learning_rate, non_negative
from tenon_optimizers.numbers import norm


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017): SGD for very large batches.

    The rate of a parameter is ``lr * trust_coefficient * |p| / (|g| + weight_decay * |p| + eps)``; parameters
    of one axis (biases, norms) take ``lr`` itself, and no decay.
    """

    counts_steps = False

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        *,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        learning_rate(lr)
        non_negative("momentum value", momentum)
        non_negative("weight_decay value", weight_decay)
        non_negative("trust_coefficient value", trust_coefficient)
        non_negative("epsilon value", eps)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "weight_decay": weight_decay,
                "trust_coefficient": trust_coefficient, "eps": eps, "nesterov": nesterov,
                "maximize": maximize,
            },
        )  # fmt: skip

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """Return a zero momentum buffer."""
        return {"momentum_buffer": f.zeros_like(p)} if self.defaults["momentum"] else {}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> Any:
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
