"""Modules whose parameters were iterated recently, from which a job of several ranks names its parameters."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.nn.traversal import Traversal


class _RecentModules:
    """``modules`` is None in a process that is not one of several ranks: nothing is recorded there."""

    modules: weakref.WeakSet[Traversal] | None = None


RECENT_MODULES = _RecentModules()
