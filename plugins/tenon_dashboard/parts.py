"""The categories of a step's time, the rule that assigns spans to them, and the totals of a file."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, TypeAlias

PARTS = ("compute", "communication", "wait", "data", "optimizer", "other")
COMPUTE, COMMUNICATION, WAIT, DATA, OPTIMIZER, OTHER = range(6)
#: Not a part: a span that is a step.
STEP = 6
DEEPEST = 100
COLLECTIVE_PREFIXES = ("gloo:", "nccl:", "mpi:")


def part_of(category: str, name: str) -> int:
    """Return the part that a span's self time belongs to if no span around it decides."""
    if category == "tenon_wait":
        return WAIT
    if category == "tenon_transfer" or (
        category == "user_annotation" and name.startswith(COLLECTIVE_PREFIXES)
    ):
        return COMMUNICATION
    if name.startswith("enumerate(DataLoader)#"):
        return DATA
    if name.startswith("ProfilerStep#"):
        return STEP
    if category == "user_annotation" and name.startswith("Optimizer.step#"):
        return OPTIMIZER
    return COMPUTE if category == "cpu_op" else OTHER


#: A column of integers: an array of one of two libraries. Any: they have no common type for appending.
Column: TypeAlias = Any


@dataclass(slots=True)
class Level:
    """Spans of one depth of a lane, sorted and disjoint: columns of 64, 64, 32 and 32 bits."""

    start: Column = field(default_factory=lambda: array("q"))
    duration: Column = field(default_factory=lambda: array("q"))
    label: Column = field(default_factory=lambda: array("i"))
    detail: Column = field(default_factory=lambda: array("i"))


@dataclass(slots=True)
class Step:
    """One step: its number, its time, and nanoseconds per part."""

    number: int
    start: int
    duration: int
    parts: list[int] = field(default_factory=lambda: [0] * len(PARTS))


@dataclass(slots=True)
class Swept:
    """The sums of a file per (label, detail), its steps, and the levels of each lane."""

    #: [calls, total, self] by (label, detail); the total excludes spans inside others of the same name.
    sums: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    levels: dict[tuple[object, object], list[Level]] = field(default_factory=dict)


def step_number(name: str) -> int:
    """Return the number in the name of a step, or 0."""
    digits = name.partition("#")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0
