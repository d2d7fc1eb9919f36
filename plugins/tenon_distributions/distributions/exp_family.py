"""Exponential families: densities ``exp(t(x) . n - A(n) + k(x))`` of natural parameters ``n``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import UnsupportedError
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Tensor


class ExponentialFamily(Distribution):
    """A distribution whose entropy and KL divergences follow from its log-normaliser ``A``.

    The expected sufficient statistic is the gradient of ``A``: Nielsen and Nock, "Entropies and
    cross-entropies of exponential families", 2010.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise UnsupportedError(f"{type(self).__name__} does not define its natural parameters.")

    # Any lets subclasses name their parameters; all are tensors.
    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise UnsupportedError(f"{type(self).__name__} does not define its log-normaliser.")

    @property
    def _mean_carrier_measure(self) -> Tensor | float:
        """The expected carrier measure ``k(x)``."""
        raise UnsupportedError(f"{type(self).__name__} does not define its carrier measure.")

    def entropy(self) -> Tensor:
        """Return the entropy, ``A(n) - n . dA/dn - E[k]``."""
        with tenon.enable_grad():
            natural = [p.detach().requires_grad_() for p in self._natural_params]
            log_norm = self._log_normalizer(*natural)
            grads = tenon.autograd.grad(log_norm.sum(), natural, create_graph=True)
        result = -self._mean_carrier_measure + log_norm
        for n, grad in zip(natural, grads, strict=True):
            term = (n * grad).reshape((*self._batch_shape, -1)).sum(-1)
            result = result - term
        return result
