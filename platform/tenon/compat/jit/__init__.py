"""``torch.jit``: traces are ``tenon.export.jit``; scripts stay Python, as there is no TorchScript.

``script`` (``scripting.py``) returns its argument uncompiled, with one warning per process, as libraries call
it at import. Arguments that PyTorch's compiler rejects, and attributes that only compiled functions have,
such as ``save``, raise UnsupportedError, which names ``trace``. Annotations for the compiler (``ignore``,
``unused``, ``export``, ``annotate``, ``Final``) return their argument, as in PyTorch outside of a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import UnionType
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

from tenon.compat.jit.scripting import script
from tenon.distributed.communication.futures import Future
from tenon.errors import ArgumentError, CommunicatorError, UnsupportedError
from tenon.export.jit import (
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
    TracedModule,
    TracerWarning,
    TracingCheckError,
    freeze,
    is_tracing,
    load,
    optimize_for_inference,
    save,
    trace,
    trace_module,
)

T = TypeVar("T")

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "Future",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "ScriptWarning",
    "TopLevelTracedModule",
    "TracedModule",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "run_frozen_optimizations",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

_isinstance = isinstance
#: What PyTorch raises in scripts.
Error = UnsupportedError


class ScriptWarning(Warning):
    """A warning of PyTorch's script compiler; nothing issues it here."""


class Attribute(NamedTuple):
    """A value with its type for the script compiler."""

    value: Any  # of any type
    type: Any  # an annotation


def is_scripting() -> bool:
    """False: nothing is compiled as TorchScript."""
    return False


def script_method(function: T) -> T:
    """Return ``function``, a method that stays Python."""
    return function


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
    """Return ``function``: a trace records the ops that it calls."""
    return function


#: Their private names in PyTorch.
_script_if_tracing, _overload_method, _overload = script_if_tracing, _itself, _itself


def annotate(the_type: object, the_value: T) -> T:
    """Return ``the_value``."""
    return the_value


def isinstance(obj: object, target_type: Any) -> bool:  # any annotation
    """Whether ``obj`` has the type of an annotation, elements of containers included.

    >>> isinstance({"a": [1]}, dict[str, list[int]]), isinstance([1, "a"], list[int])
    (True, False)
    """
    if _isinstance(target_type, tuple):
        return any(isinstance(obj, each) for each in target_type)
    origin, args = get_origin(target_type), get_args(target_type)
    if origin in (Union, UnionType):
        return any(isinstance(obj, each) for each in args)
    if target_type is None:
        return obj is None
    if target_type in (list, dict, tuple):
        name = target_type.__name__
        example = {"list": "list[int]", "dict": "dict[int, str]", "tuple": "tuple[int, str]"}[name]
        raise ArgumentError(
            f"Attempted to use {name} without a contained type. Please add a contained type, e.g. {example}"
        )
    if origin is None:
        return _isinstance(obj, target_type)
    return _isinstance(obj, origin) and _holds(obj, args)


def _holds(container: Any, types: tuple[Any, ...]) -> bool:  # annotations
    """Whether the elements of ``container`` have the types of its annotation."""
    if _isinstance(container, Mapping):
        return all(isinstance(k, types[0]) and isinstance(v, types[1]) for k, v in container.items())
    if _isinstance(container, tuple) and Ellipsis not in types:
        return len(container) == len(types) and all(map(isinstance, container, types))
    if _isinstance(container, tuple | list):
        return all(isinstance(each, types[0]) for each in container)
    return True


def fork(func: Callable[..., T], *args: object, **kwargs: object) -> Future[T]:
    """Call ``func`` at once, and return a future of its result, as PyTorch does outside of scripts."""
    future: Future[T] = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future[T]) -> T:
    """Return the result of ``fork``."""
    if not _isinstance(future, Future):
        raise CommunicatorError(
            f"wait() takes the future that fork() returns, not a {type(future).__name__}."
        )
    return future.wait()


def export_opnames(m: ScriptModule) -> list[str]:
    """Return the names of the ops that a trace calls."""
    return sorted({node.name for node in m.graph.calls})


class strict_fusion:
    """A block in which PyTorch's script compiler has to fuse; it changes nothing here."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block in which PyTorch's script compiler optimizes or not; it changes nothing here."""
    yield


#: The strategy of PyTorch's script compiler, which nothing reads.
_strategy: list[list[tuple[str, int]]] = [[("STATIC", 2), ("DYNAMIC", 10)]]
_onednn_fusion: list[bool] = [False]


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Keep ``strategy``, which has no effect, and return the one before. ``tenon.compile`` fuses."""
    before, _strategy[0] = _strategy[0], list(strategy)
    return before


def enable_onednn_fusion(enabled: bool) -> None:
    """Keep what ``onednn_fusion_enabled`` returns; it has no effect."""
    _onednn_fusion[0] = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """What ``enable_onednn_fusion`` was given."""
    return _onednn_fusion[0]


def run_frozen_optimizations(
    mod: ScriptModule, optimize_numerics: bool = True, preserved_methods: list[str] | None = None
) -> None:
    """Do nothing: ``tenon.compile`` optimizes a frozen trace."""


def _refuse_instance(result: object) -> NoReturn:
    raise UnsupportedError(
        f"torch.jit.{type(result).__name__}: TorchScript is not supported. Write a plain nn.Module, list"
        " or dict; tenon.compile makes functions and models faster."
    )


class CompilationUnit:
    """Functions of TorchScript source; it has no instances."""

    def __init__(self, lang: object = None, _frames_up: int = 0) -> None:
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
