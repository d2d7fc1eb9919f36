"""Backward passes that share what checkpointed parts compute again."""

from __future__ import annotations

import threading
from typing import Any

from tenon.engine.backward_end import PASS
from tenon.errors import GradError

__all__ = ["GraphExecGroup"]


class _Active(threading.local):
    """The active group of this thread."""

    group: GraphExecGroup | None = None


_ACTIVE = _Active()


class GraphExecGroup:
    """Inside, a checkpointed part runs again once for all backward passes, not once for each.

    The passes must go through different stretches of the graph: each kept activation is used once. What was
    computed again and not used goes with the group.
    """

    def __enter__(self) -> GraphExecGroup:
        if _ACTIVE.group is not None:
            raise GradError("GraphExecGroup contexts cannot be nested.")
        _ACTIVE.group = self
        return self

    def __exit__(self, *exc: object) -> None:
        _ACTIVE.group = None


def group_of_pass() -> Any:
    """The active group, else the innermost backward pass, else None."""
    return _ACTIVE.group or PASS.sweep
