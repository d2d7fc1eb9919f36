"""What the suites do with files."""

from __future__ import annotations

import io
from typing import Any

from tenon import serialize


def saved_and_loaded(state: object) -> Any:  # what it was
    """Return ``state`` after it was saved to a file and loaded from it; CheckpointError if a file cannot hold
    it."""
    file = io.BytesIO()
    serialize.save(state, file)
    file.seek(0)
    return serialize.load(file)
