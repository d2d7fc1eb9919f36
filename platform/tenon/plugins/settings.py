"""Checks of what constructors are given: one error that names the owner, the argument and the value.

>>> from tenon.extend import settings
>>> settings.whole("Histogram", "bins", 2048, least=1)
2048
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from operator import index
from typing import NoReturn

import numpy as np

from tenon.errors import ArgumentError, ArgumentTypeError

#: Beyond this no size, count or number of a step has a meaning.
LARGEST = 2**31 - 1


def whole(owner: str, name: str, value: object, *, least: int = 0, most: int = LARGEST) -> int:
    """Return ``value``, an integer from ``least`` to ``most``, as an int; a bool is none."""
    words = f"a whole number from {least} to {most}"
    if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
        _refuse(owner, name, value, words, ArgumentTypeError)
    number = index(value)  # type: ignore[arg-type]
    if not least <= number <= most:
        _refuse(owner, name, value, words, ArgumentError)
    return number


def real(owner: str, name: str, value: object, *, least: float = -math.inf, most: float = math.inf) -> None:
    """Refuse ``value`` unless it is a number from ``least`` to ``most``; NaN and a bool are none."""
    bounds = f" from {least:g} to {most:g}" if math.isfinite(least) or math.isfinite(most) else ""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        _refuse(owner, name, value, f"a number{bounds}", ArgumentTypeError)
    if not least <= value <= most:  # type: ignore[operator]
        _refuse(owner, name, value, f"a number{bounds}", ArgumentError)


def flag(owner: str, name: str, value: object) -> None:
    """Refuse ``value`` unless it is a bool, or an integer or None in place of one."""
    if not isinstance(value, (bool, np.bool_, int, type(None))):
        _refuse(owner, name, value, "a bool", ArgumentTypeError)


def function(owner: str, name: str, value: object) -> None:
    """Refuse ``value`` unless it can be called, or is None."""
    if value is not None and not callable(value):
        _refuse(owner, name, value, "a function or None", ArgumentTypeError)


def instance(owner: str, name: str, value: object, kinds: type | tuple[type, ...], words: str) -> None:
    """Refuse ``value`` unless it is of one of ``kinds``, which ``words`` name."""
    if not isinstance(value, kinds):
        _refuse(owner, name, value, words, ArgumentTypeError)


def names(owner: str, name: str, value: Iterable[str]) -> None:
    """Refuse ``value`` unless it is a collection of strings, and none itself."""
    wrong = isinstance(value, (str, bytes)) or not isinstance(value, Iterable)
    if wrong or not all(isinstance(each, str) for each in value):
        _refuse(owner, name, value, "a collection of strings", ArgumentTypeError)


def _refuse(owner: str, name: str, value: object, words: str, error: Callable[[str], Exception]) -> NoReturn:
    raise error(f"{owner}: {name} must be {words}, got {value!r:.80}.")
