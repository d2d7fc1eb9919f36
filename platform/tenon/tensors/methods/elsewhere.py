"""Methods whose functions are built on Tensor, and stand above it: looked up when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.tensors.public import public

_NAMES = "geqrf histogram istft lu ormqr stft"


class Elsewhere:
    """``stft``, ``histogram``, ``lu`` and their kin, with this tensor as the first argument."""

    __slots__ = ()


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return public(name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``tenon.{name}`` of this tensor."
    return method


for _name in _NAMES.split():
    setattr(Elsewhere, _name, _method(_name))
