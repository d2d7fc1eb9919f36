"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from tenon.extend import Tensor
from tenon.optim.types import ParamsT
from tenon_optimizers.adam import Adam


class AdamW(Adam):
    """AdamW (Loshchilov and Hutter, 2017), as torch.optim.AdamW; ``weight_decay`` shrinks the parameter."""

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip
