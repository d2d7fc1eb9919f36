"""Modules whose parameters were walked lately, where several ranks train: these name the parameters."""

from __future__ import annotations

import weakref
from typing import Any


class _Walked:
    """``modules`` is None in a process of its own, which remembers nothing."""

    modules: weakref.WeakSet[Any] | None = None


WALKED = _Walked()
