"""When to record: torch's schedule of steps."""

from __future__ import annotations

import enum
from collections.abc import Callable

import tenon


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(enum.Enum):
    """What is recorded: what the host does, kernels on GPUs."""

    CPU = 0
    CUDA = 2


def kineto_available() -> bool:
    """Whether profiles make traces as Kineto's: they always do."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """Those that this machine has."""
    cuda = {ProfilerActivity.CUDA} if tenon.cuda.is_available() else set()
    return {ProfilerActivity.CPU} | cuda


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A function of the step's number: ``skip_first`` steps, then cycles of ``wait`` steps without records,
    ``warmup`` steps whose records are dropped, and ``active`` steps; ``repeat`` cycles, or 0 for no end.

    ``skip_first_wait`` leaves the first cycle's ``wait`` out.
    """
    given = {
        "wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first,
    }  # fmt: skip
    wrong = [f"{name}={value}" for name, value in given.items() if value < (1 if name == "active" else 0)]
    if wrong:
        raise AssertionError(
            f"Invalid profiler schedule arguments: {', '.join(wrong)}. active must be at least 1, the others"
            " at least 0."
        )

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle, place = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action
