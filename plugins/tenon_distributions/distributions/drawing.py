"""Tensors of gamma, Dirichlet, Poisson and binomial numbers, the first two with gradients.

``torch._standard_gamma``, ``torch._sample_dirichlet``, ``torch.poisson``, ``torch.binomial``, and the slopes
of the former. Numbers are drawn on the host in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tenon
from tenon.autograd import Function
from tenon.errors import ArgumentError
from tenon.extend import wrap
from tenon_distributions.distributions.implicit import beta_slope, gamma_slope
from tenon_distributions.distributions.rejection import binomial as _binomial
from tenon_distributions.distributions.rejection import log_standard_gamma
from tenon_distributions.distributions.rejection import poisson as _poisson

if TYPE_CHECKING:
    from tenon import Tensor


def _host(x: Tensor) -> Any:
    return x.detach().to(tenon.float64).cpu().numpy()


def _as(values: Any, like: Tensor) -> Tensor:
    """Host float64 ``values`` in the dtype and on the device of ``like``."""
    return wrap(np.asarray(values)).to(dtype=like.dtype, device=like.device)


class _StandardGamma(Function):
    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generator: Any) -> Any:
        tiny = tenon.finfo(concentration.dtype).tiny
        drawn = np.exp(log_standard_gamma(generator, _host(concentration)))
        made = _as(np.maximum(drawn, tiny), concentration)
        ctx.save_for_backward(concentration, made)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * _standard_gamma_grad(*ctx.saved_tensors), None


class _SampleDirichlet(Function):
    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generator: Any) -> Any:
        logs = log_standard_gamma(generator, _host(concentration))
        parts = np.exp(logs - logs.max(-1, keepdims=True)) if logs.size else logs
        made = parts / parts.sum(-1, keepdims=True)
        kind = tenon.finfo(concentration.dtype)
        sample = _as(made, concentration).clamp_(min=kind.tiny, max=1 - kind.eps / 2)
        ctx.save_for_backward(concentration, sample)
        return sample

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        concentration, sample = ctx.saved_tensors
        return dirichlet_backward(sample, concentration, grad), None


def dirichlet_backward(sample: Any, concentration: Any, grad: Any) -> Any:
    """What a cotangent of Dirichlet samples says of their concentration."""
    total = concentration.sum(-1, keepdim=True).expand_as(concentration)
    slope = _dirichlet_grad(sample, concentration, total)
    return slope * (grad - (sample * grad).sum(-1, keepdim=True))


def _standard_gamma(concentration: Tensor, generator: Any = None) -> Tensor:
    """Gamma numbers of rate 1, with gradients by their concentration."""
    return _StandardGamma.apply(concentration, generator)


def _standard_gamma_grad(concentration: Tensor, sample: Tensor) -> Tensor:
    """How gamma numbers move with their concentration."""
    return _as(gamma_slope(_host(concentration), _host(sample)), sample)


def _sample_dirichlet(concentration: Tensor, generator: Any = None) -> Tensor:
    """Points of simplices (last axis), with gradients by their concentration."""
    return _SampleDirichlet.apply(concentration, generator)


def _dirichlet_grad(sample: Tensor, concentration: Tensor, total: Tensor) -> Tensor:
    """How each part of Dirichlet samples moves with its own concentration, for 1 of the others' share."""
    x, a, t = (_host(v) for v in (sample, concentration, total))
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = beta_slope(x, a, t - a) / (1 - x)
    return _as(np.where(x < 1, slopes, 0.0), sample)


def _without_slope(drawn: Tensor, parameter: Tensor) -> Tensor:
    """``drawn``, with a gradient of zeros for a ``parameter`` that has one, as torch has it."""
    if not (parameter.requires_grad and tenon.is_grad_enabled()):
        return drawn
    return parameter.expand(drawn.shape).to(drawn.dtype).clone().copy_(drawn)


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson numbers of the rates ``input``, in its dtype; no gradient goes through them."""
    rates = _host(input)
    if rates.size and rates.min() < 0:
        raise ArgumentError(f"invalid Poisson rate, expected rate to be non-negative, got {rates.min():.6g}")
    return _without_slope(_as(_poisson(generator, rates), input), input)


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Numbers of successes in ``count`` trials of probability ``prob``; no gradient goes through them."""
    for name, value in (("count", count), ("prob", prob)):
        if not value.is_floating_point():
            raise ArgumentError(
                f"binomial only supports floating-point dtypes for {name}, got: {value.dtype}. Use .float()."
            )
    return _without_slope(_as(_binomial(generator, _host(count), _host(prob)), count), prob)
