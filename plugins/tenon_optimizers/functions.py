"""What a state dict holds of the functions that users give to schedules: the attributes of objects."""

from __future__ import annotations

import types
from typing import Any


def saved_attributes(function: Any) -> dict[str, Any] | None:
    """The attributes of a callable object; None for a function, whose code no checkpoint carries."""
    if function is None or isinstance(function, types.FunctionType):
        return None
    return dict(getattr(function, "__dict__", {}))


def load_attributes(function: Any, attributes: dict[str, Any] | None) -> None:
    """Give a callable object the attributes that were saved."""
    if attributes is not None:
        function.__dict__.update(attributes)
