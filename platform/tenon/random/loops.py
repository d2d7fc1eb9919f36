"""Long loops of the stream that a backend may do faster, bit for bit the same; without one NumPy does them.

A backend gives an object with the methods of ``Loops`` to ``use``. ``worth(n)`` is asked first, with the
number of words that a draw takes.
"""

from __future__ import annotations

from typing import Any, Protocol


class Loops(Protocol):
    """What may be done faster."""

    def worth(self, words: int) -> bool:
        """Whether the other methods should be used for a draw of so many words."""

    def words(self, bits: Any, out: Any) -> bool:
        """Fill uint32 ``out`` from NumPy's ``MT19937``, which moves on; False if that cannot be done."""

    def below(self, words: Any, threshold: float, out: Any) -> None:
        """float32 ``out``: 1 where the 53-bit integer of two words is below ``threshold``, else 0."""

    def unit32(self, words: Any, out: Any) -> None:
        """``box_muller.unit32``."""

    def log1p(self, values: Any) -> None:
        """The C library's log1p of flat float64 ``values``, in place."""

    def swaps(self, values: Any, jumps: Any) -> None:
        """For each ``i`` in turn, int64 ``values[i]`` and ``values[jumps[i]]`` change places."""


class _State:
    loops: Loops | None = None


def use(loops: Loops | None) -> None:
    """Let ``loops`` do what it says is worth it; None goes back to NumPy."""
    _State.loops = loops


def loops_for(words: int) -> Loops | None:
    """Who is to do a draw of so many words; None: NumPy."""
    found = _State.loops
    return found if found is not None and found.worth(words) else None
