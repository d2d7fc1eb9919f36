"""Schedule-free SGD and AdamW: averaging in place of a learning-rate schedule."""

from __future__ import annotations

import numpy as np

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamGroup, ParamsT, Scalar, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import number, scalar, stored


class ScheduleFree(Optimizer):
    """Base class of schedule-free optimizers (Defazio et al., 2024), which maintain three sequences.

    ``z`` is the sequence of steps, ``x`` its weighted average, to be evaluated and saved, and gradients are
    computed at ``y = (1 - beta) * z + beta * x``. A parameter holds ``y`` or ``x``: call
    ``optimizer.train()`` before training and ``optimizer.eval()`` before evaluating or saving weights; both
    work in place.
    """

    elementwise = True

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the initial ``z``, the sum of all weights, and the largest rate so far."""
        return {
            "z": f.clone(p),
            "weight_sum": scalar(f, p, 0.0, np.float64),
            "lr_max": scalar(f, p, 0.0, np.float64),
        }

    def beta(self, group: ParamGroup) -> float:
        """Return the interpolation weight between ``z`` (0) and ``x`` (1) where gradients are computed."""
        raise NotImplementedError(f"{type(self).__name__} does not define beta(group).")

    def train(self) -> None:
        """Set parameters to ``y``, where gradients are computed; this is the initial mode."""
        self._show(training=True)

    def eval(self) -> None:
        """Set parameters to ``x``, the average."""
        self._show(training=False)

    def _show(self, training: bool) -> None:
        for group in self.param_groups:
            if group["training"] == training:
                continue
            beta = self.beta(group)
            for p in group["params"]:
                if p in self.state:
                    x = p.detach()
                    x.lerp_(self.state[p]["z"].to(x.device), 1 - beta if training else 1 - 1 / beta)
            group["training"] = training

    def _stepped(
        self,
        f: OpNamespace,
        p: Operand,
        step: Operand,
        s: State,
        h: Hyperparameters,
        beta: Scalar,
        rate: Operand,
    ) -> Update:
        """Return ``y`` and the state after the step ``z -= rate * step``."""
        if not h.training:
            raise RuntimeError(
                f"{type(self).__name__}.step() was called while the parameters are the average. Call"
                " optimizer.train() before training, and optimizer.eval() before evaluating."
            )
        seen = number(f, s["lr_max"])
        largest = f.maximum(seen, rate) if hasattr(seen, "shape") else max(seen, rate)
        weight = h.step**h.r * largest**h.weight_lr_power
        total = number(f, s["weight_sum"]) + weight
        share = f.where(f.gt(total, 0), weight / total, 0.0) if hasattr(total, "shape") else (
            weight / total if total > 0 else 0.0
        )  # fmt: skip
        z = s["z"]
        y = p + share * (z - p)
        y = y + (rate * (beta * (1 - share) - 1)) * step
        new = {
            "z": z - rate * step,
            "weight_sum": stored(f, s["weight_sum"], total),
            "lr_max": stored(f, s["lr_max"], largest),
        }
        return y, new


class SGDScheduleFree(ScheduleFree):
    """Schedule-free SGD (Defazio et al., 2024); ``momentum`` plays the role of ``beta``."""

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1.0, momentum: float = 0.9, weight_decay: float = 0,
        warmup_steps: int = 0, r: float = 0.0, weight_lr_power: float = 2.0, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        if not 0.0 < momentum < 1.0:
            raise ValueError(f"Momentum must be between 0 and 1 exclusive: {momentum}")
        super().__init__(params, validated(
            lr=lr, momentum=momentum, weight_decay=weight_decay, warmup_steps=warmup_steps, r=r,
            weight_lr_power=weight_lr_power, training=True, maximize=maximize,
        ))  # fmt: skip

    def beta(self, group: ParamGroup) -> float:
        """Return the momentum."""
        return float(group["momentum"])

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated ``y`` and state."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        return self._stepped(f, p, g, s, h, h.momentum, warm_up(h) * h.lr)


class AdamWScheduleFree(ScheduleFree):
    """Schedule-free AdamW (Defazio et al., 2024)."""

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 2.5e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, warmup_steps: int = 0, r: float = 0.0, weight_lr_power: float = 2.0, *,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        options = validated(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, warmup_steps=warmup_steps, r=r,
            weight_lr_power=weight_lr_power, training=True, maximize=maximize,
        )  # fmt: skip
        if not betas[0] > 0.0:
            raise ValueError(f"Invalid beta parameter at index 0: {betas[0]}; the average needs more than 0")
        super().__init__(params, options)

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the base class's state and a zero second moment of the gradient."""
        return {"exp_avg_sq": f.zeros_like(p), **super().init(f, p)}

    def beta(self, group: ParamGroup) -> float:
        """Return the first beta."""
        return float(group["betas"][0])

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated ``y`` and state."""
        beta1, beta2 = h.betas
        v = beta2 * s["exp_avg_sq"] + (1 - beta2) * f.mul(g, g)
        known = 1 - beta2**h.step
        step = f.div(g, f.sqrt(v * (1 / known)) + h.eps)
        if h.weight_decay:
            step = step + h.weight_decay * p
        result, new = self._stepped(f, p, step, s, h, beta1, warm_up(h) * h.lr)
        return result, {"exp_avg_sq": v, **new}


def warm_up(h: Hyperparameters) -> float:
    """Return the factor of a linear warm-up at this step, at most 1."""
    return h.step / h.warmup_steps if h.step < h.warmup_steps else 1.0
