"""``torch.jit.script``: there is no TorchScript, so functions and modules remain Python.

Arguments that PyTorch's compiler accepts are returned unchanged. Those that it rejects regardless of their
code, such as lambdas, are rejected here too, so that a program which runs here does not fail in PyTorch for
that reason. A scripted function has the attributes of PyTorch's ``ScriptFunction``; using one raises an error
that names the replacement.
"""

from __future__ import annotations

import inspect
import warnings
from types import FunctionType
from typing import NoReturn, TypeVar

from tenon.config import environment
from tenon.errors import ArgumentError, TenonWarning, UnsupportedError
from tenon.export.jit import ScriptFunction, ScriptModule
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

T = TypeVar("T")


class NotScriptableError(ArgumentError, TypeError):
    """The argument of ``script`` is not a module, function, class, list or dict."""


def script(obj: T, *args: object, **options: object) -> T:
    """Return ``obj`` uncompiled, with one warning per process; without one if ``PYTORCH_JIT=0``.

    A trace is returned without a warning. UnsupportedError for lambdas, coroutines, generators, functions
    with ``*args`` and classes of modules, which TorchScript does not support; NotScriptableError for values
    that are not code. Functions get the attributes of a ``ScriptFunction``, such as ``save``; using one
    raises an error that names the replacement.
    """
    if isinstance(obj, ScriptFunction | ScriptModule) or environment("PYTORCH_JIT") == "0":
        return obj
    _refuse(obj)
    if not _warned:
        _warned.append(obj)
        warnings.warn(
            f"torch.jit.script({_name_of(obj)}): TorchScript is not supported,"
            " and the argument is returned unchanged. tenon.compile makes functions and models faster;"
            " tenon.jit.trace(model, example_inputs).save(path) writes them to a file;"
            " PYTORCH_JIT=0 in the environment disables this warning.",
            TenonWarning,
            stacklevel=2,
        )
    if isinstance(obj, FunctionType):
        for name in _OF_SCRIPTS:
            obj.__dict__.setdefault(name, Absent(_name_of(obj), name))
    return obj


#: The first argument of ``script``; nonempty once the warning was issued.
_warned: list[object] = []
#: Attributes of a ``ScriptFunction`` that functions do not have.
_OF_SCRIPTS = ("save", "save_to_buffer", "code", "graph", "inlined_graph", "graph_for", "schema")


class Absent:
    """An attribute that only a compiled function would have: using it raises UnsupportedError."""

    def __init__(self, function: str, name: str) -> None:
        self.__dict__.update(_function=function, _name=name)

    def __repr__(self) -> str:
        return f"<{self._reason()}>"

    def _reason(self) -> str:
        function, name = self.__dict__["_function"], self.__dict__["_name"]
        trace = f"tenon.jit.trace({function}, example_inputs)"
        do = f"{trace}.save(path)" if name.startswith("save") else f"{trace} has {name!r}"
        return (
            f"torch.jit.script({function}) is the Python function, as TorchScript is not supported: it has"
            f" no {name!r}. Trace it: {do}."
        )

    def _refuse(self) -> NoReturn:
        raise UnsupportedError(self._reason())

    def __str__(self) -> str:
        self._refuse()

    def __call__(self, *args: object, **options: object) -> NoReturn:
        """Raise UnsupportedError."""
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what copy, pickle and inspect look for
            raise AttributeError(name)
        self._refuse()


def _refuse(obj: object) -> None:
    """Raise if PyTorch's ``script`` would reject ``obj`` regardless of its code."""
    if isinstance(obj, type) and issubclass(obj, Module):
        raise UnsupportedError(
            f"torch.jit.script: type {obj!r} cannot be compiled since it inherits from nn.Module. Pass an "
            f"instance, {obj.__name__}(...)."
        )
    function = inspect.unwrap(obj) if isinstance(obj, FunctionType) else obj
    if isinstance(function, FunctionType):
        if (function.__module__ or "").partition(".")[0] == "tenon":
            return  # PyTorch can script its own functions, which may be written differently
        problem = _problem(function)
        if problem:
            code = function.__code__
            raise UnsupportedError(
                f"torch.jit.script({_name_of(obj)}), {code.co_filename}:{code.co_firstlineno}: {problem} "
                "tenon.jit.trace(function, example_inputs) records what it computes; tenon.compile(function) "
                "makes it faster."
            )
    elif isinstance(obj, Tensor) or (type(obj).__module__ == "builtins" and not _is_code(obj)):
        raise NotScriptableError(
            f"torch.jit.script takes a module, function, class, list or dict: {type(obj)} is a built-in "
            "class. Pass the function or module that computes the value."
        )


def _is_code(obj: object) -> bool:
    return isinstance(obj, type | list | dict) or inspect.ismethod(obj)


def _problem(function: FunctionType) -> str:
    """Return why PyTorch's ``script`` refuses a function, whatever it computes; or an empty text."""
    flags = function.__code__.co_flags
    if function.__name__ == "<lambda>":
        return "Expected a single top-level function, not a lambda. Write it with def and a name."
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return "Expected a single top-level function; async functions aren't supported. Write a plain one."
    if flags & inspect.CO_GENERATOR:
        return "Yield aren't supported. Return a list."
    if flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or function.__kwdefaults__:
        return (
            "Compiled functions can't take variable number of arguments or use keyword-only arguments with "
            "defaults. Name each argument."
        )
    return ""


def _name_of(obj: object) -> str:
    return str(getattr(obj, "__name__", type(obj).__name__))
