"""Methods that call a function of a higher layer, which is looked up at the call: ``x.stft()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenon.tensors.methods.family import Family
from tenon.tensors.public_functions import public

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

_NAMES = "geqrf histogram istft lu ormqr stft"


class Forwarded(Family):
    """Methods ``x.name(...)`` that are ``tenon.name(x, ...)``."""

    __slots__ = ()


def _method(name: str) -> Callable[..., object]:
    def method(self: Tensor, *args: object, **kwargs: object) -> Any:  # as the function
        return public(name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Return ``tenon.{name}`` of this tensor."
    return method


for _name in _NAMES.split():
    setattr(Forwarded, _name, _method(_name))
