"""Pruning methods for single elements: at random, by magnitude, by a given mask, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon.errors import OptionError
from tenon.extend import settings
from tenon.nn.masks import BasePruningMethod, check_amount, checked_count

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Module


def _without(mask: Tensor, indices: Tensor) -> Tensor:
    """Return a copy of ``mask`` with zeros at the flat indices ``indices``."""
    pruned = mask.clone().contiguous()
    pruned.view(-1)[indices] = 0
    return pruned


class Identity(BasePruningMethod):
    """Keep everything: a mask of ones, with the names of a pruned tensor."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return ``default_mask``."""
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> BasePruningMethod:  # type: ignore[override]
        """Register a mask of ones for ``module.<name>``."""
        return super().apply(module, name)


class _ByAmount(BasePruningMethod):
    """Base class of methods that zero ``amount`` of the remaining elements: a share or, if int, a number."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zero by rank, not by threshold: ties never remove more than ``amount``."""
        number = checked_count(self.amount, t.numel())
        if number == 0:
            return default_mask.clone()
        return _without(default_mask, self.indices(t, number))

    def indices(self, t: Tensor, number: int) -> Tensor:
        """Return the flat indices of the ``number`` elements to zero."""
        raise NotImplementedError


class RandomUnstructured(_ByAmount):
    """Zero ``amount`` of the elements that are left, at random: a share if float, a number if int."""

    def indices(self, t: Tensor, number: int) -> Tensor:
        """Return those for which the largest random numbers are drawn."""
        return tenon.rand_like(t).reshape(-1).topk(number).indices

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> BasePruningMethod:  # type: ignore[override]
        """Prune ``module.<name>`` by ``amount``."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_ByAmount):
    """Zero ``amount`` of the elements that are left, those of the smallest magnitude or score first."""

    def indices(self, t: Tensor, number: int) -> Tensor:
        """Return those of the smallest magnitudes."""
        return t.abs().reshape(-1).topk(number, largest=False).indices

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune ``module.<name>`` by ``amount``, by ``importance_scores`` if they are given."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Zero the elements where the given ``mask`` has zeros."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        settings.instance("CustomFromMask", "mask", mask, tenon.Tensor, "a tensor")
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the product of both masks; OptionError if their shapes differ."""
        if default_mask.shape != self.mask.shape:
            raise OptionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}. "
                "Give a mask of the tensor's shape."
            )
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> BasePruningMethod:  # type: ignore[override]
        """Prune ``module.<name>`` by ``mask``."""
        return super().apply(module, name, mask=mask)
