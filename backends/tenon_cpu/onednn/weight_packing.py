"""Pack weights that seldom change: cache a copy in a primitive's fastest layout until the weight changes.

A weight's version counter shows when it has changed. The first call after a change reads the weight in its
plain layout, without packing: in training it will have changed again by the next call. From the second call
with the same version on, the packed copy is used.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon.extend import Thunk

#: Returns the version counter of a tensor's memory: another list, or another number in it, after each change.
#: A list of two: the memory may also be written by code that does not increment the counter.
Counter = Callable[[], list[int]]
#: A function that computes with a packed weight, and one that packs it.
Packed = tuple[Thunk, Thunk]


class PackedOnReuse:
    """A computation that packs its weight when it reads it again. ``on_plain`` reads the plain layout;
    ``make`` returns the computation on a packed copy, or None where there is no faster layout. ``make`` is
    called once the weight has kept its version for a call."""

    __slots__ = ("_compute", "_counter", "_list", "_make", "_number", "_on_plain", "_pack", "_packed")

    def __init__(self, counter: Counter, on_plain: Thunk, make: Callable[[], Packed | None]) -> None:
        self._counter, self._on_plain, self._make = counter, on_plain, make
        self._list: list[int] = []
        self._number, self._packed = -1, False
        self._compute: Thunk | None = None
        self._pack: Thunk = on_plain

    def __call__(self) -> None:
        """Compute, with the packed copy if the weight has not changed since the last call."""
        now = self._counter()
        if now is not self._list or now[0] != self._number or len(now) > 1:
            self._list, self._number, self._packed = now, now[0], False
            self._on_plain()
            return
        if not self._packed:
            if self._compute is None:
                self._compute, self._pack = self._make() or (self._on_plain, _nothing)
            self._pack()
            self._packed = True
        compute = self._compute
        assert compute is not None
        compute()


def _nothing() -> None:
    """Pack nothing: the plain layout is the fastest."""
