"""``SUSPENSION.reason``: why calls of compiled functions may not be eager at present; None if they may."""

from __future__ import annotations


class Suspension:
    """Set while a function has to have the same bits in every call, so that it may run as a program only."""

    reason: str | None = None


SUSPENSION = Suspension()
