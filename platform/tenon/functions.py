"""torch's functions, most of them a tensor's method called on the first argument."""

from __future__ import annotations

__all__: list[str] = []
