"""Weights that seldom change, kept in the layout that a primitive is fastest with for as long as they do not.

A weight's version counter tells when it has changed. In the call after a change the weight is read as it
lies, as if nothing were kept: in training it will have changed again by the next one. From the second call
with the same version on, the packed copy serves.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon.extend import Thunk

#: The version counter of a tensor's memory, found anew at each call: another list, or another number in it,
#: after each change. A list of two: the memory may be written by somebody who does not count.
Counter = Callable[[], list[int]]
#: How to compute with a packed weight, and how to pack it.
Packed = tuple[Thunk, Thunk]


class Lasting:
    """A computation: ``on_plain`` reads the weight as it lies; ``make`` gives the one on a packed copy, or
    None where there is no better layout. It is asked only once the weight has lasted for a call."""

    __slots__ = ("_compute", "_counter", "_list", "_make", "_number", "_on_plain", "_pack", "_packed")

    def __init__(self, counter: Counter, on_plain: Thunk, make: Callable[[], Packed | None]) -> None:
        self._counter, self._on_plain, self._make = counter, on_plain, make
        self._list: list[int] = []
        self._number, self._packed = -1, False
        self._compute: Thunk | None = None
        self._pack: Thunk = on_plain

    def __call__(self) -> None:
        """Compute."""
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
    """What lies as it should needs no packing."""
