"""A collective call as the rehearsal notes it and the replay repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenon.distributed.communication.calls import Call
from tenon.distributed.communication.traffic import array_bytes


@dataclass(frozen=True)
class Note:
    """One call of a step; ``placed``: its array is the communicator's; ``beside``: it may go on meanwhile."""

    call: Call
    placed: bool
    beside: bool

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Note:
        """What ``dataclasses.asdict`` and JSON made of a note."""
        call = {**saved["call"], "shape": tuple(saved["call"]["shape"])}
        return cls(Call(**call), saved["placed"], saved["beside"])

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return array_bytes(self.call)


SMALL = Note(Call("all_reduce", "sum", (2,), "float64", "small"), False, False)
LARGE = Note(Call("all_reduce", "mean", (2 << 20,), "float32", "large"), True, True)
"""Two sums between nodes: one that is hardly anything but rounds, and one as gradients go."""
