"""What an element of a weight is worth: its size, its slope, both, or chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon.extend import Criterion

if TYPE_CHECKING:
    from tenon import Tensor


class Magnitude(Criterion):
    """The absolute value (Han et al., 2015)."""

    def score(self, weight: Tensor, gradient: Tensor | None) -> Tensor:
        """``|w|``."""
        return weight.abs()


class Gradient(Criterion):
    """The absolute value of the gradient: how much the loss changes with the element."""

    needs_gradient = True

    def score(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """``|g|``."""
        return gradient.abs()


class Taylor(Criterion):
    """How much the loss changes, to first order, if the element becomes zero (Molchanov et al., 2019)."""

    needs_gradient = True

    def score(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """``|w g|``."""
        return (weight * gradient).abs()


class Random(Criterion):
    """A number at random, the baseline of all others."""

    def score(self, weight: Tensor, gradient: Tensor | None) -> Tensor:
        """Drawn uniformly from ``[0, 1)``."""
        return tenon.rand_like(weight)
