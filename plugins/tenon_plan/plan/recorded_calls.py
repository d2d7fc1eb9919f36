"""Collective calls of a training step, as the rehearsal records them and the replay repeats them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tenon.extend import engine

#: What a measuring process reports: JSON values by name.
Result: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class RecordedCall:
    """One collective call of a step.

    ``preallocated``: its array was allocated by the communicator; ``beside``: it may overlap with computing.
    """

    call: engine.Call
    preallocated: bool
    beside: bool

    @classmethod
    def read(cls, saved: Result) -> RecordedCall:
        """Restore a recorded call from its ``dataclasses.asdict`` after a round trip through JSON."""
        call = {**saved["call"], "shape": tuple(saved["call"]["shape"])}
        return cls(engine.Call(**call), saved["preallocated"], saved["beside"])

    @property
    def size(self) -> int:
        """The bytes of the array."""
        return engine.array_bytes(self.call)


SMALL = RecordedCall(engine.Call("all_reduce", "sum", (2,), "float64", "small"), False, False)
LARGE = RecordedCall(engine.Call("all_reduce", "mean", (2 << 20,), "float32", "large"), True, True)
"""Two all-reduces between nodes: one that takes latency only, and one like those of gradients."""
