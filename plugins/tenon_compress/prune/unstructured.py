"""Methods that zero single elements: at random, by magnitude, by a mask given, none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import OptionError
from tenon.nn.masks import BasePruningMethod, check_amount, checked_count

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Module


def _without(mask: Tensor, places: Tensor) -> Tensor:
    """A copy of ``mask`` with zeros at flat ``places``."""
    kept = mask.clone().contiguous()
    kept.view(-1)[places] = 0
    return kept


class Identity(BasePruningMethod):
    """Keep everything: a mask of ones, so that names are those of a pruned tensor."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask that there is."""
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> Any:  # type: ignore[override]
        """Prune ``module.<name>`` by nothing."""
        return super().apply(module, name)


class _ByAmount(BasePruningMethod):
    """Zeroes ``amount`` of the elements that are left: a share if float, a number if int."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        check_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Zero by rank, not by threshold: ties never remove more than ``amount``."""
        number = checked_count(self.amount, t.numel())
        if number == 0:
            return default_mask.clone()
        return _without(default_mask, self.places(t, number))

    def places(self, t: Any, number: int) -> Any:
        """The flat indices of the ``number`` elements to zero."""
        raise NotImplementedError


class RandomUnstructured(_ByAmount):
    """Zero ``amount`` of the elements that are left, at random: a share if float, a number if int."""

    def places(self, t: Any, number: int) -> Any:
        """Those for which the largest numbers are drawn."""
        return tenon.rand_like(t).view(-1).topk(number).indices

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> Any:  # type: ignore[override]
        """Prune ``module.<name>`` by ``amount``."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_ByAmount):
    """Zero ``amount`` of the elements that are left, those of the smallest magnitude or score first."""

    def places(self, t: Any, number: int) -> Any:
        """Those of the smallest magnitudes."""
        return t.abs().reshape(-1).topk(number, largest=False).indices

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> Any:
        """Prune ``module.<name>`` by ``amount``, looking at the scores if they are given."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Zero where the ``mask`` given has zeros."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Both masks at once; OptionError if their shapes differ."""
        if default_mask.shape != self.mask.shape:
            raise OptionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}. "
                "Give a mask of the tensor's shape."
            )
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        """Prune ``module.<name>`` by ``mask``."""
        return super().apply(module, name, mask=mask)
