"""The events that an ``Observer`` receives; times are nanoseconds since 1970 on rank 0's clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpEvent:
    """An op, gradient node, kernel of a compiled program or collective that has ended."""

    name: str
    """The name in traces: "tenon::linear", "AddmmBackward0", "gloo:all_reduce"."""
    begin: int
    end: int
    thread: int
    phase: str
    """"forward", "backward", "optimizer" or "data"."""
    module: str
    """Path under the outermost module's class name, "Net.encoder.0"; "" outside of modules."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the array arguments; empty where shapes are not recorded."""
    flops: float
    bytes: int
    """The least number of bytes read and written; 0 where shapes are not recorded."""
    waited: int = 0
    """For a collective: nanoseconds until all ranks had entered it."""


@dataclass(frozen=True, slots=True)
class ScopeEvent:
    """A module call, ``record_function`` block, optimizer step or wait for data that has ended."""

    name: str
    begin: int
    end: int
    thread: int
    phase: str
    module: str


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A profiled step that has ended."""

    number: int
    begin: int
    end: int
