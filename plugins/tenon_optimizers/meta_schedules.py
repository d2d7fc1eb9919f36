"""Schedules composed of others: in sequence, or simultaneously."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tenon.extend import LRScheduler, Optimizer
from tenon.optim.scheduler import group_values, set_group_value
from tenon.optim.types import StateDict
from tenon_optimizers.plateau import ReduceLROnPlateau


class _Composed(LRScheduler):
    """Base class of schedules that contain other schedules."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs "
                    f"to be specified when calling `step`, but got one at index {i} in the given schedulers "
                    "sequence."
                )
            if optimizer is not scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different "
                    f"from {type(optimizer).__name__}."
                )

    def state_dict(self) -> StateDict:
        """Return the state, with those of the schedules inside."""
        return super().state_dict() | {"_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load the state, with those of the schedules inside. Nothing changes if their number differs."""
        saved = dict(state_dict)
        states = saved.pop("_schedulers")
        if len(states) != len(self._schedulers):
            raise ValueError(
                f"the state dict holds {len(states)} schedulers, this {type(self).__name__} has "
                f"{len(self._schedulers)}. Nothing was loaded."
            )
        for scheduler, state in zip(self._schedulers, states, strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict(saved)


class SequentialLR(_Composed):
    """One schedule after another, changing at ``milestones``.

    >>> import tenon
    >>> from tenon.optim.lr_scheduler import CosineAnnealingLR, LinearLR
    >>> optimizer = tenon.optim.SGD([tenon.nn.Parameter(tenon.ones(1))], lr=1.0)
    >>> warm_up = LinearLR(optimizer, start_factor=0.25, total_iters=3)
    >>> SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, T_max=7)], [3]).get_last_lr()
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError(f"{type(self).__name__} expects at least one scheduler, but got no scheduler.")
        self._check(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number "
                f"of milestone points, but got number of schedulers {len(schedulers)} and the number of "
                f"milestones to be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            set_group_value(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: LRScheduler | None = None) -> None:
        """Undo the step that each schedule made at its construction."""
        scheduler = self if sched is None else sched
        if hasattr(scheduler, "_schedulers"):
            for part in scheduler._schedulers:
                self.recursive_undo(part)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Advance the schedule that is active at the current step."""
        self.last_epoch += 1
        active = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[active]
        if active > 0 and self._milestones[active - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composed):
    """Several chainable schedules at once: their factors multiply."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no scheduler."
            )
        owner = optimizer or schedulers[0].optimizer
        self._check(owner, schedulers)
        self._schedulers = schedulers
        self.optimizer = owner
        self._last_lr = group_values(owner, "lr")

    def step(self) -> None:  # type: ignore[override]
        """Advance all schedules by one step."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = group_values(self.optimizer, "lr")
