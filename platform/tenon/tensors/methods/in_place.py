"""``name_``: what a method ``name`` gives, written into the tensor itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.tensors.inplace import inplace


def through_method(name: str) -> Callable[..., Any]:
    """``name_``: the result of the method ``name`` written into ``self``."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return inplace(getattr(type(self), name), self, *args, **kwargs)

    return as_inplace_form(method, name)


def as_inplace_form(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``method`` under the name ``name_``."""
    method.__name__, method.__qualname__ = f"{name}_", f"Tensor.{name}_"
    method.__doc__ = f"In-place form of ``{name}``."
    return method
