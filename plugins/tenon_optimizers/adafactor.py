"""Adafactor."""

from __future__ import annotations

from tenon.extend import Operand, OpNamespace, Optimizer, Tensor
from tenon.optim.types import Hyperparameters, ParamsT, State, Update
from tenon_optimizers.checks import real, step_size
from tenon_optimizers.numbers import at_most, epsilon, root_mean_square


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor: factored second moments.

    For parameters of two or more axes the second moment over the last two axes is stored as an outer product:
    one number per row and per column instead of one per element. float16 and bfloat16 are computed in
    float32.
    """

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        step_size(lr)
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params,
            {
                "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
                "foreach": foreach, "maximize": maximize,
            },
        )  # fmt: skip

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return zero mean squares per row and column; per element for parameters of at most one axis."""
        real("Adafactor", p)
        if p.ndim < 2:
            return {"variance": f.zeros_like(p)}
        rows, columns = (*p.shape[:-1], 1), (*p.shape[:-2], 1, p.shape[-1])
        return {
            "row_var": f.new_full(p, shape=rows, value=0.0),
            "col_var": f.new_full(p, shape=columns, value=0.0),
        }

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the updated parameter and state: the step is scaled by the parameter's RMS, and clipped."""
        if 0 in p.shape:
            return p, s
        least = epsilon(p) if h.eps[0] is None else h.eps[0]
        fresh = h.step**h.beta2_decay
        size = f.maximum(root_mean_square(f, p), h.eps[1]) * at_most(h.lr, h.step**-0.5)
        if h.weight_decay:
            p = p * (1 - h.lr * h.weight_decay)
        square = f.mul(g, g)
        if p.ndim < 2:
            variance = s["variance"] + fresh * (square - s["variance"])
            new = {"variance": variance}
        else:
            down, along = (p.ndim - 2,), (p.ndim - 1,)
            rows = s["row_var"] + fresh * (f.mean(square, axes=along, keepdims=True) - s["row_var"])
            columns = s["col_var"] + fresh * (f.mean(square, axes=down, keepdims=True) - s["col_var"])
            mean = f.clamp(f.mean(rows, axes=down, keepdims=True), least, None)
            variance = f.div(f.mul(rows, columns), mean)
            new = {"row_var": rows, "col_var": columns}
        step = f.mul(f.rsqrt(f.clamp(variance, least * least, None)), g)
        clipped = f.maximum(root_mean_square(f, step) / h.d, 1.0)
        return p - f.mul(f.div(size, clipped), step), new
