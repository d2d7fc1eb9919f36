"""Rprop."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated
from tenon_optimizers.numbers import may_decide, positive_part


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun, 1993), as torch.optim.Rprop, for whole batches.

    Only signs of gradients matter: the step size of an element is multiplied by ``etas[1]`` while its sign
    stays the same, and by ``etas[0]`` when it changes.
    """

    elementwise = True

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, validated(
            lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        ))  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the initial previous gradient, and the initial step sizes."""
        return {"prev": f.zeros_like(p), "step_size": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter: a first step of size ``lr``; no step where the sign changed."""
        shrinks, grows = h.etas
        least, most = h.step_sizes
        size = s["step_size"]
        if not may_decide(h.step):
            size = size + h.lr * positive_part(2 - h.step)  # lr in step 1, and 0 in all others
        elif h.step == 1:
            size = size + h.lr
        agreement = f.sign(f.mul(g, s["prev"]))
        sign_changed = f.lt(agreement, 0)
        size = f.where(f.gt(agreement, 0), grows * size, f.where(sign_changed, shrinks * size, size))
        size = f.clamp(size, least, most)
        g = f.where(sign_changed, f.zeros_like(g), g)
        return p - f.mul(f.sign(g), size), {"prev": g, "step_size": size}
