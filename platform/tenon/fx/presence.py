"""Reroute the functions of tensors while there is a Proxy that could take one over (ADR 0038)."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

from tenon.compat.rerouting import end_rerouting_for, reroute_for


class Presence:
    """Counts objects that are alive; the first has functions rerouted, the last one gone restores them."""

    def __init__(self) -> None:
        self._alive: set[object] = set()
        self._lock = threading.RLock()

    def note(self, thing: object) -> None:
        """Count ``thing`` until it is freed."""
        self._add(weakref.ref(thing, self._discard))

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Have functions rerouted within a block, whatever is freed in it."""
        token = object()
        self._add(token)
        try:
            yield
        finally:
            self._discard(token)

    def _add(self, token: object) -> None:
        with self._lock:
            self._alive.add(token)
            if len(self._alive) == 1:
                reroute_for(self)

    def _discard(self, token: object) -> None:
        with self._lock:
            self._alive.remove(token)
            if not self._alive:
                end_rerouting_for(self)


PROXIES = Presence()
