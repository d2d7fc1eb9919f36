"""What an element of a weight is worth: its size, its slope, both, or chance."""

from __future__ import annotations

from typing import Any

import tenon
from tenon.extend import Criterion


class Magnitude(Criterion):
    """The absolute value (Han et al., 2015)."""

    def score(self, weight: Any, gradient: Any) -> Any:
        """``|w|``."""
        return weight.abs()


class Gradient(Criterion):
    """The absolute value of the gradient: how much the loss changes with the element."""

    needs_gradient = True

    def score(self, weight: Any, gradient: Any) -> Any:
        """``|g|``."""
        return gradient.abs()


class Taylor(Criterion):
    """How much the loss changes, to first order, if the element becomes zero (Molchanov et al., 2019)."""

    needs_gradient = True

    def score(self, weight: Any, gradient: Any) -> Any:
        """``|w g|``."""
        return (weight * gradient).abs()


class Random(Criterion):
    """A number at random, the baseline of all others."""

    def score(self, weight: Any, gradient: Any) -> Any:
        """Drawn uniformly from ``[0, 1)``."""
        return tenon.rand_like(weight)
