"""Pruning criteria: scores of the elements of a weight by magnitude, gradient, both, or at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon.extend import Criterion

if TYPE_CHECKING:
    from tenon import Tensor


class Magnitude(Criterion):
    """The absolute value (Han et al., 2015)."""

    def score(self, weight: Tensor, gradient: Tensor | None) -> Tensor:
        """Return ``|w|``."""
        return weight.abs()


class Gradient(Criterion):
    """The absolute value of the gradient: how much the loss changes with the element."""

    needs_gradient = True

    def score(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return ``|g|``."""
        return gradient.abs()


class Taylor(Criterion):
    """How much the loss changes, to first order, if the element becomes zero (Molchanov et al., 2019)."""

    needs_gradient = True

    def score(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return ``|w g|``."""
        return (weight * gradient).abs()


class Wanda(Criterion):
    """The absolute value times the norm of the input that it multiplies (Sun et al., 2023).

    Inputs are recorded by ``tenon.prune.record_inputs``. The paper compares the elements of a row:
    ``mask_weights(model, 0.5, "Wanda", scope="row")``.
    """

    needs_inputs = True

    def score(self, weight: Tensor, gradient: Tensor | None) -> Tensor:
        """Return ``|w| * ||x||``."""
        return weight.abs() * self.input_norms


class Random(Criterion):
    """A random score, the baseline with which criteria are compared."""

    def score(self, weight: Tensor, gradient: Tensor | None) -> Tensor:
        """Draw scores uniformly from ``[0, 1)``."""
        return tenon.rand_like(weight)
