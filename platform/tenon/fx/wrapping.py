"""``wrap``: functions that a tracer records as one call instead of tracing into them."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, TypeVar

from tenon.fx.arguments import Nested, aggregate
from tenon.fx.tracer_base import Traced

T = TypeVar("T")
#: Globals of a module (by id) and a name in them -> those globals.
_WRAPPED: dict[tuple[int, str], dict[str, Any]] = {}  # values of any type
_ABSENT: Any = object()  # stands for a value


def wrap(fn_or_name: T) -> T:
    """Record calls of a function, given by name or as an object, as one node; return the argument.

    Call it at the top of a module, or use it as a decorator there: tracers find the function by the module's
    global name. ``wrap("len")`` records that module's calls of a built-in function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            f"wrap: unsupported type {type(fn_or_name).__name__}; pass a function of this module, or its"
            " name."
        )
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", "")
    current = inspect.currentframe()
    frame = current.f_back if current is not None else None
    if frame is None or frame.f_code.co_name != "<module>":
        raise NotImplementedError(
            f"wrap({name!r}) must be called at the top level of a module: tracers replace the module's"
            " global name."
        )
    _WRAPPED[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def found_proxy(*arguments: Nested) -> Traced | None:
    """Return the first proxy in arguments, at any depth."""
    proxies: list[Traced] = []
    aggregate(arguments, lambda leaf: proxies.append(leaf) if isinstance(leaf, Traced) else None)
    return proxies[0] if proxies else None


def recording(function: Callable[..., Any]) -> Callable[..., Any]:  # any function
    """Return ``function`` that records its call if it receives a proxy."""

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:  # of any types
        proxy = found_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return recorded


class Patcher:
    """Replaces global names and attributes of classes within its block."""

    def __init__(self) -> None:
        self._restore: list[Callable[[], None]] = []
        self._seen: set[int] = set()

    def patch(self, names: dict[str, Any], name: str, value: object) -> None:  # values of any type
        """Set ``names[name]``."""
        before = names.get(name, _ABSENT)
        names[name] = value
        self._restore.append(
            lambda: names.pop(name) if before is _ABSENT else names.__setitem__(name, before)
        )

    def patch_class(self, cls: type, name: str, value: object) -> None:
        """Set an attribute of ``cls``."""
        before = cls.__dict__.get(name, _ABSENT)
        setattr(cls, name, value)
        self._restore.append(lambda: delattr(cls, name) if before is _ABSENT else setattr(cls, name, before))

    def patch_wrapped(self) -> None:
        """Record calls of the functions that were passed to ``wrap``."""
        for (_, name), names in list(_WRAPPED.items()):
            function = names.get(name, getattr(builtins, name, None))
            if callable(function):
                self.patch(names, name, recording(function))

    def patch_listed(self, names: dict[str, Any], ids: Collection[int]) -> None:  # values of any type
        """Record calls of the functions among ``names`` whose ids are listed, once for each dictionary."""
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        for name, value in list(names.items()):
            if not name.startswith("_") and callable(value) and id(value) in ids:
                self.patch(names, name, recording(value))

    def __enter__(self) -> Patcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._restore:
            self._restore.pop()()
        self._seen.clear()
