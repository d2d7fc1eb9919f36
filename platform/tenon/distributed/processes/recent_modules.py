"""Modules whose parameters were iterated recently, from which a job of several ranks names its parameters."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.nn.traversal import Traversal


class _RecentModules:
    """``modules`` is None in a process that is not one of several ranks: nothing is recorded there."""

    modules: weakref.WeakSet[Traversal] | None = None
    pending: bool = False
    """Whether there are any: asking a ``WeakSet`` takes longer than the rest of a lookup."""

    def add(self, module: Traversal) -> None:
        """Note that the parameters of ``module`` are being iterated."""
        if self.modules is not None:
            self.modules.add(module)
            self.pending = True

    def taken(self) -> list[Traversal]:
        """Return the modules noted so far, and forget them."""
        modules = list(self.modules or ())
        if self.modules is not None:
            self.modules.clear()
        self.pending = False
        return modules


RECENT_MODULES = _RecentModules()
