"""``SUSPENSION.reason``: why no compiled function may be called now; None where they may."""

from __future__ import annotations


class Suspension:
    """What others set while bits of compiled functions would not be those of their parts."""

    reason: str | None = None


SUSPENSION = Suspension()
