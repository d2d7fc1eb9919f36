"""The LKJ distribution, of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon
from tenon.errors import ArgumentError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.continuous.beta import Beta
from tenon_distributions.distributions.distribution import Distribution
from tenon_distributions.distributions.utils import _standard_normal

if TYPE_CHECKING:
    from tenon import Size, Tensor


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices of size ``dim``, which are uniform if ``concentration`` is 1.

    Sampling follows the onion method of Lewandowski, Kurowicka and Joe, "Generating random correlation
    matrices based on vines and extended onion method", 2009: rows are random directions of random lengths.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ArgumentError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self._set_broadcast(validate_args, concentration=concentration)
        self._event_shape = tenon.Size((dim, dim))
        below = tenon.arange(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        below = tenon.cat([below.new_zeros(1), below])
        upper = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(0.5 * (below + 1), upper.unsqueeze(-1) - 0.5 * below)

    def _expand_component(self, name: str, part: Distribution, shape: Size) -> Distribution:
        return part.expand((*shape, self.dim))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with tenon.no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            noise = _standard_normal(shape, length.dtype, length.device).tril(-1)
            direction = noise / noise.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0  # the first row has nothing below the diagonal
            rows = length.sqrt() * direction
            tiny = tenon.finfo(rows.dtype).tiny
            return rows + (1 - rows.square().sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        eta, n = self.concentration, self.dim
        powers = 2 * (eta - 1).unsqueeze(-1) + n - tenon.arange(2, n + 1, dtype=eta.dtype, device=eta.device)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        alpha = eta + 0.5 * (n - 1)
        log_norm = 0.5 * (n - 1) * math.log(math.pi) + tenon.mvlgamma(alpha - 0.5, n - 1)
        return (powers * diagonal.log()).sum(-1) - log_norm + (n - 1) * tenon.lgamma(alpha)
