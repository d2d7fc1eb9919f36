"""Counters of changes to hooks, module trees and module attributes, for cache invalidation.

A cache of what a module call does, as the compiler's, has the counter in its key, so that a hook added
later is never silently skipped.
"""

from __future__ import annotations


class Generation:
    """The counters of the process; ``value`` counts changes of call hooks."""

    value = 0
    #: Counts the changes of the hooks of all modules.
    everywhere = 0
    #: Counts the children of modules that were added, replaced or removed.
    structure = 0
    #: Counts the attributes, parameters and buffers of modules that were set or deleted.
    attributes = 0


def generation() -> int:
    """A number that differs after any call hook was added, replaced or removed."""
    return Generation.value
