"""A collective call as the rehearsal notes it and the replay repeats it."""

from __future__ import annotations

from dataclasses import dataclass

from tenon.distributed.calls import Call
from tenon.distributed.traffic import array_bytes


@dataclass(frozen=True)
class Note:
    """One call of a step; ``placed``: its array is the communicator's; ``beside``: it may go on meanwhile."""

    kind: str
    detail: str
    shape: tuple[int, ...]
    dtype: str
    name: str | None
    placed: bool
    beside: bool

    @property
    def call(self) -> Call:
        """What ranks compare."""
        return Call(self.kind, self.detail, tuple(self.shape), self.dtype, self.name)

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return array_bytes(self.call)
