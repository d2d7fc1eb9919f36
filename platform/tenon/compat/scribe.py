"""PyTorch's path ``torch._logging.scribe``: events for the log of its own CI."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def open_source_signpost(**fields: Any) -> None:
    """Nothing: the log is there in PyTorch's CI only, as it is for PyTorch elsewhere."""
