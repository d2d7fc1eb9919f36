"""Lion: the sign of an interpolated momentum (Chen et al., 2023)."""

from tenon.extend import Optimizer


class Lion(Optimizer):
    """One state per parameter, one sign per step."""

    defaults = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99}

    def init(self, f, p):
        """The momentum."""
        return {"m": f.zeros_like(p)}

    def update(self, f, p, g, s, h):
        """Step by the sign, then move the momentum."""
        step = f.sign(h.beta1 * s["m"] + (1 - h.beta1) * g)
        return p - h.lr * step, {"m": h.beta2 * s["m"] + (1 - h.beta2) * g}
