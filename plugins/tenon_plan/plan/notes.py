"""A collective call as the rehearsal notes it and the replay repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenon.extend import engine


@dataclass(frozen=True)
class Note:
    """One call of a step; ``placed``: its array is the communicator's; ``beside``: it may go on meanwhile."""

    call: engine.Call
    placed: bool
    beside: bool

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Note:
        """What ``dataclasses.asdict`` and JSON made of a note."""
        call = {**saved["call"], "shape": tuple(saved["call"]["shape"])}
        return cls(engine.Call(**call), saved["placed"], saved["beside"])

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return engine.array_bytes(self.call)


SMALL = Note(engine.Call("all_reduce", "sum", (2,), "float64", "small"), False, False)
LARGE = Note(engine.Call("all_reduce", "mean", (2 << 20,), "float32", "large"), True, True)
"""Two sums between nodes: one that is hardly anything but rounds, and one as gradients go."""
