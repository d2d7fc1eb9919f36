"""PyTorch's TypeError for arguments that should be tensors and are not, raised after a function has failed.

Functions do not check the types of their arguments, which would cost every call; those of a call that has
failed are checked afterwards. ``guard`` gives functions a handler for that, at no cost to calls
(``exception_table.py``). A generated function, whose parameters are not in its code, says ``except FAILURES:
refuse_wrong(method, args, kwargs); raise``.

An object that is no tensor but defines ``__torch_function__`` is first noticed by a failed call as well:
functions are rerouted from then on (``compat/rerouting.py``), and the call is repeated.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, EllipsisType, FrameType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from tenon.engine.operands import type_name, wrong_type
from tenon.engine.value import Value
from tenon.errors import ModuleTypeError
from tenon.tensors.annotated_kinds import kind_of
from tenon.tensors.entry_checks import FLAG, allows, checks_of, with_checks
from tenon.tensors.exception_table import with_handler

#: Exceptions of functions whose argument is not a tensor, as it lacks an attribute, a size, an axis or a
# dtype.
FAILURES = (AttributeError, TypeError, ValueError, LookupError, RuntimeError)
_NUMBERS = (bool, int, float, complex, np.generic)
#: Parts of annotations -> the types that they allow beside tensors.
_ALLOWED: dict[str, tuple[type, ...]] = {
    "Tensor": (),
    "None": (type(None),),
    "EllipsisType": (EllipsisType,),  # an argument that is left out
    **dict.fromkeys(("Number", "int", "float", "complex", "bool"), _NUMBERS),
}
_SEQUENCES = frozenset(("Sequence[Tensor]", "Sequence[Tensor] | None", "Tensors"))
#: Annotations of ``*tensors``.
_REST = frozenset(("Tensor", "Tensor | Sequence[Tensor]"))
#: The names of ``_check_failed_call``, ``_repeat_call`` and ``_refuse_argument`` in the namespaces of guarded
# functions.
_HANDLER, _RETRY = "_refuse_wrong_arguments", "_repeat_call"
_CHECK = "_refuse_argument"


class Rerouting(NamedTuple):
    """How functions are rerouted through the ``__torch_function__`` of arguments."""

    #: Whether a value overrides functions, and functions are not rerouted yet.
    awaited_by: Callable[[object], bool]
    start: Callable[[], None]


class Guarded(NamedTuple):
    """A function with a handler, or one that handles its failures itself."""

    code: CodeType
    #: The function that has the annotations, and the one that callers call, which may be a wrapper of it.
    function: FunctionType
    public: Callable[..., object]
    #: The position of the first parameter in messages.
    first: int
    rerouting: Rerouting | None


#: The entries by the id of the code.
_GUARDED: dict[int, Guarded] = {}


def guard(functions: Iterable[object], first: int = 1, rerouting: Rerouting | None = None) -> None:
    """Make ``functions`` raise PyTorch's TypeError where they fail because an argument should be a tensor.

    ``first`` is the position of their first parameter in messages: 0 for methods, as ``self`` is not counted.
    With ``rerouting``, an argument that overrides functions has the call repeated.
    """
    for function in functions:
        inner = inspect.unwrap(function) if callable(function) else None
        if not isinstance(inner, FunctionType) or _HANDLER in inner.__code__.co_names:
            continue
        if _may_be_wrong(inner, rerouting is not None and first == 0):
            checks = checks_of(inner) if rerouting is not None else {}
            code = with_handler(with_checks(inner.__code__, checks, _CHECK), _HANDLER, _RETRY)
            if code is not None:
                inner.__code__ = code
                inner.__globals__[_HANDLER], inner.__globals__[_RETRY] = _check_failed_call, _repeat_call
                inner.__globals__[_CHECK] = _refuse_argument
                _GUARDED[id(code)] = Guarded(code, inner, function, first, rerouting)  # type: ignore[arg-type]


def _may_be_wrong(function: FunctionType, is_method: bool) -> bool:
    """Whether ``function`` takes a tensor, or any other argument besides its object."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    if count > is_method or code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    return any("Tensor" in str(kind) for name, kind in function.__annotations__.items() if name != "return")


def register_generated(function: FunctionType, rerouting: Rerouting) -> None:
    """Register the code of a generated function, which calls ``must_repeat`` where it fails."""
    code = function.__code__
    _GUARDED.setdefault(id(code), Guarded(code, function, function, 1, rerouting))


def _check_failed_call() -> bool:
    """Return whether to repeat the call of the caller, which is handling an exception.

    Raise TypeError if an argument should be a tensor and is not.
    """
    if not isinstance(sys.exception(), FAILURES):
        return False
    frame = sys._getframe(1)
    guarded = _GUARDED.get(id(frame.f_code))
    if guarded is None:  # a debugger or a tracer runs a copy of the code
        return False
    arguments = _arguments_of(frame)
    if guarded.rerouting is not None and must_repeat(arguments.values(), guarded.rerouting, frame):
        return True
    arguments.pop(_keyword_rest(frame.f_code) or "", None)
    _refuse(guarded.function, arguments, guarded.function.__name__, guarded.first)
    return False


def _refuse_argument() -> None:
    """Raise PyTorch's TypeError for an argument of the caller that fails its check."""
    frame = sys._getframe(1)
    guarded = _GUARDED.get(id(frame.f_code))
    if guarded is None:  # a debugger or a tracer runs a copy of the code
        return
    code, checks = guarded.code, checks_of(guarded.function)
    for position, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        value = frame.f_locals[name]
        if name in checks and not allows(checks[name], value):
            words = checks[name].removesuffix(" | None")
            place = position + guarded.first
            # PyTorch tells the position of what is passed by position, which flags are where they are first.
            if position >= code.co_argcount or (words == FLAG and place > 1):
                place = 0
            raise wrong_type(guarded.function.__name__, name, place, value, words)


def _repeat_call() -> Any:  # what the function returns
    """Repeat the call of the caller, whose functions have been rerouted.

    Arguments that are the parameters' defaults are left out, as the frame does not show which were passed.
    """
    frame = sys._getframe(1)
    code, function, public, _, _ = _GUARDED[id(frame.f_code)]
    arguments = _arguments_of(frame)
    names = code.co_varnames[: code.co_argcount]
    rest = arguments.get(_rest(code) or "", ())
    defaults = dict(zip(reversed(names), reversed(function.__defaults__ or ()), strict=False))
    defaults.update(function.__kwdefaults__ or {})
    positional: list[object] = []
    keywords: dict[str, object] = {}
    for index, name in enumerate(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        if name in defaults and arguments[name] is defaults[name] and not rest:
            continue
        if index == len(positional) and index < len(names):
            positional.append(arguments[name])
        else:
            keywords[name] = arguments[name]
    keywords.update(arguments.get(_keyword_rest(code) or "", {}))  # type: ignore[call-overload]
    return public(*positional, *rest, **keywords)  # type: ignore[misc]


def must_repeat(values: Iterable[object], rerouting: Rerouting, frame: FrameType | None = None) -> bool:
    """Whether to repeat a failed call with the arguments ``values``, as one of them overrides functions.

    If so, functions are rerouted from now on. ``frame`` is the call's, by default the caller's. Of calls
    inside each other the outermost is repeated, as in PyTorch, where it looks for overrides first.
    """
    frame = frame or sys._getframe(1)
    if not _has_override(values, rerouting):
        return False
    outer = frame.f_back
    while outer is not None:
        guarded = _GUARDED.get(id(outer.f_code))
        known = None if guarded is None else guarded.rerouting
        if known is not None and _has_override(_arguments_of(outer).values(), known):
            return False
        outer = outer.f_back
    rerouting.start()
    return True


def _has_override(values: Iterable[object], rerouting: Rerouting, depth: int = 2) -> bool:
    """Whether one of ``values``, or of the lists, tuples and dictionaries among them, overrides functions.

    ``depth`` is that of a list among the rest of the arguments.
    """
    for value in values:
        if isinstance(value, (list, tuple, dict)):
            parts = value.values() if isinstance(value, dict) else value
            if depth and _has_override(parts, rerouting, depth - 1):
                return True
        elif rerouting.awaited_by(value):
            return True
    return False


def _arguments_of(frame: FrameType) -> dict[str, object]:
    """The arguments of the call that ``frame`` executes, by parameter; ``*args`` and ``**kwargs`` last."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return {name: values.get(name) for name in code.co_varnames[:count]}


def refuse_wrong(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    name: str | None = None,
    first: int = 1,
) -> None:
    """Raise TypeError if an argument that ``function`` annotates as a tensor is not one.

    ``name`` is what the user called, by default the function's name; the argument after ``self`` is the first
    of a method (``first=0``).
    """
    function = inspect.unwrap(function)
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # the error is about unknown names or too many arguments
        return
    _refuse(function, bound.arguments, name or function.__name__, first)


def _refuse(function: Callable[..., object], arguments: Mapping[str, object], name: str, first: int) -> None:
    """Raise TypeError for the first of ``arguments``, in the order of parameters, of a wrong type.

    An error that names a wrong type itself stays.
    """
    code = getattr(function, "__code__", None)
    keyword_only = () if code is None else code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    is_told = _names_argument(sys.exception())
    rest = None if code is None else _rest(code)
    for position, (argument, value) in enumerate(arguments.items(), first):
        annotation = function.__annotations__.get(argument)
        if not isinstance(annotation, str) or is_tensor_like(value):
            continue
        if argument == rest and isinstance(value, tuple):
            if annotation in _REST:
                need_tensors(value[0] if len(value) == 1 and isinstance(value[0], (list, tuple)) else value)
        elif annotation in _SEQUENCES:
            if isinstance(value, (list, tuple)):
                need_tensors(value, position)
            elif value is not None or "None" not in annotation:
                raise wrong_type(name, argument, position, value, "tuple of Tensors") from None
        elif (allowed := _allowed(annotation)) is not None:
            if not isinstance(value, allowed):
                words = "Number" if annotation.startswith("Number") else "Tensor"
                raise wrong_type(name, argument, position, value, words) from None
        elif (kind := kind_of(annotation)) is not None and not is_told and not kind.allows(value):
            if argument in keyword_only:
                position = 0
            raise wrong_type(name, argument, position, value, kind.words) from None


def _names_argument(error: BaseException | None) -> bool:
    """Whether ``error`` says itself which argument is of a wrong type, in words of the function's own."""
    if not isinstance(error, TypeError) or "argument '" not in str(error):
        return isinstance(error, ModuleTypeError)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or last.tb_frame.f_code is not _refuse.__code__


def _rest(code: CodeType) -> str | None:
    """The name of the parameter ``*args`` of ``code``."""
    return (
        code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        if code.co_flags & inspect.CO_VARARGS
        else None
    )


def _keyword_rest(code: CodeType) -> str | None:
    """The name of the parameter ``**kwargs`` of ``code``."""
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    return code.co_varnames[code.co_argcount + code.co_kwonlyargcount + (_rest(code) is not None)]


def is_tensor_like(value: object) -> bool:
    """Whether ``value`` is a tensor or of a class that overrides functions."""
    return isinstance(value, Value) or hasattr(type(value), "__torch_function__")


def only_tensors(*values: object) -> None:
    """Raise TypeError unless all of ``values`` are tensors; a public function's guard names the argument."""
    for value in values:
        if not is_tensor_like(value):
            raise TypeError(f"expected a Tensor, got {type_name(value)}")


def only_numbers(*values: object) -> None:
    """Raise TypeError unless all of ``values`` are tensors or numbers; as ``only_tensors``."""
    for value in values:
        if not isinstance(value, _NUMBERS) and not is_tensor_like(value):
            raise TypeError(f"expected a Tensor or a number, got {type_name(value)}")


def need_tensors(values: Sequence[object], position: int = 1) -> None:
    """Raise PyTorch's TypeError for the first of ``values``, the argument at ``position``, not a tensor."""
    for index, value in enumerate(values):
        if not is_tensor_like(value):
            raise TypeError(
                f"expected Tensor as element {index} in argument {position - 1}, but got {type_name(value)}"
            ) from None


@functools.cache
def _allowed(annotation: str) -> tuple[type, ...] | None:
    """The types that ``annotation`` allows besides a tensor; None unless all are tensors and numbers."""
    parts = annotation.split(" | ")
    if "Tensor" not in parts or not _ALLOWED.keys() >= set(parts):
        return None
    return tuple(kind for part in parts for kind in _ALLOWED[part])
