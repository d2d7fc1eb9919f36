"""Adam, with coupled weight decay."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import numbers_for_lists, validated
from tenon_optimizers.numbers import weight_decayed


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014), as torch.optim.Adam; ``weight_decay`` adds to the gradient."""

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None, decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        options = validated(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
            foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip
        numbers_for_lists(foreach, capturable, lr, options["betas"])
        super().__init__(params, options)

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return zero first and second moments of the gradient."""
        return {"exp_avg": f.zeros_like(p), "exp_avg_sq": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the parameter and moments after one step with bias correction."""
        beta1, beta2 = h.betas
        p, g = weight_decayed(p, g, h)
        m, v = s["exp_avg"], s["exp_avg_sq"]
        m = m + (1 - beta1) * (g - m)
        v = beta2 * v + (1 - beta2) * f.mul(g, g)
        new = {"exp_avg": m, "exp_avg_sq": v}
        if h.amsgrad:
            seen = s.get("max_exp_avg_sq")
            v = new["max_exp_avg_sq"] = v if seen is None else f.maximum(seen, v)
        # lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), scalar factors combined first
        root = (1 - beta2**h.step) ** 0.5
        size = h.lr / (1 - beta1**h.step) * root
        return p - size * f.div(m, f.sqrt(v) + h.eps * root), new
