"""Reroute the functions of tensors while a Proxy exists, which may override them (ADR 0038)."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

from tenon.compat.rerouting import end_rerouting_for, reroute_for, rerouted_by


class Presence:
    """Tracks the objects that are alive: functions are rerouted as long as there is one."""

    def __init__(self) -> None:
        self._alive: set[object] = set()
        self._lock = threading.RLock()

    def track(self, value: object) -> None:
        """Track ``value`` until it is freed."""
        self._add(weakref.ref(value, self._discard))

    @contextlib.contextmanager
    def rerouted(self) -> Iterator[None]:
        """Keep functions rerouted within a block, even if all tracked objects are freed."""
        token = object()
        self._add(token)
        try:
            yield
        finally:
            self._discard(token)

    def _add(self, token: object) -> None:
        with self._lock:
            self._alive.add(token)
            if not rerouted_by(self):  # it is the first one, or ``restore_all`` was called
                reroute_for(self)

    def _discard(self, token: object) -> None:
        with self._lock:
            self._alive.remove(token)
            if not self._alive and rerouted_by(self):
                end_rerouting_for(self)


PROXIES = Presence()
