"""A bounded cache of prepared executions, one per thread, with counters for ``tenon doctor``.

Per thread, because an execution's memory objects point to the arguments of the call that is under way. The
kernels themselves are shared: oneDNN keeps a cache of its own for them.
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
    """Over all living threads."""

    size: int
    capacity: int
    hits: int
    misses: int


class Entries:
    """The entries of one thread; the least recently used leaves first."""

    __slots__ = ("__weakref__", "capacity", "hits", "misses", "values")

    def __init__(self, capacity: int) -> None:
        self.capacity, self.hits, self.misses = capacity, 0, 0
        self.values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[..., T], *arguments: object) -> T:
        """What is kept for ``key``, else ``make(*arguments)``, kept from now on."""
        values = self.values
        try:
            # Out and in again: a dict is ordered, so that the first key is always the least recently used.
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

    An entry may be None: that nothing can be prepared for a key is worth remembering too.
    """

    def __init__(self, name: str, capacity: int = CAPACITY) -> None:
        self.name, self.capacity = name, capacity
        self._forget()
        caches.append(self)

    def _forget(self) -> None:
        self._local, self._lock = threading.local(), threading.Lock()
        self._tables: weakref.WeakSet[Entries] = weakref.WeakSet()

    def entries(self) -> Entries:
        """The calling thread's entries."""
        try:
            entries: Entries = self._local.entries
        except AttributeError:
            entries = self._local.entries = Entries(self.capacity)
            with self._lock:
                self._tables.add(entries)
        return entries

    def get(self, key: Hashable, make: Callable[..., T], *arguments: object) -> T:
        """What the calling thread keeps for ``key``, else ``make(*arguments)``, kept from now on."""
        try:
            entries: Entries = self._local.entries
        except AttributeError:
            entries = self.entries()
        return entries.get(key, make, *arguments)

    def clear(self) -> None:
        """Forget the calling thread's entries."""
        self.entries().values.clear()

    def counts(self) -> Counts:
        """Entries, the bound of each thread, hits and misses."""
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
    """A child prepares anew, for its one thread."""
    for cache in caches:
        cache._forget()


@on_change
def _after_change(count: int) -> None:
    """Scratch memory is made for the number of threads: prepare anew."""
    for cache in caches:
        cache._forget()
