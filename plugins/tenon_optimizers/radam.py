"""RAdam."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import may_decide, positive_part, weight_decayed


class RAdam(Optimizer):
    """RAdam (Liu et al., 2019), as torch.optim.RAdam: adaptive once the variance is tractable."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, validated(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach,
            capturable=capturable, decoupled_weight_decay=decoupled_weight_decay,
            differentiable=differentiable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return zero first and second moments of the gradient."""
        return {"exp_avg": f.zeros_like(p), "exp_avg_sq": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter; divided by the second moment's root if ``rho_t > 5``."""
        beta1, beta2 = h.betas
        p, g = weight_decayed(p, g, h)
        m = s["exp_avg"] + (1 - beta1) * (g - s["exp_avg"])
        v = beta2 * s["exp_avg_sq"] + (1 - beta2) * f.mul(g, g)
        known = 1 - beta2**h.step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * h.step * beta2**h.step / known
        size = h.lr / (1 - beta1**h.step)
        new = {"exp_avg": m, "exp_avg_sq": v}
        if not may_decide(h.step) and longest > 5.0:
            above = positive_part(length - 5.0)
            rectified = above / (above + 1e-300)  # 1 for a length of more than 5, else 0
            scale = positive_part(length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2))
            gain = rectified * (scale / length * known) ** 0.5
            return p - size * (1 - rectified) * m - size * gain * f.div(m, f.sqrt(v) + h.eps), new
        if not length > 5.0:
            return p - size * m, new
        gain = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return p - size * (gain * known) ** 0.5 * f.div(m, f.sqrt(v) + h.eps), new
