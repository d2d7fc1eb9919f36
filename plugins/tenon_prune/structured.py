"""Methods that zero whole slices along an axis, such as the filters of a convolution."""

from __future__ import annotations

from typing import Any

import tenon
from tenon.nn.pruning import (
    BasePruningMethod,
    check_amount,
    check_axis,
    check_structured,
    checked_count,
    slice_norms,
)


def _without_slices(mask: Any, dim: int, kept: Any) -> Any:
    """``mask`` with zeros in the slices along ``dim`` that ``kept`` does not have."""
    shape = [1] * mask.dim()
    shape[dim] = -1
    return mask * kept.to(mask.dtype).reshape(shape)


class RandomStructured(BasePruningMethod):
    """Zero ``amount`` of the slices along ``dim`` that are left, at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        check_amount(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Draw one number per slice and zero those with the smallest."""
        check_structured(t)
        check_axis(t, self.dim)
        number = checked_count(self.amount, t.shape[self.dim])
        if number == 0:
            return default_mask
        drawn = tenon.rand(t.shape[self.dim], device=t.device)
        return _without_slices(default_mask, self.dim, drawn > drawn.kthvalue(number).values)

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any, dim: int = -1) -> Any:  # type: ignore[override]
        """Prune ``module.<name>`` by ``amount`` of its slices along ``dim``."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Zero ``amount`` of the slices along ``dim`` that are left, those of the smallest ``n``-norm first."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        check_amount(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Keep the slices of the largest norms."""
        check_structured(t)
        check_axis(t, self.dim)
        size = t.shape[self.dim]
        number = checked_count(self.amount, size)
        if number == 0:
            return default_mask
        kept = tenon.zeros(size, device=t.device)
        kept[slice_norms(t, self.n, self.dim).topk(size - number).indices] = 1
        return _without_slices(default_mask, self.dim, kept)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
    ) -> Any:
        """Prune ``module.<name>`` by ``amount`` of its slices along ``dim``."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)
