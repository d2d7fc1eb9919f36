"""torch's ``torch.jit``: TorchScript is not written here; marks for it change nothing.

``script`` and ``trace`` refuse, and name what does their work: ``tenon.compile`` makes a model faster,
``tenon.save`` keeps it. What only tells TorchScript's compiler something (``ignore``, ``unused``, ``export``,
``annotate``, ``Final``) returns what it is given, as in PyTorch outside of a script. With ``PYTORCH_JIT=0``
in the environment, ``script`` too returns what it is given, as PyTorch's does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from tenon.config import environment
from tenon.errors import UnsupportedError

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


def script(obj: T, *args: Any, **options: Any) -> T:
    """Refused, unless ``PYTORCH_JIT=0`` is set: then ``obj`` itself."""
    if environment("PYTORCH_JIT") == "0":
        return obj
    name = getattr(obj, "__name__", type(obj).__name__)
    raise UnsupportedError(
        f"torch.jit.script({name}): TorchScript is not made here. Leave the call away (or set PYTORCH_JIT=0,"
        " with which it returns what it is given); tenon.compile makes functions and models faster."
    )


def _refused(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise UnsupportedError(f"torch.jit.{name}: TorchScript is not {instead}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused: TorchScript is not {instead}"
    return refuse


_MADE = "made here. tenon.compile records a call and makes it faster."
trace = _refused("trace", _MADE)
trace_module = _refused("trace_module", _MADE)
save = _refused("save", "written here. Save a model's state_dict with tenon.save.")
load = _refused("load", "read here. Load a state_dict that tenon.save or torch.save wrote.")


def ignore(drop: Any = False, **options: Any) -> Any:
    """A decorator, with or without arguments, that returns its function."""
    return drop if callable(drop) else _itself


def _itself(function: T) -> T:
    return function


def unused(function: T) -> T:
    """``function``."""
    return function


def export(function: T) -> T:
    """``function``."""
    return function


def interface(obj: T) -> T:
    """``obj``."""
    return obj


def script_if_tracing(function: T) -> T:
    """``function``: nothing is traced."""
    return function


#: Their names inside torch.
_script_if_tracing, _overload_method, _overload = script_if_tracing, _itself, _itself


def annotate(the_type: Any, the_value: T) -> T:
    """``the_value``."""
    return the_value


class ScriptModule:
    """A compiled module, which nothing is an instance of."""

    def __init__(self) -> None:
        script(self)


class ScriptFunction:
    """A compiled function, which nothing is an instance of."""

    def __init__(self) -> None:
        script(self)


class ScriptMethod:
    """A compiled method, which nothing is an instance of."""

    def __init__(self) -> None:
        script(self)


class ScriptDict:
    """A dict of a compiled function, which nothing is an instance of."""

    def __init__(self, entries: Any = None) -> None:
        script(self)


class ScriptList:
    """A list of a compiled function, which nothing is an instance of."""

    def __init__(self, entries: Any = None) -> None:
        script(self)
