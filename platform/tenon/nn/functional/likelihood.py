"""Negative log-likelihoods of distributions: ``F.gaussian_nll_loss``, ``F.poisson_nll_loss``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.engine.precision import runs_in
from tenon.errors import ModuleValueError
from tenon.nn.functional.arguments import kept_above, reduction_of
from tenon.nn.functional.loss import extent
from tenon.ops.composite.loss import reduced
from tenon.tensors.creation.factories import full_like

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """``(log(var) + (input - target)^2 / var) / 2``, with ``log(2 pi) / 2`` more if ``full``.

    ``var``: a number, of ``input``'s shape, without its last axis, or with 1 in place of one size. It is kept
    above ``eps``, through which its gradient passes unchanged.
    """
    if isinstance(var, float):
        var = full_like(input, var)
    elif tuple(var.shape) != tuple(input.shape):
        if tuple(var.shape) == tuple(input.shape[:-1]):
            var = var.unsqueeze(-1)
        elif not _nearly(tuple(input.shape), tuple(var.shape)):
            raise ModuleValueError(
                f"var is of incorrect size: {list(var.shape)} for an input of {list(input.shape)}"
            )
    mode = reduction_of(None, None, reduction, "is not valid")
    least = extent(var)[0]
    if least < 0:
        raise ModuleValueError(f"var has negative entry/entries: the smallest is {least:.6g}")
    var = kept_above(var, eps)
    losses = 0.5 * (var.log() + (input - target) ** 2 / var)
    return reduced(f, losses + 0.5 * math.log(2 * math.pi) if full else losses, mode)


def _nearly(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether ``other`` is ``shape`` but for one size, which is 1."""
    if len(shape) != len(other):
        return False
    return [b for a, b in zip(shape, other, strict=True) if a != b] == [1]


@runs_in("float32")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """``exp(input) - target * input``, or ``input - target * log(input + eps)`` without ``log_input``.

    ``full`` adds Stirling's approximation of ``log(target!)`` where ``target`` is above 1.
    """
    mode = reduction_of(size_average, reduce, reduction)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        counted = f.gt(target, 1)
        safe = f.where(counted, target, 1.0)
        stirling = safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log()
        losses = losses + f.where(counted, stirling, 0.0)
    return reduced(f, losses, mode)
