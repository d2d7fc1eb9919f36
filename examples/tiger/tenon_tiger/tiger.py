"""Tiger: the sign of the momentum (Su, 2023)."""

from tenon.extend import Optimizer


class Tiger(Optimizer):
    """One state per parameter, one sign per step."""

    defaults = {"lr": 1e-3, "beta": 0.965}

    def init(self, f, p):
        """The momentum."""
        return {"m": f.zeros_like(p)}

    def update(self, f, p, g, s, h):
        """Move the momentum, then step by its sign."""
        m = h.beta * s["m"] + (1 - h.beta) * g
        return p - h.lr * f.sign(m), {"m": m}
