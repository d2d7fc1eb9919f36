"""The events that an ``Observer`` receives; times are nanoseconds since 1970 on rank 0's clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Span:
    """What has ended in one thread, in a phase of a step and in a module."""

    name: str
    """The name in traces: "tenon::linear", "AddmmBackward0", "gloo:all_reduce"."""
    begin: int
    end: int
    thread: int
    phase: str
    """"forward", "backward", "optimizer" or "data"."""
    module: str
    """Path under the outermost module's class name, "Net.encoder.0"; "" outside of modules."""


@dataclass(frozen=True, slots=True)
class OpEvent(_Span):
    """An op, gradient node, kernel of a compiled program or collective that has ended."""

    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the array arguments; empty where shapes are not recorded."""
    flops: float
    bytes: int
    """The least number of bytes read and written; 0 where shapes are not recorded."""
    waited: int = 0
    """For a collective: nanoseconds until all ranks had entered it."""


@dataclass(frozen=True, slots=True)
class ScopeEvent(_Span):
    """A module call, ``record_function`` block, optimizer step or wait for data that has ended."""


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A profiled step that has ended."""

    number: int
    begin: int
    end: int
