"""Signatures of functions, and arguments in the order and by the names of a signature.

A function of tenon has one signature, where PyTorch's operators have several, so arguments are never
ambiguous.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tenon.dtypes import dtype
from tenon.fx.names import public_name
from tenon.ops.aten import Operator
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.fx.arguments import Function, Nested
    from tenon.nn.module import Module

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]

#: Parameters that PyTorch's overload without ``out`` lacks; they are omitted unless given.
_OPTIONAL = frozenset(["axis", "out"])


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments."""

    args: tuple[Nested, ...]
    kwargs: dict[str, Nested]


def get_signature_for_torch_op(
    op: Function,
    return_schemas: bool = False,  # any function
) -> Any:  # a list of signatures, a pair with None for PyTorch's schemas, or None
    """Return the signatures of a function of ``tenon`` in a list; None for other functions and for those
    without one."""
    function = _function_of(op) if isinstance(op, Operator) else op
    known = function is not None and (public_name(function) or "").count(".") == 1
    try:
        signatures = [inspect.signature(function)] if known and function is not None else None
    except (TypeError, ValueError):
        signatures = None
    return (signatures, None) if return_schemas else signatures


def _function_of(operator: Operator) -> Callable[..., Any] | None:  # any function
    function: Callable[..., Any] | None = getattr(Tensor, operator.name, None)  # any function
    return function


def create_type_hint(x: Any) -> Any:  # of any type -> an annotation
    """Return the annotation of a list or tuple of types: ``list[int]`` for ``[int, int]``.

    >>> create_type_hint([int, int]), create_type_hint((int, str))
    (list[int], tuple[typing.Any, ...])
    """
    if not isinstance(x, (list, tuple)):
        return x
    if not x:
        return list[typing.Any] if isinstance(x, list) else tuple[typing.Any, ...]
    widest: Any = next((k for k in x if all(_is_subclass(other, k) for other in x)), typing.Any)  # a type
    return list[widest] if isinstance(x, list) else tuple[widest, ...]


def _is_subclass(kind: object, other: object) -> bool:
    return isinstance(kind, type) and isinstance(other, type) and issubclass(kind, other)


def type_matches(signature_type: Any, argument_type: Any) -> bool:  # annotations
    """Whether a value of ``argument_type`` can be passed where ``signature_type`` is annotated."""
    if signature_type is argument_type or signature_type is typing.Any:
        return True
    origin = typing.get_origin(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(one, argument_type) for one in typing.get_args(signature_type))
    if origin is list:
        (element,) = typing.get_args(signature_type)
        return _is_list_of(element, argument_type)
    # PyTorch's operators take dtypes as integers.
    if (signature_type, argument_type) in ((float, int), (int, dtype)):
        return True
    return _is_subclass(argument_type, signature_type)


def _is_list_of(element: Any, argument_type: Any) -> bool:  # annotations
    if argument_type is element or _is_subclass(argument_type, element):
        return True
    origin = typing.get_origin(argument_type)
    if origin not in (list, tuple):
        return False
    contained = [kind for kind in typing.get_args(argument_type) if kind is not ...]
    return all(type_matches(element, kind) for kind in contained)


def normalize_function(
    target: Callable[..., Any],  # any function
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested] | None = None,
    arg_types: tuple[Any, ...] | None = None,  # annotations
    kwarg_types: dict[str, Any] | None = None,  # the same
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Return the arguments by the signature of ``target``, defaults included; None if it has no signature.

    Types decide between the signatures of a PyTorch operator; a function here has only one.
    """
    function = _function_of(target) if isinstance(target, Operator) else target
    if function is None or not _is_ours(function):
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    del arg_types, kwarg_types
    return _bound(signature, args, kwargs or {}, normalize_to_only_use_kwargs, isinstance(target, Operator))


def _is_ours(function: Callable[..., Any]) -> bool:  # any function
    name = public_name(function)
    return name is not None and name.startswith("tenon.")


def normalize_module(
    root: Module,
    target: str,
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """Return the arguments of a submodule's call by the signature of a layer's ``forward``; None for other
    modules."""
    module = root.get_submodule(target)
    if not type(module).__module__.startswith("tenon.nn"):
        return None
    signature = inspect.signature(module.forward)
    return _bound(signature, args, kwargs or {}, normalize_to_only_use_kwargs, False)


def _bound(
    signature: inspect.Signature,
    args: Sequence[Nested],
    kwargs: dict[str, Nested],
    only_kwargs: bool,
    is_method: bool,
) -> ArgsKwargsPair | None:
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
        return None
    if is_method and kwargs:
        args = (kwargs["self"], *args) if "self" in kwargs else args
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    passed = set(bound.arguments)
    bound.apply_defaults()
    if is_method and "self" in bound.arguments:  # which PyTorch calls input
        bound.arguments = {("input" if k == "self" else k): v for k, v in bound.arguments.items()}
    positional: list[Nested] = []
    named: dict[str, Nested] = {}
    for index, (name, value) in enumerate(bound.arguments.items()):
        if name in _OPTIONAL and name not in passed:
            continue
        if not only_kwargs and index < len(args):
            positional.append(value)
        else:
            named[name] = value
    return ArgsKwargsPair(tuple(positional), named)


def check_for_mutable_operation(
    target: Function,
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested],  # any function
) -> None:
    """Raise RuntimeError if a call of a function of tenon writes into an argument."""
    name = public_name(target)
    if name is None:
        return
    short = name.rpartition(".")[2]
    inplace = (short.endswith("_") and not short.startswith("_")) or kwargs.get("inplace") is True
    if inplace or kwargs.get("out") is not None:
        operation = f"{short}.out" if not inplace else short
        raise RuntimeError(
            f"Tried to trace mutable operation aten::{operation}. FX only supports functional code, so"
            " operations"
            " that mutate operands in-place (e.g. via `out` arguments) are not supported: use the result."
        )
