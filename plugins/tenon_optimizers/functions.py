"""Saving and loading of user functions in a schedule's state dict: the attributes of callable objects."""

from __future__ import annotations

import types
from typing import Any


def saved_attributes(function: Any) -> dict[str, Any] | None:
    """Return the attributes of a callable object; None for a function, whose code is not saved."""
    if function is None or isinstance(function, types.FunctionType):
        return None
    return dict(getattr(function, "__dict__", {}))


def load_attributes(function: Any, attributes: dict[str, Any] | None) -> None:
    """Restore the saved attributes of a callable object."""
    if attributes is not None:
        function.__dict__.update(attributes)
