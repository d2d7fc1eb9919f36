"""Negative log-likelihoods of distributions: ``F.gaussian_nll_loss``, ``F.poisson_nll_loss``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleValueError
from tenon.nn.functional.arguments import clamped_from_below, reduction_of
from tenon.nn.functional.loss import extent
from tenon.ops.composite.loss import reduced
from tenon.tensors.creation.factories import full_like
from tenon.tensors.precision import runs_in
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """``(log(var) + (input - target)^2 / var) / 2``, plus ``log(2 pi) / 2`` if ``full``.

    ``var`` is a number, or has ``input``'s shape, that shape without the last axis, or with 1 for one size.
    It is clamped to at least ``eps``; the clamp does not change its gradient. ModuleValueError if one is
    negative; NaN in a compiled or captured function, which raises no errors for values.
    """
    variance: Tensor = full_like(input, var) if isinstance(var, float) else var
    only_tensors(input, variance)
    if tuple(variance.shape) != tuple(input.shape):
        if tuple(variance.shape) == tuple(input.shape[:-1]):
            variance = variance.unsqueeze(-1)
        elif not _has_one_unit_axis(tuple(input.shape), tuple(variance.shape)):
            raise ModuleValueError(
                f"var is of incorrect size: {list(variance.shape)} for an input of {list(input.shape)}"
            )
    mode = reduction_of(None, None, reduction, "is not valid")
    minimum = extent(variance)[0]
    if minimum < 0:
        raise ModuleValueError(f"var has negative entry/entries: the smallest is {minimum:.6g}")
    if WATCHERS.recorder is not None and variance.raw.dtype.kind in "fV":
        variance = f.where(f.lt(variance, 0), math.nan, variance)
    variance = clamped_from_below(variance, eps)
    losses = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    return reduced(f, losses + 0.5 * math.log(2 * math.pi) if full else losses, mode)


def _has_one_unit_axis(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether ``other`` is ``shape`` except for one size, which is 1."""
    if len(shape) != len(other):
        return False
    return [b for a, b in zip(shape, other, strict=True) if a != b] == [1]


@runs_in("float32")
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
    size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``exp(input) - target * input``, or ``input - target * log(input + eps)`` without ``log_input``.

    ``full`` adds Stirling's approximation of ``log(target!)`` where ``target`` is above 1.
    """
    only_tensors(input, target)
    mode = reduction_of(size_average, reduce, reduction)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        counted = f.gt(target, 1)
        safe = f.where(counted, target, 1.0)
        stirling = safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log()
        losses = losses + f.where(counted, stirling, 0.0)
    return reduced(f, losses, mode)
