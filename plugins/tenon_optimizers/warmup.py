"""Linear warm-up followed by cosine decay, the usual schedule for transformers, as one class."""

from __future__ import annotations

import math

from tenon.extend import LRScheduler, Optimizer
from tenon.optim.types import Scalar


class WarmupCosineLR(LRScheduler):
    """Linear from ``lr / warmup_steps`` to ``lr``, then a half cosine down to ``min_lr`` at ``total_steps``.

    In PyTorch: ``SequentialLR([LinearLR(...), CosineAnnealingLR(...)], [warmup_steps])``. After
    ``total_steps`` the rate stays. ``step()`` once per optimizer step.

    >>> import tenon
    >>> optimizer = tenon.optim.SGD([tenon.nn.Parameter(tenon.ones(1))], lr=1.0)
    >>> schedule = WarmupCosineLR(optimizer, warmup_steps=2, total_steps=6, min_lr=0.1)
    >>> rates = []
    >>> for _ in range(7):
    ...     rates.append(round(schedule.get_last_lr()[0], 3))
    ...     optimizer.step()
    ...     schedule.step()
    >>> rates
    [0.5, 1.0, 1.0, 0.868, 0.55, 0.232, 0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: int,
        total_steps: int,
        min_lr: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                f"warmup_steps must be from 0 to total_steps - 1, but got warmup_steps={warmup_steps} and"
                f" total_steps={total_steps}"
            )
        if not min_lr >= 0:
            raise ValueError(f"min_lr must not be negative, but got {min_lr}")
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.min_lr = min_lr
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Scalar]:
        """Return the next learning rates, one per parameter group, computed from the initial ones."""
        return self._get_closed_form_lr()

    def _get_closed_form_lr(self) -> list[Scalar]:
        step = self.last_epoch
        if step < self.warmup_steps:
            return [base * ((step + 1) / self.warmup_steps) for base in self.base_lrs]
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        share = (1 + math.cos(math.pi * done)) / 2
        return [self.min_lr + (base - self.min_lr) * share for base in self.base_lrs]
