"""Functions generated from tensor methods: ``tenon.exp(x)`` is ``x.exp()``.

They add PyTorch's parameter name ``input``, NumPy's ``axis`` and ``keepdims``, ``out=``, and PyTorch's errors
for a first argument that is not a tensor and for ``out=`` where a gradient would be lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from tenon.compat.rerouting import REROUTING, is_new_override
from tenon.dtypes import scalar_name
from tenon.engine.value import Value
from tenon.errors import DTypeError
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.creation.factories import write_out, written
from tenon.tensors.memory_overlap import refuse_overlap, refuse_partial
from tenon.tensors.methods.function_forms import FUNCTION_FORMS, FunctionForm
from tenon.tensors.named_results import NamedResult
from tenon.tensors.tensor import Tensor
from tenon.tensors.wrong_arguments import FAILURES, must_repeat, refuse_wrong, register_generated

Result = TypeVar("Result", bound="Tensor | tuple[Any, ...]")
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x2": "other"}

#: A function of tensors and other arguments, which returns tensors, tuples of them or Python values.
Function: TypeAlias = Callable[..., Any]


def refuse(name: str, value: object) -> TypeError:
    """Create the TypeError for a first argument that is not a tensor."""
    kind = type(value)
    type_name = f"numpy.{kind.__name__}" if kind.__module__ == "numpy" else kind.__name__
    return TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type_name}")


def write_into(out: Any, result: Result) -> Result:  # ``out`` as ``result``, or None
    """Write ``result`` into ``out``, a tensor or a tuple of tensors as ``result`` is, and return that; return
    ``result`` if ``out`` is None."""
    if out is None:
        return result
    if isinstance(result, tuple):
        tensors = [write_out(o, r) for o, r in zip(out, result, strict=True)]
        return type(result)(tensors) if isinstance(result, NamedResult) else tuple(tensors)  # type: ignore[return-value]
    return write_out(out, result)  # type: ignore[return-value]  # a tensor, as ``result`` is


def _check_exact(name: str, words: str, out: Any, result: Any) -> None:  # tensors, or tuples of them
    """Raise DTypeError unless ``out`` has the dtypes of ``result``; ``words`` is ``FunctionForm.refusal``."""
    for target, tensor in zip(*(v if isinstance(v, tuple) else (v,) for v in (out, result)), strict=True):
        if target.raw.dtype != tensor.raw.dtype:
            if words == "scan":
                kinds = [scalar_name(v.dtype) for v in (tensor, target)]
                raise DTypeError(f"{name}: expected scalar_type {kinds[0]} but found {kinds[1]} for out")
            if words == "result":
                part = "values" if tensor is result.values else "indices"
                raise DTypeError(
                    f"expected scalar type '{scalar_name(tensor.dtype)}' but got "
                    f"'{scalar_name(target.dtype)}' for {part} output"
                )
            raise DTypeError(
                f"{name}(): Expected out tensor to have dtype {tensor.dtype}, but got {target.dtype} instead"
            )


def _write(
    name: str,
    form: FunctionForm,
    out: Any,  # a tensor, or a tuple of them
    result: Any,  # as ``out``
    first: Any,  # a tensor
    exact: bool,
) -> Any:  # as ``out``
    """Write ``result``, of a call whose ``first`` argument is a tensor, into ``out``, and return it.

    Raise unless the form allows the dtype of ``out``, or if ``exact`` and it is not that of the result.
    """
    if form.out == "converted":
        result = result.to(out.dtype)
    if form.out == "exact" or exact:
        _check_exact(name, form.refusal, out, result)
    if form.out == "boolean" and out.raw.dtype.kind != "b":
        raise DTypeError(f"{name} does not support non-boolean outputs.")
    if form.out == "kept" and first.raw.dtype == result.raw.dtype != out.raw.dtype:
        own, result_name = scalar_name(out.dtype), scalar_name(result.dtype)
        raise DTypeError(f"Found dtype {own} but expected {result_name}: out= must have it.")
    return written(out, result) if form.resizes else write_into(out, result)


def derive(name: str) -> Function:
    """Generate the function ``name`` from ``Tensor``'s method of that name and its ``FunctionForm``."""
    form = FUNCTION_FORMS[name]
    numbers = form.first != "tensor"
    check_memory = {"apart": refuse_overlap, "same": refuse_partial}.get(form.memory)
    method: Function = getattr(Tensor, name)
    parameters = list(inspect.signature(method).parameters.values())[1:]

    def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:  # as the method
        if out is None and not kwargs and args and isinstance(args[0], Value):
            try:
                return method(*args)  # the common case: 0.15 us less
            except FAILURES:
                if must_repeat(args, REROUTING):
                    return function(*args)
                refuse_wrong(method, args, kwargs)
                raise
        if kwargs:
            kwargs = {_NUMPY_NAMES.get(k, k): v for k, v in kwargs.items()}
            if "input" in kwargs:
                args = (kwargs.pop("input"), *args)
        if not args:
            raise TypeError(f"{name}() missing 1 required positional argument: 'input'")
        if not isinstance(args[0], Value):
            if is_new_override(args[0]) and must_repeat(args, REROUTING):
                return function(*args, **({} if out is None else {"out": out}), **kwargs)
            if isinstance(args[0], np.generic) and numbers:
                args = (args[0].item(), *args[1:])
            if not numbers or not isinstance(args[0], (int, float, complex)):
                raise refuse(name, args[0])
            if not any(isinstance(a, Value) for a in (*args, *kwargs.values())):
                if form.first != "numbers":
                    raise TypeError(f"{name}(): one of the first two arguments must be a Tensor, got {args}")
                args = (as_tensor(args[0]), *args[1:])
        if out is None:
            try:
                return method(*args, **kwargs)
            except FAILURES:
                if must_repeat((args, kwargs), REROUTING):
                    return function(*args, **kwargs)
                refuse_wrong(method, args, kwargs)
                raise
        if check_memory is not None:
            for each in out if isinstance(out, tuple) else (out,):
                check_memory(each, *(a for a in args if isinstance(a, Value)))
        result = method(*args, **kwargs)
        return _write(name, form, out, result, args[0], kwargs.get("dtype") is not None)

    register_generated(cast(FunctionType, function), REROUTING)
    function.__name__ = function.__qualname__ = name
    function.__module__ = "tenon"
    function.__doc__ = (
        f"{inspect.getdoc(method) or ''}\n\nThe method ``Tensor.{name}`` as a function of ``input``."
    )
    function.__signature__ = _signature(parameters, form.out == "none")  # type: ignore[attr-defined]
    return function


def _signature(parameters: list[inspect.Parameter], without_out: bool) -> inspect.Signature:
    kind = inspect.Parameter
    if parameters and parameters[0].kind is kind.VAR_POSITIONAL:  # sizes, which have a keyword as well
        parameters = [
            parameters[1].replace(kind=kind.POSITIONAL_OR_KEYWORD, default=kind.empty),
            *parameters[2:],
        ]
    rest = [p for p in parameters if p.kind is kind.VAR_KEYWORD]
    own = [p for p in parameters if p.kind is not kind.VAR_KEYWORD]
    out = [] if without_out else [kind("out", kind.KEYWORD_ONLY, default=None)]
    return inspect.Signature([kind("input", kind.POSITIONAL_OR_KEYWORD), *own, *out, *rest])


def derive_all() -> dict[str, Function]:
    """Generate all derived functions, by name."""
    return {name: derive(name) for name in FUNCTION_FORMS}
