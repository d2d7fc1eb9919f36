"""Muon."""

from __future__ import annotations

import numpy as np

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import real, step_size
from tenon_optimizers.numbers import norm

_FLOAT32 = np.dtype(np.float32)


class Muon(Optimizer):
    """Muon (Jordan, 2024), as torch.optim.Muon: steps by the orthogonalised momentum of a matrix.

    For hidden matrices; biases, embeddings and heads take another optimizer. The Newton-Schulz iteration runs
    in float32, where PyTorch rounds to bfloat16: single steps differ by up to a hundredth of the step.
    """

    counts_steps = False

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        step_size(lr)
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        if ns_steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        if len(ns_coefficients) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        super().__init__(
            params,
            {
                "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )  # fmt: skip

    def check_parameter(self, p: Tensor) -> None:
        """Raise unless ``p`` is a matrix."""
        if p.ndim != 2:
            raise ValueError(
                f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}"
            )

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return a zero momentum."""
        real("Muon", p)
        return {"momentum_buffer": f.zeros_like(p)}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the parameter and momentum after one step; ``adjust_lr_fn`` scales the rate by the shape."""
        buffer = s["momentum_buffer"]
        buffer = buffer + (1 - h.momentum) * (g - buffer)
        step = g + h.momentum * (buffer - g) if h.nesterov else buffer
        rows, columns = p.shape
        if h.adjust_lr_fn == "match_rms_adamw":
            size = h.lr * (0.2 * max(rows, columns) ** 0.5)
        else:
            size = h.lr * max(1.0, rows / max(columns, 1)) ** 0.5
        p = p * (1 - h.lr * h.weight_decay)
        if rows and columns:
            direction = orthogonalized(f, f.cast(step, dtype=_FLOAT32), h.ns_coefficients, h.ns_steps, h.eps)
            p = p - size * f.cast(direction, dtype=p.dtype)
        return p, {"momentum_buffer": buffer}


def orthogonalized(
    f: OpNamespace, x: Operand, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Operand:
    """Return ``x[M, N]`` with singular values near 1: ``steps`` times ``x = a x + (b xx' + c xx'xx') x``."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = f.permute(x, axes=(1, 0))
    x = f.div(x, f.clamp(norm(f, x), eps, None))
    for _ in range(steps):
        gram = f.matmul(x, f.permute(x, axes=(1, 0)))
        x = a * x + f.matmul(b * gram + c * f.matmul(gram, gram), x)
    return f.permute(x, axes=(1, 0)) if tall else x
