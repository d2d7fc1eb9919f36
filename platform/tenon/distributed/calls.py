"""One collective call as the ranks compare it, and the handle it returns."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon.errors import CollectiveMismatchError


@dataclass(frozen=True)
class Call:
    """What a rank is about to communicate. Equal calls match; different ones must never be mixed."""

    kind: str
    detail: str
    shape: tuple[int, ...]
    dtype: str
    name: str | None

    @functools.cached_property
    def digest(self) -> int:
        """63 bits that tell calls apart, the same on every rank and host."""
        fields = (self.kind, self.detail, self.shape, self.dtype, self.name)
        return int.from_bytes(hashlib.blake2b(repr(fields).encode(), digest_size=8).digest(), "big") >> 1

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


@functools.lru_cache(maxsize=4096)
def remembered(kind: str, detail: str, shape: tuple[int, ...], dtype: str, name: str | None) -> Call:
    """``Call`` with these fields; the same object again, whose digest is known by then."""
    return Call(kind, detail, shape, dtype, name)


FINISH = Call("the end of its program", "", (), "", None)
"""What a rank that has nothing more to communicate puts in place of a call."""


def mismatch(descriptions: Sequence[str], number: int) -> CollectiveMismatchError:
    """The error that every rank raises, naming all sides; ``descriptions`` in rank order."""
    sides: dict[str, list[int]] = {}
    for rank, text in enumerate(descriptions):
        sides.setdefault(text, []).append(rank)
    return CollectiveMismatchError(
        f"ranks disagree in collective call {number}: {_list_sides(sides)}. Every rank must make the "
        "same calls in the same order; look for a branch, a skipped batch or another configuration."
    )


def check_message(expected: str, sent: str, source: int) -> None:
    """Raise ``CollectiveMismatchError`` where rank ``source`` sent something else than is received here."""
    if sent != expected:
        raise CollectiveMismatchError(
            f"rank {source} sent {sent}, but {expected} is to be received. Send and receive the same shape "
            "and dtype, in the same order for each tag."
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

    def wait(self, timeout: Any = None) -> np.ndarray[Any, Any]:
        """Block until the result is there, and return it. A failed collective raises here."""
        return self._result

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return True
