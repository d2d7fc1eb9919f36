"""``torch.overrides``: types and modes that override functions by a ``__torch_function__``.

Subclasses of Tensor do so from the moment that the first one is defined, other classes from the first call
with one of their objects: it fails, functions are rerouted, and the call is repeated (reasons: ADR 0038).
Arguments that are the parameters' defaults are missing from what the handler receives then.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Self

from tenon.compat import overriding, rerouting
from tenon.compat.overriding import Function, handle_torch_function, has_torch_function, is_tensor_like
from tenon.tensors.autograd.grad_mode import enable_grad
from tenon.tensors.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]


def enable_reentrant_dispatch() -> AbstractContextManager[None]:
    """Record the ops of a block for autograd again, inside of a ``__torch_dispatch__``: the tensors that a
    wrapper holds may have a history of their own."""
    return enable_grad()


def has_torch_function_unary(argument: object) -> bool:
    """``has_torch_function`` of one argument."""
    return has_torch_function((argument,))


def has_torch_function_variadic(*arguments: object) -> bool:
    """``has_torch_function`` of the arguments."""
    return has_torch_function(arguments)


def wrap_torch_function(dispatcher: Callable[..., Iterable[object]]) -> Function:
    """Decorate a function so that it can be overridden; ``dispatcher`` returns the relevant arguments."""

    def wrap(function: Function) -> Function:
        @functools.wraps(function)
        def overridable(*args: object, **kwargs: object) -> Any:  # what ``function`` returns
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(overridable, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return overridable

    return wrap


def is_tensor_method_or_property(func: Function) -> bool:
    """Whether ``func`` is one of Tensor's methods, or the getter of one of its properties."""
    name = getattr(func, "__name__", "")
    return name in ("__get__", "__set__", "__delete__") or getattr(Tensor, name, None) is func


def resolve_name(f: object) -> str | None:
    """Return the name of a function, ``"torch.add"`` for ``torch.add``; None if it cannot be overridden."""
    return overriding.name_of(f)


def get_overridable_functions() -> dict[type | types.ModuleType, list[Function]]:
    """Return the functions that a class can override, by the module or class that has them."""
    special = sys.modules.get("tenon.special")
    for name in special.__all__ if special is not None else ():
        hasattr(special, name)  # names of plugins are registered at their first use
    rerouting.reroute_permanently()
    functions: dict[type | types.ModuleType, list[Function]] = {}
    for namespace, members in overriding.NAMESPACES.items():
        path = namespace.replace("torch", "tenon", 1)
        owner = Tensor if namespace == "torch.Tensor" else importlib.import_module(path)
        functions[owner] = [
            member.__get__ if isinstance(member, property) else member
            for name, member in members.items()
            if id(member) not in rerouting.BARE
        ]
    return functions


def get_ignored_functions() -> set[Function]:
    """Return the functions that no class can override, as they take no tensor."""
    return {
        f for members in overriding.NAMESPACES.values() for f in members.values() if id(f) in rerouting.BARE
    }


def get_default_nowrap_functions() -> set[Function]:
    """Return the functions whose results are not converted to the subclass by default."""
    return {Tensor._base.__get__, Tensor.grad.__get__}


def get_testing_overrides() -> dict[Function, Function]:
    """Return, for each function that can be overridden, a function with its parameters that returns -1."""

    def dummy_of(function: Function) -> Function:
        def dummy(*args: object, **kwargs: object) -> int:
            return -1

        if isinstance(function, types.FunctionType):
            dummy.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return dummy

    return {f: dummy_of(f) for functions in get_overridable_functions().values() for f in functions}


class TorchFunctionMode:
    """A mode whose ``__torch_function__`` sees every function that its block calls.

    >>> import tenon
    >>> from tenon.overrides import TorchFunctionMode
    >>> class Names(TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = tenon.ones(2).exp()
    ones
    exp
    """

    def __torch_function__(
        self,
        func: Function,
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:  # what ``func`` returns
        """Called in place of ``func``; functions that it calls are passed to the enclosing mode."""
        raise NotImplementedError(f"{type(self).__name__} defines no __torch_function__.")

    def __enter__(self) -> Self:
        rerouting.reroute(mode=self)
        overriding.STATE.modes.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        overriding.STATE.modes.pop()
        rerouting.restore(self)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that only calls the function."""

    def __torch_function__(
        self,
        func: Function,
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:  # what ``func`` returns
        """Return ``func(*args, **kwargs)``."""
        return func(*args, **(kwargs or {}))
