"""Create the arguments of a program to trace: proxies, except for values that the caller fixes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from tenon.dtypes import dtype
from tenon.functions.checks import _assert
from tenon.fx.arguments import Function, Named, Nested
from tenon.fx.codegen import PyTreeCodeGen, PyTreeInfo
from tenon.fx.placeholders import PHBase
from tenon.fx.tracer_base import TracerBase
from tenon.nn.module import Module
from tenon.tensors import pytree
from tenon.tensors.tensor import Tensor

_VARIABLE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _assert_is_none(value: object, message: str) -> None:
    assert value is None, message


class RootArguments(TracerBase):
    """Mixin of Tracer: the arguments of the program."""

    root: Module

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],  # any function
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,  # of any types
    ) -> tuple[Callable[..., Any], list[Any]]:  # of any types
        """Return the function to run and its arguments: proxies, except for those that ``concrete_args``
        fixes."""
        function = inspect.unwrap(root_fn)
        code: CodeType = function.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames)
        if is_module and not total:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        skipped = 1 if is_module else 0
        args: list[Any] = [self.root] if is_module else []  # of any types
        listed = names[skipped:total]
        rest = []
        if code.co_flags & inspect.CO_VARARGS:
            rest.append(f"*{names[total]}")
        if code.co_flags & inspect.CO_VARKEYWORDS:
            rest.append(f"**{names[total + len(rest)]}")
        signature = inspect.signature(function)
        collects = bool(code.co_flags & inspect.CO_VARARGS)
        if collects and isinstance(concrete_args, tuple) and len(concrete_args) > len(listed):
            concrete = dict(zip(listed, concrete_args, strict=False))
            args += [self._argument(name, concrete, signature, function) for name in listed]
            for number, value in enumerate(concrete_args[len(listed) :]):
                listed.append(f"input_{number}")
                args.append(self._collected(listed[-1], value))
            return self._flattened(root_fn, args, skipped, listed)
        concrete = _named(concrete_args, listed, rest)
        for name in (*listed, *rest):
            args.append(self._argument(name, concrete, signature, function))
        if code.co_kwonlyargcount or rest:
            root_fn = _with_positional_arguments(root_fn, len(args))
        return self._flattened(root_fn, args, skipped, listed)

    def _flattened(
        self,
        root_fn: Function,
        args: list[Nested],
        skipped: int,
        names: list[str],  # any function
    ) -> tuple[Callable[..., Any], list[Any]]:  # of any types
        """Return a function of the leaves of ``args``, if one of those is a container."""
        flat, spec = pytree.tree_flatten(args[skipped:])
        if all(child.is_leaf() for child in spec.children_specs):
            return root_fn, args
        codegen = PyTreeCodeGen(PyTreeInfo(names, spec, None))
        self.graph.set_codegen(codegen)

        def of_leaves(*leaves: Any) -> Any:  # of any types
            nested: Nested = pytree.tree_unflatten(list(leaves[skipped:]), spec)
            results, out_spec = pytree.tree_flatten(root_fn(*leaves[:skipped], *nested))
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return results

        return of_leaves, [*args[:skipped], *flat]

    def _argument(
        self,
        name: str,
        concrete: dict[str, Any],  # of any types
        signature: inspect.Signature,
        function: Callable[..., Any],  # any function
    ) -> Any:  # proxies and values
        if name in concrete:
            count = 0

            def leaf(value: Any) -> Any:  # of any type
                nonlocal count
                count += 1
                default = signature.parameters[name.strip("*")].default
                known = () if default is inspect.Parameter.empty else (default,)
                return self._specialized(name, f"{name.strip('*')}_{count}", known, value)

            return pytree.tree_map(leaf, concrete[name])
        kind = annotation_of(function, name)
        if name.startswith("*"):
            return self.create_proxy("placeholder", name, (), {}, type_expr=kind)
        default = signature.parameters[name].default
        defaults = () if default is inspect.Parameter.empty else (default,)
        return self.create_proxy("placeholder", name, defaults, {}, type_expr=kind)

    def _collected(self, name: str, value: Nested) -> Nested:
        """Return an element of ``*args``: a proxy for PH, also within containers; otherwise the value."""

        def leaf(part: Nested) -> Nested:
            return self.create_proxy("placeholder", name, (), {}) if isinstance(part, PHBase) else part

        return pytree.tree_map(leaf, value)

    def _specialized(
        self, name: str, unique: str, default: tuple[Nested, ...], value: Nested
    ) -> Any:  # of any types
        """Return a Proxy for a placeholder, else ``value`` and record that the argument has to be equal to
        it."""
        proxy = self.create_proxy("placeholder", unique, default, {})
        if isinstance(value, PHBase):
            for key, note in vars(value).items():
                if not hasattr(proxy.node, key):
                    setattr(proxy.node, key, note)
            return proxy
        message = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (proxy, message), {})
        elif isinstance(value, (str, int, float, bool, complex, dtype)):
            _assert(proxy == value, message)
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized"
                " function. It is up to"
                " the user to make sure that your inputs match the inputs you specialized the function with.",
                stacklevel=2,
            )
        return value


def annotation_of(function: Function, name: str) -> Any:  # a type, or what an annotation can be
    """Return the annotation of an argument or of ``"return"``, None if there is none.

    Annotations of tenon's own functions are strings; only those that name a tensor are resolved.
    """
    kind = getattr(function, "__annotations__", {}).get(name)
    if not isinstance(kind, str) or not function.__module__.startswith("tenon"):
        return kind
    return {"Tensor": Tensor, "Tensor | None": Tensor | None}.get(kind)


def _named(
    concrete: Named | tuple[Nested, ...] | None,
    names: list[str],
    rest: list[str],  # of any types
) -> dict[str, Any]:  # of any types
    """Return ``concrete_args`` by the names of arguments."""
    if concrete is None:
        return {}
    if isinstance(concrete, dict):
        return concrete
    every = [*names, *rest]
    if len(every) != len(concrete):
        raise RuntimeError(
            f"Tracing expected {len(every)} arguments but got {len(concrete)} concrete arguments"
        )
    return dict(zip(every, concrete, strict=True))


def _with_positional_arguments(function: Function, count: int) -> Callable[..., Any]:  # any function
    """Return ``function`` with its ``*args``, ``**kwargs`` and keyword-only parameters as ordinary positional
    ones."""
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__
    plain = code.replace(
        co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~_VARIABLE
    )
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
