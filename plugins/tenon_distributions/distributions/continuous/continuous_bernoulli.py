"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.nn.functional import binary_cross_entropy_with_logits
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.discrete.bernoulli import ProbsOrLogits
from tenon_distributions.distributions.exp_family import ExponentialFamily
from tenon_distributions.distributions.utils import clamp_probs, lazy_property, logits_to_probs

if TYPE_CHECKING:
    from tenon import Tensor


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """The distribution on [0, 1] of density ``C p ** x (1 - p) ** (1 - x)``.

    Loaiza-Ganem and Cunningham, "The continuous Bernoulli", 2019.     For ``p`` between ``lims``, where the
    formulae divide by nearly 0, their Taylor series around 1/2 are used.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._set_probs_or_logits(probs, logits, validate_args)
        self._lims = lims
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter, clamped to the inside of (0, 1)."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _is_outside_limits(self) -> Tensor:
        """Where the exact formulae are used: ``probs`` outside of ``lims``."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _probs_outside_limits(self) -> Tensor:
        """``probs``, replaced by the lower limit where they are between the limits."""
        return tenon.where(self._is_outside_limits(), self.probs, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        """Return ``log C``, with ``C = 2 artanh(1 - 2 p) / (1 - 2 p)``."""
        p, x = self._probs_outside_limits(), (self.probs - 0.5).pow(2)
        exact = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        return tenon.where(
            self._is_outside_limits(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        )

    @property
    def mean(self) -> Tensor:
        p, x = self._probs_outside_limits(), self.probs - 0.5
        exact = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        return tenon.where(self._is_outside_limits(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        p, x = self._probs_outside_limits(), (self.probs - 0.5).pow(2)
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / ((-p).log1p() - p.log()).pow(2)
        return tenon.where(
            self._is_outside_limits(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        )

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(tenon.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = tenon.broadcast_tensors(self.logits, value)
        log_norm = self._cont_bern_log_norm()
        return log_norm - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p = self._probs_outside_limits()
        exact = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = tenon.where(self._is_outside_limits(), exact, value)
        return tenon.where(value <= 0.0, 0.0, tenon.where(value >= 1.0, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._probs_outside_limits()
        log_fail = (-p).log1p()
        exact = ((-p + value * (2.0 * p - 1.0)).log1p() - log_fail) / (p.log() - log_fail)
        return tenon.where(self._is_outside_limits(), exact, value)

    def entropy(self) -> Tensor:
        log_fail, log_hit = (-self.probs).log1p(), self.probs.log()
        return self.mean * (log_fail - log_hit) - self._cont_bern_log_norm() - log_fail

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        """Return ``log((exp(x) - 1) / x)``, by its Taylor series near 0."""
        low, high = (math.log(v / (1 - v)) for v in self._lims)
        outside = (x <= low) | (x > high)
        cut = tenon.where(outside, x, low)
        exact = (cut.exp() - 1.0).abs().log() - cut.abs().log()
        return tenon.where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
