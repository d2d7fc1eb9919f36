"""The best epoch of a run so far, and whether the run goes on."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import Any

import tenon
from tenon.extend import Session, errors
from tenon_early_stopping.section import EarlyStopping

BEST = "best.safetensors"
"""The file of a run folder that has the weights of the best epoch."""


class Progress:
    """The best value of the metric, its epoch, and the epochs since; the same on all ranks."""

    def __init__(self) -> None:
        self.best: float | None = None
        self.best_epoch = self.without_improvement = 0

    def update(self, session: Session, epoch: int, metrics: Mapping[str, float]) -> None:
        """Compare ``epoch`` with the best; keep its weights if it is better, or stop the run."""
        section: EarlyStopping = session.section("early_stopping")
        value = metrics.get(section.metric)
        if value is None:
            raise errors.ConfigError(
                f"plugins.early_stopping.metric = {section.metric!r}: the evaluation of this run has"
                f" {', '.join(sorted(metrics))}. Name one of them."
            )
        if self._is_better(section, value):
            self.best, self.best_epoch, self.without_improvement = value, epoch, 0
            if section.keep_best and session.is_main:
                tenon.save(session.model.state_dict(), session.folder / BEST)
        else:
            self.without_improvement += 1
        if section.target is not None and _sign(section) * (value - section.target) >= 0:
            session.stop(f"{section.metric} is {value:.6g}, as good as plugins.early_stopping.target")
        elif self.without_improvement >= section.patience:
            session.stop(self._reason(section))

    def _is_better(self, section: EarlyStopping, value: float) -> bool:
        if math.isnan(value):
            return False
        return self.best is None or _sign(section) * (value - self.best) > section.min_delta

    def _reason(self, section: EarlyStopping) -> str:
        epochs = f"{self.without_improvement} epoch{'s' * (self.without_improvement > 1)}"
        if self.best is None:
            return f"{section.metric} has been NaN for {epochs}"
        kept = f", whose weights are in {BEST}" if section.keep_best else ""
        return (
            f"{section.metric} has not improved for {epochs}; the best was {self.best:.6g} after epoch"
            f" {self.best_epoch}{kept}"
        )

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps; nothing before the first epoch."""
        if not self.best_epoch and not self.without_improvement:
            return {}
        state: dict[str, float] = {
            "best_epoch": self.best_epoch, "without_improvement": self.without_improvement,
        }  # fmt: skip
        return state if self.best is None else {**state, "best": self.best}

    def restore(self, state: Mapping[str, Any]) -> None:  # numbers, if the file is as it was saved
        """Go on from what ``state`` returned."""
        self.best = None if state.get("best") is None else float(state["best"])
        self.best_epoch = int(state["best_epoch"])
        self.without_improvement = int(state["without_improvement"])


_of_sessions: weakref.WeakKeyDictionary[Session, Progress] = weakref.WeakKeyDictionary()


def of(session: Session) -> Progress:
    """The progress of ``session``."""
    return _of_sessions.setdefault(session, Progress())


def check(session: Session) -> None:
    """ConfigError for settings that the run cannot have."""
    if session.section("early_stopping").keep_best and session.config.parallel.divides:
        raise errors.ConfigError(
            "plugins.early_stopping.keep_best needs the whole model on each rank, which [parallel] divides."
            " Set it to false; the newest checkpoints are kept in any case (checkpoint.keep)."
        )


def _sign(section: EarlyStopping) -> int:
    return 1 if section.more_is_better else -1
