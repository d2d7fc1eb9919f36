"""``SUSPENSION.reason``: why compiled functions may not be called at present; None if they may."""

from __future__ import annotations


class Suspension:
    """Set while the results of compiled functions would not equal those of eager ones bit for bit."""

    reason: str | None = None


SUSPENSION = Suspension()
