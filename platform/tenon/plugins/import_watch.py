"""Name a plugin whose import takes long: a program that waits for it looks like one that hangs."""

from __future__ import annotations

import sys

from tenon.plugins.watch import Watch

LIMIT = 10.0
"""Seconds after which an import that is still running is named."""


class ImportWatch(Watch):
    """Names, on standard error, the plugin that is ``importing`` for ``LIMIT`` seconds.

    ``importing`` is its name, by which it can be disabled, and its description.
    """

    def __init__(self) -> None:
        super().__init__("tenon import watch", LIMIT)
        self.importing = self._seen = ("", "")

    def look(self) -> None:
        """Name the plugin that was being imported at the last look, too."""
        name, text = now = self.importing
        if now is self._seen and name:
            print(
                f"tenon: still importing plugin {text} after {self._pause:g} s. If it does not end,"
                f" interrupt, and leave the plugin out with TENON_DISABLE_PLUGINS={name}.",
                file=sys.stderr,
                flush=True,
            )
        self._seen = now
