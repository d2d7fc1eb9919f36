"""Name a plugin whose import takes long: a program that waits for it looks like one that hangs."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

LIMIT = 10.0
"""Seconds after which an import that is still running is named."""


class ImportWatch:
    """A thread that names, on standard error, the plugin that is ``importing`` for ``LIMIT`` seconds.

    ``importing`` is its name, by which it can be disabled, and its description.
    """

    def __init__(self) -> None:
        self.importing = ("", "")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tenon import watch", daemon=True)

    def __enter__(self) -> ImportWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()

    def _watch(self) -> None:
        before = self.importing
        while not self._done.wait(LIMIT):
            name, text = now = self.importing
            if now is before and name:
                print(
                    f"tenon: still importing plugin {text} after {LIMIT:g} s. If it does not end, interrupt,"
                    f" and leave the plugin out with TENON_DISABLE_PLUGINS={name}.",
                    file=sys.stderr,
                    flush=True,
                )
            before = now
