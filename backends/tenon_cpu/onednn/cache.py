"""A bounded cache of prepared executions, one per thread, with counters for ``tenon doctor``.

Per thread, because an execution's memory objects point to the arguments of the current call. The kernels
themselves are shared: oneDNN has a cache of its own for them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from tenon_cpu.onednn.runtime import on_fork
from tenon_cpu.threads import on_change

T = TypeVar("T")
CAPACITY = 1024


class Counts(NamedTuple):
    """Counters of a cache, summed over all living threads."""

    size: int
    capacity: int
    hits: int
    misses: int


class Entries:
    """The entries of one thread, an LRU cache."""

    __slots__ = ("__weakref__", "capacity", "hits", "misses", "values")

    def __init__(self, capacity: int) -> None:
        self.capacity, self.hits, self.misses = capacity, 0, 0
        #: By key what its ``make`` returned.
        self.values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[..., T], *arguments: object) -> T:
        """Return the entry for ``key``; on a miss, store and return ``make(*arguments)``."""
        values = self.values
        try:
            # Reinserted: a dict is ordered, so that the first key is always the least recently used.
            value = values[key] = values.pop(key)
        except KeyError:
            self.misses += 1
            value = make(*arguments)
            while len(values) >= self.capacity:
                del values[next(iter(values))]
            values[key] = value
            return value
        self.hits += 1
        return value


class Cache:
    """Per-thread entries of at most ``capacity`` each.

    An entry may be None, which records that nothing can be prepared for its key.
    """

    def __init__(self, name: str, capacity: int = CAPACITY) -> None:
        self.name, self.capacity = name, capacity
        self._forget()
        caches.append(self)

    def _forget(self) -> None:
        self._local, self._lock = threading.local(), threading.Lock()
        self._tables: weakref.WeakSet[Entries] = weakref.WeakSet()

    def entries(self) -> Entries:
        """Return the calling thread's entries, created at its first call."""
        try:
            entries: Entries = self._local.entries
        except AttributeError:
            entries = self._local.entries = Entries(self.capacity)
            with self._lock:
                self._tables.add(entries)
        return entries

    def get(self, key: Hashable, make: Callable[..., T], *arguments: object) -> T:
        """Return the calling thread's entry for ``key``; on a miss, store and return ``make(*arguments)``."""
        try:
            entries: Entries = self._local.entries
        except AttributeError:
            entries = self.entries()
        return entries.get(key, make, *arguments)

    def clear(self) -> None:
        """Drop the calling thread's entries."""
        self.entries().values.clear()

    def counts(self) -> Counts:
        """Return the number of entries, the capacity of each thread, hits and misses."""
        with self._lock:
            tables = list(self._tables)
        return Counts(
            sum(len(t.values) for t in tables),
            self.capacity,
            sum(t.hits for t in tables),
            sum(t.misses for t in tables),
        )


#: Every cache of the process, for ``tenon doctor``.
caches: list[Cache] = []


@on_fork
def _after_fork() -> None:
    """Drop all entries in a forked child, which prepares its own for its one thread."""
    for cache in caches:
        cache._forget()


@on_change
def _after_change(count: int) -> None:
    """Drop all entries: the size of scratch memory depends on the number of threads."""
    for cache in caches:
        cache._forget()
