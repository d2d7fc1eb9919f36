"""PyTorch's TypeError for arguments that should be tensors and are not, raised after a function has failed.

Functions do not check the types of their arguments, which would cost every call; those of a call that has
failed are checked afterwards. ``guard`` gives functions a handler for that, at no cost to calls
(``exception_table.py``). A generated function, whose parameters are not in its code, says ``except FAILURES:
refuse_wrong(method, args, kwargs); raise``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, FunctionType

import numpy as np

from tenon.engine.operands import type_name, wrong_type
from tenon.engine.value import Value
from tenon.tensors.exception_table import with_handler

#: Exceptions of functions whose argument is not a tensor, as it lacks an attribute, a size, an axis or a
# dtype.
FAILURES = (AttributeError, TypeError, ValueError, LookupError, RuntimeError)
_NUMBERS = (bool, int, float, complex, np.generic)
#: Parts of annotations -> the types that they allow beside tensors.
_ALLOWED: dict[str, tuple[type, ...]] = {
    "Tensor": (),
    "None": (type(None),),
    **dict.fromkeys(("Number", "int", "float", "complex", "bool"), _NUMBERS),
}
_SEQUENCES = frozenset(("Sequence[Tensor]", "Sequence[Tensor] | None", "Tensors"))
#: Annotations of ``*tensors``.
_REST = frozenset(("Tensor", "Tensor | Sequence[Tensor]"))
#: The name of ``_check_failed_call`` in the namespaces of guarded functions.
_HANDLER = "_refuse_wrong_arguments"
#: Id of a guarded function's code -> that code, the function, and the position of its first parameter.
_GUARDED: dict[int, tuple[CodeType, FunctionType, int]] = {}


def guard(functions: Iterable[object], first: int = 1) -> None:
    """Make ``functions`` raise PyTorch's TypeError where they fail because an argument should be a tensor.

    ``first`` is the position of their first parameter in messages: 0 for methods, as ``self`` is not counted.
    """
    for function in functions:
        inner = inspect.unwrap(function) if callable(function) else None
        if not isinstance(inner, FunctionType) or _HANDLER in inner.__code__.co_names:
            continue
        annotations = inner.__annotations__
        if any("Tensor" in str(annotations[name]) for name in annotations if name != "return"):
            code = with_handler(inner.__code__, _HANDLER)
            if code is not None:
                inner.__code__ = code
                inner.__globals__[_HANDLER] = _check_failed_call
                _GUARDED[id(code)] = code, inner, first


def _check_failed_call() -> None:
    """Raise TypeError if an argument of the caller, which is handling an exception, should be a tensor and is
    not."""
    if isinstance(sys.exception(), FAILURES):
        frame = sys._getframe(1)
        guarded = _GUARDED.get(id(frame.f_code))
        if guarded is None:  # a debugger or a tracer runs a copy of the code
            return
        code, function, first = guarded
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        arguments = {name: frame.f_locals.get(name) for name in code.co_varnames[:count]}
        _refuse(function, arguments, function.__name__, first)


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
    """Raise TypeError for the first of ``arguments``, in the order of parameters, of a wrong type."""
    rest = _rest(function)
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
        elif (allowed := _allowed(annotation)) is not None and not isinstance(value, allowed):
            raise wrong_type(name, argument, position, value) from None


def _rest(function: Callable[..., object]) -> str | None:
    """The name of the parameter ``*args`` of ``function``."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_VARARGS:
        return None
    name: str = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    return name


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
    """The types that ``annotation`` allows beside a tensor; None if it is not of tensors and numbers only."""
    parts = annotation.split(" | ")
    if "Tensor" not in parts or not _ALLOWED.keys() >= set(parts):
        return None
    return tuple(kind for part in parts for kind in _ALLOWED[part])
