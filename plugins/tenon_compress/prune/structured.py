"""Methods that zero whole slices along an axis, such as the filters of a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon.errors import ModuleValueError, ShapeError
from tenon.extend import settings
from tenon.nn.masks import (
    BasePruningMethod,
    check_amount,
    check_axis,
    check_structured,
    checked_count,
    slice_norms,
)

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Module

#: The least number of an axis, counted from the last.
_LEAST = -settings.LARGEST


def _without_slices(mask: Tensor, dim: int, selected: Tensor) -> Tensor:
    """Return ``mask`` with zeros in the slices along ``dim`` where ``selected`` is zero."""
    shape = [1] * mask.dim()
    shape[dim] = -1
    return mask * selected.to(mask.dtype).reshape(shape)


class RandomStructured(BasePruningMethod):
    """Zero ``amount`` of the slices along ``dim`` that are left, at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        check_amount(amount)
        self.amount, self.dim = amount, settings.whole("RandomStructured", "dim", dim, least=_LEAST)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Draw a random number per slice and zero the slices with the smallest."""
        check_structured(t)
        check_axis(t, self.dim)
        number = checked_count(self.amount, t.shape[self.dim])
        if number == 0:
            return default_mask
        drawn = tenon.rand(t.shape[self.dim], device=t.device)
        return _without_slices(default_mask, self.dim, drawn > drawn.kthvalue(number).values)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> BasePruningMethod:  # type: ignore[override]
        """Prune ``module.<name>`` by ``amount`` of its slices along ``dim``."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Zero ``amount`` of the slices along ``dim`` that are left, those of the smallest ``n``-norm first."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: float | str, dim: int = -1) -> None:
        check_amount(amount)
        if not isinstance(n, str) or n not in ("fro", "nuc"):
            settings.real("LnStructured", "n", n)
        self.amount, self.n = amount, n
        self.dim = settings.whole("LnStructured", "dim", dim, least=_LEAST)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Keep the slices of the largest norms."""
        check_structured(t)
        check_axis(t, self.dim)
        size = t.shape[self.dim]
        number = checked_count(self.amount, size)
        if number == 0:
            return default_mask
        selected = tenon.zeros(size, device=t.device)
        selected[slice_norms(t, self.n, self.dim).topk(size - number).indices] = 1
        return _without_slices(default_mask, self.dim, selected)

    @classmethod
    def apply(  # type: ignore[override]
        cls,
        module: Module,
        name: str,
        amount: float,
        n: float,
        dim: int,
        importance_scores: Tensor | None = None,
    ) -> BasePruningMethod:
        """Prune ``module.<name>`` by ``amount`` of its slices along ``dim``."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class NOfM(BasePruningMethod):
    """Keep the ``kept`` largest of every ``of`` elements in a row of a weight, such as 2 of 4.

    Sparse tensor cores read such weights. A row is everything that one output sums over; its length must be a
    multiple of ``of``.
    """

    PRUNING_TYPE = "global"

    def __init__(self, kept: int = 2, of: int = 4) -> None:
        kept, of = settings.whole("NOfM", "kept", kept, least=-1), settings.whole("NOfM", "of", of, least=-1)
        if not 0 < kept < of:
            raise ModuleValueError(
                f"NOfM keeps at least 1 and fewer than all, got {kept} of {of}: kept={kept}, of={of}."
            )
        self.kept, self.of = kept, of

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return ones at the largest magnitudes in every ``of`` consecutive elements."""
        check_structured(t)
        if (t.numel() // t.shape[0]) % self.of:
            raise ShapeError(
                f"the rows of a weight of shape {tuple(t.shape)} have {t.numel() // t.shape[0]} elements, not"
                f" a multiple of {self.of}. Leave it dense, or pad its layer."
            )
        runs = (t * default_mask.to(t.dtype)).abs().reshape(-1, self.of)
        mask = tenon.zeros_like(runs).scatter(1, runs.topk(self.kept, dim=1).indices, 1.0)
        return default_mask * mask.reshape(t.shape).to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, kept: int = 2, of: int = 4) -> BasePruningMethod:  # type: ignore[override]
        """Prune ``module.<name>`` to ``kept`` of every ``of`` elements."""
        return super().apply(module, name, kept=kept, of=of)
