"""A number that moves with every change of what a module call does beside its ops: hooks, so far.

Whoever stores the outcome of a call, such as a compiler, has it in its key, so that no hook is ever silently
dropped.
"""

from __future__ import annotations


class Generation:
    """The counter of the process."""

    value = 0
    #: Counts the changes of the hooks of all modules.
    everywhere = 0
    #: Counts the attributes, parameters and buffers of modules that were set or deleted.
    attributes = 0


def generation() -> int:
    """A number that differs after any call hook was added, replaced or removed."""
    return Generation.value
