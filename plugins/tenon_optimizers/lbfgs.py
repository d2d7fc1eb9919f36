"""L-BFGS."""

from __future__ import annotations

import numpy as np

import tenon.ops as f
from tenon.extend import Optimizer, Tensor, enable_grad, no_grad
from tenon.optim.types import Closure, ParamsT, State
from tenon_optimizers.checks import learning_rate
from tenon_optimizers.line_search import Point, strong_wolfe


class LBFGS(Optimizer):
    """L-BFGS (Nocedal, 1980), as torch.optim.LBFGS: a quasi-Newton method for whole batches.

    ``step(closure)`` evaluates ``closure`` up to ``max_eval`` times (default ``1.25 * max_iter``); it has to
    clear the gradients, compute the loss, call ``backward`` and return the loss. One parameter group,
    and one state for all parameters, kept under the first. ``line_search_fn``: None or ``"strong_wolfe"``.
    """

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        learning_rate(lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError(f"only 'strong_wolfe' is supported, but line_search_fn is {line_search_fn!r}")
        for name, number in (("max_iter", max_iter), ("max_eval", max_eval), ("history_size", history_size)):
            if not (number is None and name == "max_eval") and (
                not isinstance(number, (int, np.integer)) or number < 0
            ):
                raise ValueError(
                    f"Invalid {name} value: {number!r:.60}. LBFGS takes a whole number, 0 or more."
                )
        super().__init__(
            params,
            {
                "lr": lr, "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
                "history_size": history_size, "line_search_fn": line_search_fn,
            },
        )  # fmt: skip
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        params: list[Tensor] = self.param_groups[0]["params"]
        return params

    def step(self, closure: Closure | None = None) -> float | Tensor:
        """Run up to ``max_iter`` iterations; return the loss before the first."""
        if closure is None:
            raise TypeError("LBFGS.step() needs a closure that computes the loss and its gradients.")
        if len(self.param_groups) != 1:
            raise ValueError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        with enable_grad():
            first = closure()
        with no_grad():
            self._iterate(closure, float(first))
        return first

    def _iterate(self, closure: Closure, loss: float) -> None:
        h = self.param_groups[0]
        rate, search = float(h["lr"]), h["line_search_fn"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        state["func_evals"] += 1
        slope, evaluations = self._gradient(), 1
        if slope.numel() == 0 or float(slope.abs().max()) <= h["tolerance_grad"]:
            return
        for iteration in range(1, h["max_iter"] + 1):
            state["n_iter"] += 1
            direction = _direction(state, slope, h["history_size"])
            state["d"], state["prev_flat_grad"], state["prev_loss"] = direction, slope.clone(), loss
            before = loss
            size = rate / max(1.0, float(slope.abs().sum())) if state["n_iter"] == 1 else rate
            descent = float(slope.dot(direction))
            state["t"] = size
            if descent > -h["tolerance_change"]:
                break
            used = 0
            if search is not None:
                start = [p.detach().clone() for p in self._params]

                def at(length: float, direction: Tensor = direction, start: list[Tensor] = start) -> Point:
                    value, gradient = self._moved(closure, length, direction)
                    for p, saved in zip(self._params, start, strict=True):
                        p.copy_(saved)
                    return Point(length, value, gradient, float(gradient.dot(direction)))

                longest = float(direction.abs().max())
                budget = h["max_eval"] - evaluations
                best, used = strong_wolfe(at, Point(0.0, loss, slope, descent), size, longest, budget)
                size, loss, slope = best.size, best.loss, best.gradient
                state["t"] = size
                self._move(size, direction)
            elif iteration != h["max_iter"]:
                loss, slope = self._moved(closure, size, direction)
                used = 1
            else:
                self._move(size, direction)
            evaluations += used
            state["func_evals"] += used
            if (
                iteration == h["max_iter"]
                or evaluations >= h["max_eval"]
                or float(slope.abs().max()) <= h["tolerance_grad"]
                or float((direction * size).abs().max()) <= h["tolerance_change"]
                or abs(loss - before) < h["tolerance_change"]
            ):
                break

    def _moved(self, closure: Closure, size: float, direction: Tensor) -> tuple[float, Tensor]:
        """Move the parameters by ``size * direction``; return loss and gradient there."""
        self._move(size, direction)
        with enable_grad():
            loss = float(closure())
        return loss, self._gradient()

    def _gradient(self) -> Tensor:
        """Return all gradients flattened and concatenated; complex numbers as two reals."""
        parts = []
        for p in self._params:
            g = f.zeros_like(p.detach()) if p.grad is None else p.grad.detach()
            parts.append((f.stack(g.real, g.imag, axis=g.ndim) if g.is_complex() else g).reshape(-1))
        return f.cat(*parts, axis=0)

    def _move(self, size: float, direction: Tensor) -> None:
        """Add ``size * direction`` to the parameters."""
        begin = 0
        for p in self._params:
            parts = (2,) if p.is_complex() else ()
            end = begin + p.numel() * (2 if parts else 1)
            move = direction[begin:end].reshape(*p.shape, *parts)
            p.add_(move[..., 0] + 1j * move[..., 1] if parts else move, alpha=size)
            begin = end


def _direction(state: State, slope: Tensor, history: int) -> Tensor:
    """Return minus the inverse Hessian, estimated from the last ``history`` steps, times the gradient."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return -slope
    change, step = slope - state["prev_flat_grad"], state["d"] * state["t"]
    curvature = float(change.dot(step))
    changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
    if curvature > 1e-10:
        if len(changes) == history:
            for entries in (changes, steps, inverses):
                entries.pop(0)
        changes.append(change)
        steps.append(step)
        inverses.append(1.0 / curvature)
        state["H_diag"] = curvature / float(change.dot(change))
    q, shares = -slope, [0.0] * len(changes)
    for i in reversed(range(len(changes))):
        shares[i] = float(steps[i].dot(q)) * inverses[i]
        q = q - shares[i] * changes[i]
    direction = q * state["H_diag"]
    for i in range(len(changes)):
        back = float(changes[i].dot(direction)) * inverses[i]
        direction = direction + (shares[i] - back) * steps[i]
    return direction
