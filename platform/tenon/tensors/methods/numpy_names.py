"""NumPy's names ``axis`` and ``keepdims`` beside torch's ``dim`` and ``keepdim``, as torch takes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tenon.errors import ArgumentError

NAMES = {"axis": "dim", "keepdims": "keepdim"}


def translated(kwargs: dict[str, Any]) -> dict[str, Any]:
    """``kwargs`` under torch's names."""
    found = {NAMES.get(name, name): value for name, value in kwargs.items()}
    if len(found) != len(kwargs):
        raise ArgumentError(
            f"got both of NumPy's and torch's names for one argument: {', '.join(kwargs)}. Give one."
        )
    return found


def _taking_both(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:  # 0.2 us less than passing none
            return method(self, *args)
        return method(self, *args, **translated(kwargs))

    return call


def take_both(cls: type) -> None:
    """Make all methods of ``cls`` that have a ``dim`` take ``axis`` too, and ``keepdims`` for ``keepdim``."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not hasattr(member, "__wrapped__"):
            code = member.__code__
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if "dim" in parameters and "axis" not in parameters:
                setattr(cls, name, _taking_both(member))
