"""``__torch_function__``: classes, and modes, that are asked before a function of tensors runs.

Nothing here runs for plain tensors. The first class or mode that wants to be asked has the public functions
rerouted through ``ask`` (``rerouting.py``, ADR 0038); until then they know nothing of it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tenon.engine.types import Nested
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS

#: A function, method or accessor that can be taken over, with parameters and a result of its own.
Function: TypeAlias = Callable[..., Any]


class _State(threading.local):
    """What holds in this thread."""

    #: 1: classes are not asked; 2: modes are not asked either.
    off: int = 0

    def __init__(self) -> None:
        self.modes: list[Any] = []


STATE = _State()


class DisableTorchFunctionSubclass:
    """Run a block without asking classes; modes still are."""

    level = 1

    def __enter__(self) -> None:
        self._before = STATE.off
        STATE.off = max(self.level, self._before)

    def __exit__(self, *exc: object) -> None:
        STATE.off = self._before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Run a block without asking classes or modes."""

    level = 2


def disabled(
    function: Function,
    types: Iterable[type],
    args: tuple[object, ...] = (),
    kwargs: dict[str, object] | None = None,
) -> Any:
    """The ``__torch_function__`` of classes that do not want to be asked: it only calls ``function``."""
    with DisableTorchFunctionSubclass():
        return function(*args, **(kwargs or {}))


class _Classes(set[type]):
    """A set that is a constant of rerouted functions, whose code is hashed."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class _Modes(list[Any]):
    """A list that is such a constant."""

    __hash__ = object.__hash__  # type: ignore[assignment]


#: Classes that are never asked; Tensor and its kin add themselves.
PLAIN = _Classes((int, float, bool, complex, str, slice, type(None), type(...)))
#: The modes at work in all threads; while there is none, no function looks for one.
MODES = _Modes()


def wants(cls: type) -> bool:
    """Whether arguments of class ``cls`` are asked."""
    if cls in PLAIN:
        return False
    asked = getattr(cls, "__torch_function__", None)
    # PyTorch's own tensors, beside tenon in one process, would only call the function again.
    return asked is not None and asked is not disabled and cls.__module__.partition(".")[0] != "torch"


_PLAIN_METHOD = (
    "Defining your `__torch_function__` as a plain method is deprecated and will be an error in future,"
    " please define it as a classmethod."
)
#: Namespace -> its functions (and, of Tensor, properties) by name.
NAMESPACES: dict[str, dict[str, Any]] = {}


def name_of(function: Any) -> str | None:
    """``"torch.add"``, ``"torch.Tensor.T.__get__"``; None if it is none of the public functions."""
    held = getattr(function, "__self__", None)
    wanted = held if isinstance(held, property) else function
    for namespace, members in NAMESPACES.items():
        for name, member in members.items():
            if member is wanted:
                return f"{namespace}.{name}" + (f".{function.__name__}" if wanted is held else "")
    return None


def overloaded(values: Iterable[object]) -> list[Any]:
    """One of ``values`` for each class that is asked: in order, but subclasses before what they derive
    from."""
    found: list[Any] = []
    for value in values:
        cls = type(value)
        if wants(cls) and not any(type(other) is cls for other in found):
            place = next((i for i, other in enumerate(found) if issubclass(cls, type(other))), len(found))
            found.insert(place, value)
    return found


def _spread(args: tuple[object, ...], kwargs: dict[str, object]) -> Iterable[object]:
    """Every argument, and every element of those that are a list or a tuple."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def ask(
    function: Function,
    original: Function,
    bare: bool,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Any:
    """Call ``function``, which is ``original`` if nobody takes it over; ``bare``: only modes may."""
    off, modes = STATE.off, STATE.modes
    if off == 2 or (off and not modes):
        return original(*args, **kwargs)
    found = [] if bare or off else overloaded(_spread(args, kwargs))
    if not found and not modes:
        if not bare:
            return original(*args, **kwargs)
        with DisableTorchFunctionSubclass():  # it makes a plain tensor of whatever it is given
            return original(*args, **kwargs)
    return handle(function, found, args, kwargs)


def handle(function: Function, found: list[Any], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """What the innermost mode, or the first of ``found`` that knows how, makes of the call."""
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.unsupported("__torch_function__ of a class or mode")
    types = tuple(type(value) for value in found)
    if STATE.modes and STATE.off != 2:
        mode = STATE.modes.pop()  # it may call functions itself
        try:
            result = mode.__torch_function__(function, types, args, kwargs)
        finally:
            STATE.modes.append(mode)
        if result is not NotImplemented:
            return result
    for value in found:
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
    """``result`` with its tensors, also those of a list or tuple, made of class ``cls``."""
    if isinstance(result, Value):
        return result if cls in PLAIN or isinstance(result, cls) else result.as_subclass(cls)
    if isinstance(result, (tuple, list)) and any(isinstance(r, (Value, tuple, list)) for r in result):
        return type(result)([converted(r, cls) for r in result])
    return result


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Whether the class of one of ``relevant_args`` takes over functions, or a mode is at work."""
    return (bool(STATE.modes) and STATE.off != 2) or (
        not STATE.off and any(wants(type(each)) for each in relevant_args)
    )


def handle_torch_function(
    public_api: Function, relevant_args: Iterable[object], *args: object, **kwargs: object
) -> Any:
    """What the mode at work, or a class among ``relevant_args``, makes of ``public_api(*args, **kwargs)``."""
    return handle(public_api, overloaded(relevant_args), args, kwargs)


def is_tensor_like(inp: object) -> bool:
    """Whether ``inp`` is a tensor, or acts as one by a ``__torch_function__``."""
    return hasattr(type(inp), "__torch_function__")
