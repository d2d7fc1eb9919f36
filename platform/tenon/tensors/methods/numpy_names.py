"""NumPy's argument names ``axis`` and ``keepdims``, which PyTorch accepts for ``dim`` and ``keepdim``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TypeVar

from tenon.errors import ArgumentError

T = TypeVar("T")
NAMES = {"axis": "dim", "keepdims": "keepdim"}


def translated(kwargs: Mapping[str, T]) -> dict[str, T]:
    """Return ``kwargs`` with PyTorch's names; ArgumentError for an argument given by both names."""
    result = {NAMES.get(name, name): value for name, value in kwargs.items()}
    if len(result) != len(kwargs):
        raise ArgumentError(
            f"got both of NumPy's and PyTorch's names for one argument: {', '.join(kwargs)}. Give one."
        )
    return result


def _accepting_both(method: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(method)
    def call(self: object, *args: object, **kwargs: object) -> T:
        if not kwargs:  # 0.2 us less than passing none
            return method(self, *args)
        return method(self, *args, **translated(kwargs))

    return call


def accept_numpy_names(cls: type) -> None:
    """Let methods of ``cls`` with a ``dim`` accept ``axis`` too, and ``keepdims`` for ``keepdim``."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not hasattr(member, "__wrapped__"):
            code = member.__code__
            parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            if "dim" in parameters and "axis" not in parameters:
                setattr(cls, name, _accepting_both(member))
