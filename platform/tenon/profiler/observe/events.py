"""The events that an ``Observer`` receives; times are nanoseconds since 1970 on rank 0's clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpEvent:
    """One op, gradient node, kernel of a compiled program, or collective, which is over."""

    name: str
    """As in traces: "tenon::linear", "AddmmBackward0", "gloo:all_reduce"."""
    begin: int
    end: int
    thread: int
    phase: str
    """"forward", "backward", "optimizer" or "data"."""
    module: str
    """Path under the outermost module's class name, "Net.encoder.0"; "" outside of modules."""
    shapes: tuple[tuple[int, ...], ...]
    """Of the array arguments; empty where shapes are not recorded."""
    flops: float
    bytes: int
    """Read and written at least; 0 where shapes are not recorded."""
    waited: int = 0
    """Of a collective: nanoseconds until all ranks had come."""


@dataclass(frozen=True, slots=True)
class ScopeEvent:
    """A module's call, a ``record_function`` block, an optimizer's step, a wait for data."""

    name: str
    begin: int
    end: int
    thread: int
    phase: str
    module: str


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A profiled step, which is over."""

    number: int
    begin: int
    end: int
