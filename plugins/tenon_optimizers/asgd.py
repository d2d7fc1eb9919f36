"""Averaged SGD."""

from __future__ import annotations

import numpy as np

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import may_decide, number, positive_part, scalar, stored

_FLOAT32 = np.dtype(np.float32)


class ASGD(Optimizer):
    """SGD whose parameters are averaged in ``state[p]["ax"]`` (Polyak and Juditsky, 1992); torch.optim.ASGD.

    The average starts with step ``t0``; until then ``ax`` equals the parameter.
    """

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
        t0: float = 1e6, weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach,
            maximize=maximize, differentiable=differentiable, capturable=capturable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the initial average, the rate of the next step, and its weight in the average."""
        return {"eta": scalar(f, p, 0.0), "mu": scalar(f, p, 1.0), "ax": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and state, with the rate that the previous step set."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        if not may_decide(h.step):
            return self._without_branches(f, p, g, s, h)
        rate = number(f, _rounded(f, s["eta"], h.lr) if h.step == 1 else s["eta"])
        p = p * (1 - h.lambd * rate) - rate * g
        averages = h.step - 1 - h.t0 > 1
        ax = s["ax"] + number(f, s["mu"]) * (p - s["ax"]) if averages else p
        eta = h.lr / (1 + h.lambd * h.lr * h.step) ** h.alpha
        past = h.step - h.t0
        mu = 1 / past if past > 1 else 1.0
        return p, {"eta": _rounded(f, s["eta"], eta), "mu": _rounded(f, s["mu"], mu), "ax": ax}

    def _without_branches(
        self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters
    ) -> Update:
        """Return what ``update`` does, in a form that holds for every step: ``mu`` is 1 until ``t0``."""
        first = _rounded(f, s["eta"], h.lr * positive_part(2 - h.step))  # lr in step 1, and 0 in all others
        rate = number(f, s["eta"] + first)
        p = p * (1 - h.lambd * rate) - rate * g
        ax = f.where(f.eq(s["mu"], 1.0), p, s["ax"] + number(f, s["mu"]) * (p - s["ax"]))
        eta = h.lr / (1 + h.lambd * h.lr * h.step) ** h.alpha
        mu = 1 / (1 + positive_part(h.step - h.t0 - 1))
        return p, {"eta": _rounded(f, s["eta"], eta), "mu": _rounded(f, s["mu"], mu), "ax": ax}


def _rounded(f: OpNamespace, like: Operand, value: Operand) -> Operand:
    """Round ``value`` to float32, in which PyTorch stores it; return it in the dtype of ``like``."""
    return f.cast(stored(f, f.cast(like, dtype=_FLOAT32), value), dtype=like.dtype)
