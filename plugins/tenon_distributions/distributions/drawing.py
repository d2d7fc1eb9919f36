"""Samples of gamma, Dirichlet, Poisson and binomial distributions as tensors, the first two with gradients.

``torch._standard_gamma``, ``torch._sample_dirichlet``, ``torch.poisson``, ``torch.binomial``, and the
gradients of the first two. Samples are drawn on the host in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import tenon
from tenon.autograd import Function
from tenon.errors import ArgumentError
from tenon.extend import draw_from, wrap
from tenon_distributions.distributions.implicit import beta_gradient, gamma_gradient

if TYPE_CHECKING:
    from tenon import Generator, Tensor


def _to_numpy(x: Tensor) -> np.ndarray:
    """Copy ``x`` to a float64 array on the host."""
    return x.detach().to(tenon.float64).cpu().numpy()


def _like(values: np.ndarray, like: Tensor) -> Tensor:
    """Return ``values`` as a tensor of the dtype and on the device of ``like``."""
    return wrap(np.asarray(values)).to(dtype=like.dtype, device=like.device)


#: An object of the class that Function makes for each of its subclasses, with attributes of any name.
_Context: TypeAlias = Any


class _StandardGamma(Function):
    @staticmethod
    def forward(ctx: _Context, concentration: Tensor, generator: Generator | None) -> Tensor:
        tiny = tenon.finfo(concentration.dtype).tiny
        drawn = draw_from("standard_gamma", {"concentration": concentration}, concentration, generator)
        sample = drawn.clamp_(min=tiny)
        ctx.save_for_backward(concentration, sample)
        return sample

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        return grad * _standard_gamma_grad(*ctx.saved_tensors), None


class _SampleDirichlet(Function):
    @staticmethod
    def forward(ctx: _Context, concentration: Tensor, generator: Generator | None) -> Tensor:
        sample = draw_from("dirichlet", {"concentration": concentration}, concentration, generator)
        info = tenon.finfo(concentration.dtype)
        sample.clamp_(min=info.tiny, max=1 - info.eps / 2)
        ctx.save_for_backward(concentration, sample)
        return sample

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        concentration, sample = ctx.saved_tensors
        return dirichlet_backward(sample, concentration, grad), None


def dirichlet_backward(sample: Tensor, concentration: Tensor, grad: Tensor) -> Tensor:
    """Return the concentration's gradient, given the gradient ``grad`` of Dirichlet samples."""
    total = concentration.sum(-1, keepdim=True).expand_as(concentration)
    derivative = _dirichlet_grad(sample, concentration, total)
    return derivative * (grad - (sample * grad).sum(-1, keepdim=True))


def _standard_gamma(concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw gamma samples of rate 1, differentiable with respect to their concentration."""
    return _StandardGamma.apply(concentration, generator)


def _standard_gamma_grad(concentration: Tensor, sample: Tensor) -> Tensor:
    """Return the derivatives of gamma samples with respect to their concentration."""
    return _like(gamma_gradient(_to_numpy(concentration), _to_numpy(sample)), sample)


def _sample_dirichlet(concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw Dirichlet samples (last axis), differentiable with respect to their concentration."""
    return _SampleDirichlet.apply(concentration, generator)


def _dirichlet_grad(sample: Tensor, concentration: Tensor, total: Tensor) -> Tensor:
    """Return, divided by ``1 - x``, the derivative of each part ``x`` of samples by its concentration."""
    x, a, t = (_to_numpy(v) for v in (sample, concentration, total))
    with np.errstate(divide="ignore", invalid="ignore"):
        gradients = beta_gradient(x, a, t - a) / (1 - x)
    return _like(np.where(x < 1, gradients, 0.0), sample)


def _with_zero_gradient(drawn: Tensor, parameter: Tensor) -> Tensor:
    """Give ``drawn`` a gradient of zeros for ``parameter`` if that requires grad, as PyTorch does."""
    if not (parameter.requires_grad and tenon.is_grad_enabled()):
        return drawn
    return parameter.expand(drawn.shape).to(drawn.dtype).clone().copy_(drawn)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw Poisson samples of the rates ``input``, in its dtype; they carry no gradient."""
    return _with_zero_gradient(draw_from("poisson", {"rate": input}, input, generator), input)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw the numbers of successes in ``count`` trials of probability ``prob``; they carry no gradient."""
    for name, value in (("count", count), ("prob", prob)):
        if not value.is_floating_point():
            raise ArgumentError(
                f"binomial only supports floating-point dtypes for {name}, got: {value.dtype}. Use .float()."
            )
    return _with_zero_gradient(draw_from("binomial", {"count": count, "prob": prob}, count, generator), prob)
