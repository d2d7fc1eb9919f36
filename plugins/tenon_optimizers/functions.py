"""Saving and loading of user functions in a schedule's state dict: the attributes of callable objects."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping


def saved_attributes(function: Callable[..., object] | None) -> dict[str, object] | None:
    """Return the attributes of a callable object; None for a function, whose code is not saved."""
    if function is None or isinstance(function, types.FunctionType):
        return None
    return dict(getattr(function, "__dict__", {}))


def load_attributes(function: Callable[..., object] | None, attributes: Mapping[str, object] | None) -> None:
    """Restore the saved attributes of a callable object."""
    if attributes is not None:
        function.__dict__.update(attributes)
