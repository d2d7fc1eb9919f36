"""Categories relaxed into the inside of a simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.categorical import Categorical
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.transformed_distribution import TransformedDistribution
from tenon_distributions.distributions.transforms import ExpTransform
from tenon_distributions.distributions.utils import clamp_probs

if TYPE_CHECKING:
    from tenon import Tensor


class ExpRelaxedCategorical(Distribution):
    """Logarithms of ``RelaxedOneHotCategorical`` (Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor,
        probs: Any = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self._temperature = temperature
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def _param(self) -> Any:
        return self._categorical._param

    @property
    def logits(self) -> Tensor:
        """Log-probabilities of the categories."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities of the categories."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def temperature(self) -> Tensor:
        """What logits are divided by; it is no part of the batch."""
        return self._temperature

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(tenon.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        return tenon.log_softmax((self.logits - (-u.log()).log()) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.event_shape[0]
        logits, value = tenon.broadcast_tensors(self.logits, value)
        temperature = tenon.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device)
        log_scale = tenon.full_like(temperature, float(n)).lgamma() + (n - 1) * temperature.log()
        return tenon.log_softmax(logits - value * temperature, -1).sum(-1) + log_scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of a simplex that become its corners as ``temperature`` falls, with gradients by ``probs``."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor,
        probs: Any = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How far samples lie from the corners."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-probabilities of the categories."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities of the categories."""
        return self.base_dist.probs
