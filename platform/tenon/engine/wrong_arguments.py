"""PyTorch's TypeError for a number in a tensor's place, found after a function has failed on it.

Public functions do not check their arguments' types, which would cost every call; those that fail are looked
at again: ``except FAILURES: refuse_numbers(function, args, kwargs); raise``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., object])

#: What an array's use of a number may raise: the number has no such attribute, size or axis.
FAILURES = (AttributeError, TypeError, ValueError, IndexError, RuntimeError)
#: Annotations of parameters that take tensors only.
_TENSOR = frozenset(("Tensor", "Tensor | None"))
_NUMBERS = (bool, int, float, complex, np.generic)


def refuse_numbers(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    name: str | None = None,
    first: int = 1,
) -> None:
    """Raise TypeError if a number is among the arguments that ``function`` annotates as tensors.

    ``name`` is what the user called, by default the function's name; the argument after ``self`` is the first
    of a method (``first=0``).
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # wrong names or too many, of which the error tells
        return
    parameters = inspect.signature(function).parameters
    for position, (argument, value) in enumerate(bound.items(), first):
        annotation: object = parameters[argument].annotation
        if isinstance(value, _NUMBERS) and annotation in _TENSOR:
            raise wrong_type(name or function.__name__, argument, position, value) from None


def wrong_type(name: str, argument: str, position: int, value: object) -> TypeError:
    """PyTorch's error for ``value`` in place of a tensor."""
    kind = type(value)
    type_name = f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
    return TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not {type_name}")


def refusing_numbers(function: F) -> F:
    """Decorate ``function``: a number in a tensor's place is a TypeError in PyTorch's words."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # those of ``function``
        try:
            return function(*args, **kwargs)
        except FAILURES:
            refuse_numbers(function, args, kwargs)
            raise

    return call  # type: ignore[return-value]


def refuse_numbers_in(namespace: dict[str, object], names: Sequence[str]) -> None:
    """Decorate the functions ``names`` of a module, which nobody calls in a loop over small tensors."""
    for name in names:
        function = namespace[name]
        if isinstance(function, FunctionType):
            namespace[name] = refusing_numbers(function)
