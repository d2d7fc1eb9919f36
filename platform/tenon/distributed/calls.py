"""One collective call as the ranks compare it, and the handle it returns."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tenon.errors import CollectiveMismatchError


class Call(NamedTuple):
    """What a rank is about to communicate. Equal calls match; different ones must never be mixed."""

    kind: str
    detail: str
    shape: tuple[int, ...]
    dtype: str
    name: str | None

    def describe(self, step: int | None) -> str:
        """One line for error messages.

        >>> Call("all_reduce", "sum", (3, 4), "float32", "fc.weight").describe(7)
        "all_reduce(sum) of float32[3, 4] named 'fc.weight' at step 7"
        """
        parts = [self.kind, f"({self.detail})" if self.detail else ""]
        if self.dtype and self.kind != "all_gather_bytes":
            parts.append(f" of {self.dtype}{list(self.shape)}")
        if self.name is not None:
            parts.append(f" named {self.name!r}")
        if step is not None:
            parts.append(f" at step {step}")
        return "".join(parts)


FINISH = Call("the end of its program", "", (), "", None)
"""What a rank that has nothing more to communicate puts in place of a call."""


@functools.lru_cache(maxsize=4096)
def digest(call: Call) -> int:
    """63 bits that tell calls apart, the same on every rank and host."""
    return int.from_bytes(hashlib.blake2b(repr(tuple(call)).encode(), digest_size=8).digest(), "big") >> 1


def mismatch(descriptions: Sequence[str], number: int) -> CollectiveMismatchError:
    """The error that every rank raises, naming all sides; ``descriptions`` in rank order."""
    sides: dict[str, list[int]] = {}
    for rank, text in enumerate(descriptions):
        sides.setdefault(text, []).append(rank)
    return CollectiveMismatchError(
        f"ranks disagree in collective call {number}: {_list_sides(sides)}. Every rank must make the "
        f"same calls in the same order; look for a branch, a skipped batch or another configuration."
    )


def _list_sides(sides: Mapping[str, Sequence[int]]) -> str:
    return "; ".join(f"{format_ranks(ranks)} at {text}" for text, ranks in sides.items())


def format_ranks(ranks: Sequence[int]) -> str:
    """``"rank 3"`` or ``"ranks 0, 2"``, shortened after eight.

    >>> format_ranks([0, 2])
    'ranks 0, 2'
    """
    shown = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


class Work:
    """A collective in progress; this one is already done. Engines with overlap return a subclass."""

    __slots__ = ("_result",)

    def __init__(self, result: np.ndarray[Any, Any]) -> None:
        self._result = result

    def wait(self) -> np.ndarray[Any, Any]:
        """Block until the result is there, and return it."""
        return self._result

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return True
