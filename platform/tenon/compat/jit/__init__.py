"""``torch.jit``: there is no TorchScript; annotations for its compiler have no effect.

``script`` returns its argument, which computes the same, and warns once that it stays Python, as libraries
call it when they are imported. ``trace``, ``save`` and ``load``, whose result would be a script, raise
UnsupportedError and name the alternatives: ``tenon.compile`` makes a model faster, ``tenon.save`` writes it.
Annotations for the compiler (``ignore``, ``unused``, ``export``, ``annotate``, ``Final``) return their
argument, as in PyTorch outside of a script.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from tenon.config import environment
from tenon.errors import TenonWarning, UnsupportedError

T = TypeVar("T")

__all__ = [
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "load",
    "save",
    "script",
    "script_if_tracing",
    "trace",
    "trace_module",
    "unused",
]


def is_scripting() -> bool:
    """False: nothing is compiled as TorchScript."""
    return False


def is_tracing() -> bool:
    """False: nothing is traced for TorchScript."""
    return False


def script(obj: T, *args: object, **options: object) -> T:
    """Return ``obj``, which stays Python; warn of it once per process, unless ``PYTORCH_JIT=0``."""
    if environment("PYTORCH_JIT") != "0" and not _warned:
        _warned.append(obj)
        warnings.warn(
            f"torch.jit.script({getattr(obj, '__name__', type(obj).__name__)}): there is no TorchScript here,"
            " and the argument is returned unchanged. tenon.compile makes functions and models faster;"
            " PYTORCH_JIT=0 in the environment disables this warning.",
            TenonWarning,
            stacklevel=2,
        )
    return obj


#: The first argument of ``script``; nonempty once the warning was issued.
_warned: list[object] = []


def _refused(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise UnsupportedError(f"torch.jit.{name}: TorchScript is not {instead}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raise UnsupportedError: TorchScript is not {instead}"
    return refuse


_CREATED = "created here. tenon.compile records a call and makes it faster."
trace = _refused("trace", _CREATED)
trace_module = _refused("trace_module", _CREATED)
save = _refused("save", "written here. Save a model's state_dict with tenon.save.")
load = _refused("load", "read here. Load a state_dict that tenon.save or torch.save wrote.")


def ignore(drop: object = False, **options: object) -> Callable[..., object]:
    """Return the decorated function; a decorator with or without arguments."""
    return drop if callable(drop) else _itself


def _itself(function: T) -> T:
    return function


def unused(function: T) -> T:
    """Return ``function``."""
    return function


def export(function: T) -> T:
    """Return ``function``."""
    return function


def interface(obj: T) -> T:
    """Return ``obj``."""
    return obj


def script_if_tracing(function: T) -> T:
    """Return ``function``: nothing is traced."""
    return function


#: Their private names in PyTorch.
_script_if_tracing, _overload_method, _overload = script_if_tracing, _itself, _itself


def annotate(the_type: object, the_value: T) -> T:
    """Return ``the_value``."""
    return the_value


def _refuse_instance(result: object) -> NoReturn:
    raise UnsupportedError(
        f"torch.jit.{type(result).__name__}: TorchScript does not exist here. Write a plain nn.Module, list"
        " or dict; tenon.compile makes functions and models faster."
    )


class ScriptModule:
    """A compiled module; it has no instances."""

    def __init__(self) -> None:
        _refuse_instance(self)


class ScriptFunction:
    """A compiled function; it has no instances."""

    def __init__(self) -> None:
        _refuse_instance(self)


class ScriptMethod:
    """A compiled method; it has no instances."""

    def __init__(self) -> None:
        _refuse_instance(self)


class ScriptDict:
    """A dict of a compiled function; it has no instances."""

    def __init__(self, entries: object = None) -> None:
        _refuse_instance(self)


class ScriptList:
    """A list of a compiled function; it has no instances."""

    def __init__(self, entries: object = None) -> None:
        _refuse_instance(self)
