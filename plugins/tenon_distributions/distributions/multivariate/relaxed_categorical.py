"""The relaxed one-hot categorical distribution, on the interior of a simplex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.categorical import CategoricalVector
from tenon_distributions.distributions.relaxed import Relaxed
from tenon_distributions.distributions.transforms import ExpTransform
from tenon_distributions.distributions.utils import clamp_probs

if TYPE_CHECKING:
    from tenon import Tensor


class ExpRelaxedCategorical(CategoricalVector):
    """The distribution of the logarithm of ``RelaxedOneHotCategorical``.

    Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017.
    """

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor | float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._temperature = temperature
        self._set_categorical(probs, logits, validate_args)

    @property
    def temperature(self) -> Tensor | float:
        """The temperature, by which logits are divided; its shape does not affect the batch shape."""
        return self._temperature

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
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


class RelaxedOneHotCategorical(Relaxed):
    """Differentiable points of a simplex that approach its corners as ``temperature`` falls."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    _base = ExpRelaxedCategorical
    _transform = ExpTransform
