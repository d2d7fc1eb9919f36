"""Stochastic gradient descent."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import validated


class SGD(Optimizer):
    """SGD with momentum, as torch.optim.SGD: ``b = momentum * b + (1 - dampening) * g``; ``p -= lr * b``.

    >>> import tenon
    >>> p = tenon.nn.Parameter(tenon.tensor([1.0]))
    >>> optimizer = tenon.optim.SGD([p], lr=0.1, momentum=0.9)
    >>> p.square().sum().backward()
    >>> optimizer.step()
    >>> p.data
    tensor([0.8000])
    """

    elementwise = True
    counts_steps = False

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float | Tensor = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        options = validated(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize, foreach=foreach, differentiable=differentiable, fused=fused,
        )  # fmt: skip
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter; the first momentum is the gradient itself, without dampening."""
        if h.weight_decay:
            g = g + h.weight_decay * p
        if not h.momentum:
            return p - h.lr * g, {}
        buffer = s.get("momentum_buffer")
        if buffer is None:
            buffer = f.clone(g)
        else:
            buffer = h.momentum * buffer + ((1 - h.dampening) * g if h.dampening else g)
        step = g + h.momentum * buffer if h.nesterov else buffer
        return p - h.lr * step, {"momentum_buffer": buffer}
