"""What a resumed run takes from its new settings, where ``--set`` has changed those of the checkpoint.

An optimizer and a scheduler of the old settings are built beside the new ones. What differs between them was
decided by the settings, and is taken from the new ones; everything else comes from the checkpoint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from tenon.errors import ConfigError
from tenon.optim.optimizer import Optimizer
from tenon.optim.scheduler import LRScheduler
from tenon.training.config import RunConfig
from tenon.training.recipe import build_optimizer, build_scheduler
from tenon.training.session import Session

#: The state of an optimizer's group, or of a scheduler.
_State = dict[str, Any]  # of any type: options and counters of plugins


class NewSettings:
    """The settings of ``session`` beside those of the checkpoint ``saved``; created before it is restored."""

    def __init__(self, session: Session, saved: Mapping[str, Any]) -> None:  # sections of any type
        self._session, self._saved = session, saved
        old = RunConfig.model_validate(json.loads(saved["config"]))
        new = session.config
        names = "optimizer", "scheduler", "epochs", "batch_size"
        self.differ = any(getattr(old, name) != getattr(new, name) for name in names)
        if not self.differ:
            return
        if old.optimizer.name != new.optimizer.name:
            raise ConfigError(
                f"optimizer.name = {new.optimizer.name!r}: the run was trained by"
                f" {old.optimizer.name!r}, whose state another optimizer cannot continue. Start a new run."
            )
        optimizer = build_optimizer(old, session.model)
        scheduler = build_scheduler(old, optimizer, _total(old, session))
        self._groups = _groups(optimizer), _groups(session.optimizer)
        self._schedules = _state(scheduler), _state(session.scheduler)
        self._is_another = type(scheduler) is not type(session.scheduler)

    def apply(self) -> None:
        """Change the options of the optimizer, which has been restored."""
        if not self.differ:
            return
        for group, before, after in zip(self._session.optimizer.param_groups, *self._groups, strict=True):
            for name in after.keys() - {"lr"}:
                if before.get(name) != after[name]:
                    group[name] = after[name]
            old, new = before.get("lr"), after.get("lr")
            if old != new:  # a schedule may have changed it since
                group["lr"] = group["lr"] * (new / old) if old else new

    def schedule(self, saved: _State | None) -> _State | None:
        """The state of the scheduler: ``saved``, with what the new settings decide."""
        if not self.differ or self._session.scheduler is None:
            return saved
        before, after = self._schedules
        if saved is None or self._is_another:
            per = self._session.config.scheduler
            count = self._saved["progress"]["epoch" if per is not None and per.per == "epoch" else "step"]
            return {**after, "last_epoch": count, "_step_count": count + 1}
        changed = {
            name: value for name, value in after.items() if name != "_last_lr" and before.get(name) != value
        }
        return {**saved, **changed}


def _total(config: RunConfig, session: Session) -> int:
    """The number of steps of a run by ``config``."""
    return math.ceil(len(session.data.train) / config.batch_size) * config.epochs


def _groups(optimizer: Optimizer) -> list[_State]:
    """The options of each group."""
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def _state(scheduler: LRScheduler | None) -> _State:
    return {} if scheduler is None else dict(scheduler.state_dict())
