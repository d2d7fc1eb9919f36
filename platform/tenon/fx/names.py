"""The names of functions, types and values in graphs and in generated code.

A function of tenon has its public name, such as ``tenon.relu``, whichever module defines it.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from tenon.compat.overriding import NAMESPACES
from tenon.ops.aten import Operator

__all__ = [
    "Namespace",
    "format_target",
    "is_name",
    "qualified_name",
    "snake_case",
    "target_name",
    "type_name",
]

#: Names that generated code reserves.
RESERVED = frozenset(
    [
        "NoneType",
        "device",
        "fx_pytree",
        "inf",
        "nan",
        "pytree",
        "tenon",
        "torch",
        *keyword.kwlist,
        *dir(builtins),
    ]
) - {"_"}
_NUMBERED = re.compile(r"(.+)_(\d+)$")
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_PUBLIC_MODULES = (
    "tenon",
    "tenon.nn.functional",
    "tenon.linalg",
    "tenon.fft",
    "tenon.special",
    "tenon.nn.init",
    "tenon.ops",
)


def is_name(text: str) -> bool:
    """Whether code may say ``x.text``."""
    return text.isidentifier() and not keyword.iskeyword(text)


class Namespace:
    """The names in use in one graph, or in one piece of generated code."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last_number: dict[str, int] = {}
        self._names: dict[object, str] = {}

    def create_name(self, candidate: str, obj: object) -> str:
        """Return an unused name derived from ``candidate`` (``add``, ``add_1``, ...) and assign it to
        ``obj``.

        >>> names = Namespace()
        >>> names.create_name("add", None), names.create_name("add", None), names.create_name("2.max", None)
        ('add', 'add_1', '_2_max')
        """
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _NUMBERED.match(candidate)
        stem, number = (match[1], int(match[2])) if match else (candidate, 0)
        if not match or candidate in self._used:
            number = self._last_number.get(stem, number)
        while candidate in self._used or candidate in RESERVED:
            number += 1
            candidate = f"{stem}_{number}"
        self._used.add(candidate)
        self._last_number[stem] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: object) -> None:
        """Assign ``name``, which is in use, to ``obj`` unless it has a name."""
        self._names.setdefault(obj, name)

    def rename_object(self, obj: object, name: str) -> None:
        """Assign another name to ``obj``."""
        self._names[obj] = name
        self._used.add(name)

    def release(self, obj: object) -> None:
        """Remove ``obj``; its name stays in use."""
        self._names.pop(obj, None)


def snake_case(text: str) -> str:
    """Return ``text`` in lower case, with an underscore where a word begins.

    >>> snake_case("layers.BatchNorm2d"), snake_case("ALL_CAPS")
    ('layers.batch_norm2d', 'all_caps')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()


def target_name(target: object) -> str:
    """Return the preferred name of a node that calls ``target``."""
    if isinstance(target, str):
        name = target.strip("_") if target.startswith("__") and target.endswith("__") else target
    else:
        name = getattr(target, "__name__", type(target).__name__)
    return snake_case(name)


def _registered() -> dict[int, str]:
    """Return the public names of registered functions by their ids, in the order of the namespaces."""
    names: dict[int, str] = {}
    for namespace, members in NAMESPACES.items():
        for name, member in members.items():
            names.setdefault(id(member), f"tenon{namespace[5:]}.{name}")
    return names


_known: dict[int, str] = {}
_counted = 0


def public_name(function: object) -> str | None:
    """Return the public name of a function of tenon, ``"tenon.nn.functional.relu"``; else None."""
    global _known, _counted
    count = sum(map(len, NAMESPACES.values()))
    if count != _counted:
        _known, _counted = _registered(), count
    known_name = _known.get(id(function))
    if known_name is not None:
        return known_name
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not str(getattr(function, "__module__", "")).startswith("tenon"):
        return None
    for module in _PUBLIC_MODULES:
        namespace = sys.modules.get(module)
        if namespace is not None and getattr(namespace, name, None) is function:
            return f"{module}.{name}"
    return None


def qualified_name(function: Any) -> str:  # any callable
    """Return the name by which generated code can import ``function``; a public one for tenon's functions.

    >>> import operator, tenon
    >>> qualified_name(tenon.relu), qualified_name(operator.add), qualified_name(len)
    ('tenon.relu', '_operator.add', 'len')
    """
    if isinstance(function, Operator):
        return f"tenon.ops.{function!r}"
    name = getattr(function, "__name__", None)
    if name is None:
        raise RuntimeError(
            f"{function!r} of type {type(function).__name__} has no __name__: wrap it in a function."
        )
    if getattr(builtins, name, None) is function:
        return str(name)
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{function.__objclass__.__module__}.{function.__objclass__.__name__}.{name}"
    public = public_name(function)
    if public is not None:
        return public
    module = getattr(function, "__module__", None)
    return f"{module or _module_of_builtin(function)}.{name}"


def _module_of_builtin(function: Callable[..., object]) -> str:
    """Return the module of a built-in function without ``__module__``; RuntimeError if none is found."""
    name = function.__name__
    for module_name in ("operator", "math", "numpy"):
        if getattr(sys.modules.get(module_name), name, None) is function:
            return module_name
    raise RuntimeError(f"cannot find the module of {function!r}: it has no __module__.")


def type_name(kind: object) -> str:
    """Return the text of an annotation."""
    if isinstance(kind, types.GenericAlias) or typing.get_origin(kind) is not None:
        return repr(kind).replace("tenon.tensors.tensor.Tensor", "tenon.Tensor")
    if isinstance(kind, type):
        if kind.__module__ == "builtins":
            return kind.__qualname__
        namespace = sys.modules["tenon"]
        name = str(kind.__name__)
        if kind.__module__.startswith("tenon.") and getattr(namespace, name, None) is kind:
            return f"tenon.{name}"
        return f"{kind.__module__}.{kind.__qualname__}"
    if kind is ...:
        return "..."
    return kind.__name__ if isinstance(kind, types.FunctionType) else repr(kind)


def format_target(target: Any) -> str:  # any callable, or a string
    """Return the text of a target in a printed graph."""
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", None)
    if module == "builtins":
        return f"builtins.{target.__name__}"
    if module == "_operator":
        return f"operator.{target.__name__}"
    return qualified_name(target)
