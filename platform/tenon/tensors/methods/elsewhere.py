"""Methods whose functions are built on Tensor, in ``tenon.functions``: imported when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_HOMES = {
    "counting": "histogram",
    "older_factorizations": "geqrf lu ormqr",
    "spectra": "istft stft",
}


class Elsewhere:
    """``stft``, ``histogram``, ``lu`` and their kin, with this tensor as the first argument."""

    __slots__ = ()


def _method(home: str, name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(f"tenon.functions.{home}"), name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``tenon.{name}`` of this tensor."
    return method


for _home, _names in _HOMES.items():
    for _name in _names.split():
        setattr(Elsewhere, _name, _method(_home, _name))
