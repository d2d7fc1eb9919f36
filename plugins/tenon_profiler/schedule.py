"""PyTorch's schedule of steps: when to record."""

from __future__ import annotations

import enum
from collections.abc import Callable

import tenon
from tenon.extend import errors, settings


class ProfilerAction(enum.Enum):
    """The action of a profile in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(enum.Enum):
    """What to record: the host, or kernels on GPUs."""

    CPU = 0
    CUDA = 2


def kineto_available() -> bool:
    """Return True: profiles always write traces in Kineto's format."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that this machine has."""
    cuda = {ProfilerActivity.CUDA} if tenon.cuda.is_available() else set()
    return {ProfilerActivity.CPU} | cuda


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a function from the number of a step to its action.

    After ``skip_first`` steps come cycles of ``wait`` steps that are not recorded, ``warmup`` steps whose
    records are dropped, and ``active`` steps: ``repeat`` cycles, or without end if 0. ``skip_first_wait``
    leaves out the first cycle's ``wait``.
    """
    arguments = {
        "wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip_first,
    }  # fmt: skip
    for name, value in arguments.items():
        settings.whole("schedule", name, value, least=-settings.LARGEST)
    settings.flag("schedule", "skip_first_wait", skip_first_wait)
    wrong = [f"{name}={value}" for name, value in arguments.items() if value < (1 if name == "active" else 0)]
    if wrong:
        raise errors.OptionError(
            f"Invalid profiler schedule arguments: {', '.join(wrong)}. active must be at least 1, the others"
            " at least 0."
        )

    def action(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle, position = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        last = position == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action
