"""``__torch_function__``: classes and modes that override functions of tensors.

Nothing here runs for plain tensors. Once a class or mode that overrides functions exists, ``rerouting.py``
has the public functions run ``call_overrides`` first (ADR 0038); until then they do not check for one.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tenon.engine.types import Nested
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS

#: A function, method or accessor that can be overridden, with any parameters and result.
Function: TypeAlias = Callable[..., Any]


class _State(threading.local):
    """The state of one thread."""

    #: 1: ``__torch_function__`` of classes is disabled; 2: that of modes is disabled too.
    off: int = 0

    def __init__(self) -> None:
        self.modes: list[Any] = []  # of classes that users derive from TorchFunctionMode


STATE = _State()


class DisableTorchFunctionSubclass:
    """Disable ``__torch_function__`` of classes within a block; modes stay enabled."""

    level = 1

    def __enter__(self) -> None:
        self._before = STATE.off
        STATE.off = max(self.level, self._before)

    def __exit__(self, *exc: object) -> None:
        STATE.off = self._before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Disable ``__torch_function__`` of classes and modes within a block."""

    level = 2


def disabled(
    function: Function,
    types: Iterable[type],
    args: tuple[object, ...] = (),
    kwargs: dict[str, object] | None = None,
) -> Any:  # what ``function`` returns
    """The ``__torch_function__`` of classes that override no function: call ``function``."""
    with DisableTorchFunctionSubclass():
        return function(*args, **(kwargs or {}))


class _Classes(set[type]):
    """A hashable set: a constant of rerouted functions, whose code is hashed."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class _Modes(list[Any]):  # as ``_State.modes``
    """A hashable list, for the same reason."""

    __hash__ = object.__hash__  # type: ignore[assignment]


#: Classes that override no function; Tensor and its own subclasses add themselves.
PLAIN = _Classes((int, float, bool, complex, str, slice, type(None), type(...)))
#: The active modes of all threads; while there is none, functions do not check for one.
MODES = _Modes()


def can_override(cls: type) -> bool:
    """Whether arguments of class ``cls`` can override a function: it defines ``__torch_function__``."""
    if cls in PLAIN:
        return False
    handler = getattr(cls, "__torch_function__", None)
    # PyTorch's own tensors, beside tenon in one process, would only call the function again.
    return handler is not None and handler is not disabled and cls.__module__.partition(".")[0] != "torch"


_PLAIN_METHOD = (
    "Defining your `__torch_function__` as a plain method is deprecated and will be an error in future,"
    " please define it as a classmethod."
)
#: Namespace -> its functions (and, of Tensor, properties) by name.
NAMESPACES: dict[str, dict[str, Any]] = {}


def name_of(function: Any) -> str | None:  # a function, a method or a property's __get__
    """Return the name of a public function, as ``"torch.add"`` or ``"torch.Tensor.T.__get__"``; else None."""
    owner = getattr(function, "__self__", None)
    target = owner if isinstance(owner, property) else function
    for namespace, members in NAMESPACES.items():
        for name, member in members.items():
            if member is target:
                return f"{namespace}.{name}" + (f".{function.__name__}" if target is owner else "")
    return None


def overloaded(values: Iterable[object]) -> list[Any]:  # objects with __torch_function__
    """Return one of ``values`` for each class that can override a function, in order, but with subclasses
    before their base classes."""
    handlers: list[Any] = []  # objects with __torch_function__
    for value in values:
        cls = type(value)
        if can_override(cls) and not any(type(other) is cls for other in handlers):
            position = next(
                (i for i, other in enumerate(handlers) if issubclass(cls, type(other))), len(handlers)
            )
            handlers.insert(position, value)
    return handlers


def arguments_of(args: tuple[object, ...], kwargs: dict[str, object]) -> Iterable[object]:
    """Yield every argument; of lists and tuples, their elements."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def call_overrides(
    function: Function,
    original: Function,
    bare: bool,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Any:  # what ``function`` returns
    """Call the overrides of ``function``; without any, call ``original``.

    ``bare`` functions, such as ``zeros``, take no tensor: modes override them, and arguments that are no
    tensors, such as a size that is the Proxy of a traced program.
    """
    off, modes = STATE.off, STATE.modes
    if off == 2 or (off and not modes):
        return original(*args, **kwargs)
    handlers = [] if off else overloaded(arguments_of(args, kwargs))
    if bare:
        handlers = [value for value in handlers if not isinstance(value, Value)]
    if not handlers and not modes:
        if not bare:
            return original(*args, **kwargs)
        with DisableTorchFunctionSubclass():  # it converts its arguments to plain tensors
            return original(*args, **kwargs)
    return handle(function, handlers, args, kwargs)


def handle(
    function: Function,
    handlers: list[Any],  # objects with __torch_function__
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Any:  # what ``function`` returns
    """Return the result of the innermost mode, or of the first of ``handlers`` that does not return
    NotImplemented.

    TypeError if all of them do.
    """
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.unsupported("__torch_function__ of a class or mode")
    types = tuple(type(value) for value in handlers)
    if STATE.modes and STATE.off != 2:
        mode = STATE.modes.pop()  # it may call functions itself
        try:
            result = mode.__torch_function__(function, types, args, kwargs)
        finally:
            STATE.modes.append(mode)
        if result is not NotImplemented:
            return result
    for value in handlers:
        if getattr(value.__torch_function__, "__self__", None) is value:
            warnings.warn(_PLAIN_METHOD, DeprecationWarning, stacklevel=3)
        result = value.__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = name_of(function) or f"{getattr(function, '__module__', '')}.{function.__name__}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: {list(types)}."
        f" Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented."
    )


def converted(result: Nested, cls: type) -> Nested:
    """Return ``result`` with its tensors, also those in lists and tuples, converted to class ``cls``."""
    if isinstance(result, Value):
        return result if cls in PLAIN or isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (tuple, list)) and any(isinstance(r, (Value, tuple, list)) for r in result):
        return type(result)([converted(r, cls) for r in result])
    return result


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Whether the class of one of ``relevant_args`` overrides functions, or a mode is active."""
    return (bool(STATE.modes) and STATE.off != 2) or (
        not STATE.off and any(can_override(type(each)) for each in relevant_args)
    )


def handle_torch_function(
    public_api: Function, relevant_args: Iterable[object], *args: object, **kwargs: object
) -> Any:  # what ``public_api`` returns
    """Return the result of ``public_api(*args, **kwargs)`` by the active mode, or by a class among
    ``relevant_args``."""
    return handle(public_api, overloaded(relevant_args), args, kwargs)


def is_tensor_like(inp: object) -> bool:
    """Whether ``inp`` is a tensor, or acts as one by a ``__torch_function__``."""
    return hasattr(type(inp), "__torch_function__")
