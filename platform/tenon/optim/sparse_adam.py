"""PyTorch's path ``optim.sparse_adam``: an optimizer of sparse gradients, which tenon does not have."""

from __future__ import annotations

from tenon.errors import UnsupportedError
from tenon.optim.optimizer import Optimizer
from tenon.optim.types import Closure, ParamsT
from tenon.tensors.autograd.grad_mode import enable_grad
from tenon.tensors.tensor import Tensor

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Raises at ``step``: embedding gradients are dense here (ADR 0023), and PyTorch's needs sparse ones."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, but its shape is {list(lr.shape)}.")
        for title, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0.0:
                raise ValueError(f"Invalid {title}: {value}")
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def check_parameter(self, p: Tensor) -> None:
        """Raise for a complex parameter."""
        if p.is_complex():
            raise ValueError("SparseAdam does not support complex parameters")

    def step(self, closure: Closure | None = None) -> Tensor | None:
        """Call the closure; raise if any parameter has a gradient afterwards."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if any(p.grad is not None for group in self.param_groups for p in group["params"]):
            raise UnsupportedError(
                "SparseAdam does not support dense gradients, and all gradients are dense here, those of"
                " Embedding(sparse=True) included. Use Adam."
            )
        return loss
