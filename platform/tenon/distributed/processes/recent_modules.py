"""Modules whose parameters were iterated recently, from which a job of several ranks names its parameters."""

from __future__ import annotations

import weakref
from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.nn.traversal import Traversal


class _Every:
    """A container of all numbers."""

    def __contains__(self, number: object) -> bool:
        return True


class _RecentModules:
    """``modules`` is None in a process that is not one of several ranks: nothing is recorded there."""

    __slots__ = ("_known", "modules", "other", "sizes")

    def __init__(self) -> None:
        self.modules: weakref.WeakSet[Traversal] | None = None
        self._known: Container[int] = frozenset()
        self.sizes: Container[int] = frozenset()
        """The numbers of elements that a parameter may have: all numbers while there are modules, so that one
        look answers both; asking a ``WeakSet`` takes longer than the rest of a lookup."""
        self.other = -1
        """A number that is not in ``sizes``: comparing takes half as long as looking."""

    @property
    def pending(self) -> bool:
        """Whether there are any modules."""
        return self.sizes is not self._known

    def add(self, module: Traversal) -> None:
        """Note that the parameters of ``module`` are being iterated."""
        if self.modules is not None:
            self.modules.add(module)
            self.sizes, self.other = _EVERY, -1

    def taken(self) -> list[Traversal]:
        """Return the modules noted so far, and forget them."""
        modules = list(self.modules or ())
        if self.modules is not None:
            self.modules.clear()
        self.sizes = self._known
        return modules

    def know(self, sizes: Container[int]) -> None:
        """Let ``sizes`` be those of the parameters of all modules that were taken."""
        self.sizes = _EVERY if self.pending else sizes
        self._known, self.other = sizes, -1


_EVERY = _Every()
RECENT_MODULES = _RecentModules()
