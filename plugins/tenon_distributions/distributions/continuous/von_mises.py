"""The von Mises distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tenon import Tensor


class VonMises(Distribution):
    """The von Mises distribution of angles around ``loc``, the circle's analogue of the normal distribution.

    ``concentration`` is its precision. Sampling follows Best and Fisher, "Efficient simulation of the von
    Mises distribution", 1979.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(
        self, loc: Tensor | float, concentration: Tensor | float, validate_args: bool | None = None
    ) -> None:
        self._set_broadcast(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Tensor:
        """The mean direction."""
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        """The circular variance: 1 minus the length of the mean vector."""
        k = self.concentration
        return 1 - tenon.special.i1e(k) / tenon.special.i0e(k)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples by rejection in float64, in rounds over the elements that are pending."""
        shape = self._extended_shape(sample_shape)
        with tenon.no_grad():
            k = self.concentration.double().expand(shape).reshape(-1)
            tau = 1 + (1 + 4 * k * k).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            # 1 / k + k is the series of the ratio for small k, where the formula loses all digits
            ratio = tenon.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))
            cosine = tenon.empty_like(k)
            pending = tenon.arange(k.numel(), device=k.device)
            while pending.numel():
                turn, u = (tenon.rand(pending.shape, dtype=k.dtype, device=k.device) for _ in range(2))
                z, r, kk = tenon.cos(math.pi * turn), ratio[pending], k[pending]
                f = (1 + r * z) / (r + z)
                c = kk * (r - f)
                done = (c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0)
                cosine[pending[done]] = f[done]
                pending = pending[~done]
            side = (tenon.rand(k.shape, dtype=k.dtype, device=k.device) - 0.5).sign()
            angle = (side * cosine.clamp(-1, 1).acos()).reshape(shape).to(self.loc.dtype)
            return (angle + math.pi + self.loc) % (2 * math.pi) - math.pi

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        return k * (tenon.cos(value - self.loc) - 1) - math.log(2 * math.pi) - tenon.special.i0e(k).log()
