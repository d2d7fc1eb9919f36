"""``GraphExecGroup``: several backward passes that share the recomputed activations of checkpoints."""

from __future__ import annotations

import threading

from tenon.engine.running_pass import PASS
from tenon.engine.sweep import Sweep
from tenon.errors import GradError

__all__ = ["GraphExecGroup"]


class _Active(threading.local):
    """The active group of this thread."""

    group: GraphExecGroup | None = None


_ACTIVE = _Active()


class GraphExecGroup:
    """Within the block, a checkpoint is recomputed once for all backward passes, not once for each.

    The passes must go through different parts of the graph, as each recomputed activation is used once.
    Activations that were not used are freed with the group.
    """

    def __enter__(self) -> GraphExecGroup:
        if _ACTIVE.group is not None:
            raise GradError("GraphExecGroup contexts cannot be nested.")
        _ACTIVE.group = self
        return self

    def __exit__(self, *exc: object) -> None:
        _ACTIVE.group = None


def group_of_pass() -> GraphExecGroup | Sweep | None:
    """Return the active group, else the innermost backward pass, else None."""
    return _ACTIVE.group or PASS.sweep
