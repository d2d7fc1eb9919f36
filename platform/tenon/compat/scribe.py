"""PyTorch's module ``torch._logging.scribe``: events for the log of its own CI."""

from __future__ import annotations

__all__: list[str] = []


def open_source_signpost(**fields: object) -> None:
    """Do nothing: the log exists in PyTorch's own CI only, as for PyTorch outside of it."""
