"""``trace`` and ``trace_module``: record what a module or function does with examples, and return it as a
module or function that runs without the Python code.

Next: ``recording.py`` records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MethodType, SimpleNamespace
from typing import Any, TypeAlias

from tenon.engine.types import Nested
from tenon.errors import ArgumentError
from tenon.export.capture import Call, captured_at_sizes
from tenon.export.captured import CapturedGraph
from tenon.export.jit.aliases import ResultAliases
from tenon.export.jit.checking import check_graphs, check_results
from tenon.export.jit.free_sizes import Sizes, search
from tenon.export.jit.parts import PartCalls, add_parts
from tenon.export.jit.program import STORE, Program, argument_names, program_of
from tenon.export.jit.recording import ExampleError, Recording, check_arguments, check_call
from tenon.export.jit.script_function import ScriptFunction
from tenon.export.jit.script_module import (
    ScriptModule,
    TopLevelTracedModule,
    mirrored,
    with_programs,
)
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

#: A function or module that is traced.
Traceable: TypeAlias = Callable[..., Any]
#: By argument and axis, names of the sizes that may change.
Dynamic: TypeAlias = Mapping[str, Mapping[int, str]]


class MissingMethodError(ArgumentError, AttributeError):
    """The object to trace is not a module, or lacks the method."""


def trace(
    func: Traceable,
    example_inputs: Nested = None,
    optimize: object = None,
    check_trace: bool = True,
    check_inputs: Sequence[Nested] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: type[ScriptModule] | None = None,
    _compilation_unit: object = None,
    example_kwarg_inputs: Mapping[str, Nested] | None = None,
    _store_inputs: bool = True,
    *,
    dynamic: Dynamic | None = None,
) -> Any:  # a ScriptModule or a ScriptFunction
    """Call ``func`` with examples and return what it computed as a ``ScriptModule``, or ``ScriptFunction``.

    The result has the parameters and buffers of the module, which it shares, and runs, is trained, saved and
    loaded without the module's code. Branches and loops are recorded as they were taken; a value of a tensor
    that Python reads becomes a constant, with a TracerWarning.

    With ``check_trace`` the function is traced once more, for ``check_inputs`` or the examples; graphs that
    differ raise TracingCheckError, results that differ by more than ``check_tolerance`` are warned of.

    Sizes of the arguments may change where the function does the same at other sizes, for which it is called
    several times. ``dynamic`` names these sizes instead, by argument and axis: ``{"x": {0: "batch"}}``;
    ``{}`` fixes all. Other sizes raise ShapeError.

    ``strict=False`` allows results in dicts. ``optimize`` and the arguments with ``_`` have no effect.

    >>> import tenon
    >>> def double(x):
    ...     return x * 2
    >>> traced = trace(double, tenon.ones(3))
    >>> print(traced.code)
    def double(x):
        mul = tenon.ops.mul(x, 2.0);  x = None
        return mul
    <BLANKLINE>
    >>> tuple(traced(tenon.ones(2, 5)).shape)
    (2, 5)
    """
    if isinstance(func, ScriptFunction) or (isinstance(func, ScriptModule) and func._complete()._programs):
        return func
    module = func if isinstance(func, Module) else getattr(func, "__self__", None)
    if isinstance(func, MethodType) and isinstance(module, Module) and func.__name__ != "forward":
        raise MissingMethodError(
            "trace doesn't support compiling individual module's functions.\nPlease use trace_module: "
            f"tenon.jit.trace_module(module, {{{func.__name__!r}: example_inputs}})."
        )
    call = example_call(example_inputs, example_kwarg_inputs)
    options = Options(
        check_trace, [example_call(each) for each in check_inputs or ()], check_tolerance, strict, dynamic
    )
    if isinstance(module, Module):
        return traced_module(module, {"forward": call}, options, _module_class or TopLevelTracedModule)
    name = getattr(func, "__name__", type(func).__name__)
    name = name if name.isidentifier() else "_lambda"
    program, stored = traced_method(func, call, options, SimpleNamespace(), name, {})
    return ScriptFunction(program, stored)


def trace_module(
    mod: Module,
    inputs: Mapping[str, Nested],
    optimize: object = None,
    check_trace: bool = True,
    check_inputs: Sequence[Mapping[str, Nested]] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: type[ScriptModule] | None = None,
    _compilation_unit: object = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:  # a ScriptModule
    """Trace several methods of a module: ``inputs`` has examples for each, by name. See ``trace``."""
    if not isinstance(mod, Module):
        raise MissingMethodError(
            f"expected torch.nn.Module as the first argument, not a {type(mod).__name__}"
        )
    if not isinstance(inputs, Mapping):
        raise MissingMethodError("expected a dictionary of (method_name, input) pairs")
    for name in inputs:
        if not callable(getattr(mod, name, None)):
            raise MissingMethodError(f"'{type(mod).__name__}' object has no attribute '{name}' to trace")

    def as_call(value: Nested) -> Call:
        return example_call(None, value) if example_inputs_is_kwarg else example_call(value)

    calls = {name: as_call(value) for name, value in inputs.items()}
    checks = {name: [as_call(each[name]) for each in check_inputs or () if name in each] for name in inputs}
    options = {name: Options(check_trace, checks[name], check_tolerance, strict, None) for name in inputs}
    return traced_module(mod, calls, options, _module_class or TopLevelTracedModule)


class Options:
    """How a method is traced and checked."""

    def __init__(
        self, check_trace: bool, checks: list[Call], tolerance: float, strict: bool, dynamic: Dynamic | None
    ) -> None:
        self.check_trace, self.checks, self.tolerance = check_trace, checks, tolerance
        self.strict, self.dynamic = strict, dynamic


def example_call(inputs: Nested, kwargs: Mapping[str, Nested] | None = None) -> Call:
    """Return the arguments that examples stand for: a tensor, a tuple or list of arguments, or a dict."""
    if inputs is None and kwargs is None:
        raise ExampleError(
            "trace() has no examples: pass a tensor, a tuple of the arguments, or example_kwarg_inputs={...}."
        )
    if inputs is not None and kwargs is not None:
        raise ArgumentError("pass example_inputs or example_kwarg_inputs, not both.")
    if inputs is None:
        call: Call = ((), dict(kwargs or {}))
    elif isinstance(inputs, Tensor | Mapping):
        call = ((inputs,), {})
    else:
        call = (tuple(inputs), {})
    check_arguments(call)
    return call


def traced_module(
    module: Module,
    calls: Mapping[str, Call],
    options: Options | Mapping[str, Options],
    base: type[ScriptModule],
) -> ScriptModule:
    """Return the traces of methods of ``module`` as a module."""
    stored = SimpleNamespace()
    paths = {id(t.raw): name for name, t in (*module.named_buffers(), *module.named_parameters())}
    programs = {}
    parts = PartCalls(module)
    with parts:
        for name, call in calls.items():
            own = options if isinstance(options, Options) else options[name]
            function: Traceable = module if name == "forward" else getattr(module, name)
            programs[name], _ = traced_method(
                function, call, own, stored, type(module).__name__, paths, name, parts
            )
    made: dict[int, ScriptModule] = {}
    root = mirrored(module, base, made)
    add_parts(parts, module, made)
    return with_programs(base, root, programs, stored)


def traced_method(
    function: Traceable,
    call: Call,
    options: Options,
    stored: SimpleNamespace,
    owner: str,
    paths: Mapping[int, str],
    name: str = "forward",
    parts: PartCalls | None = None,
) -> tuple[Program, SimpleNamespace]:
    """Trace one function; tensors that ``paths``, by id of the array, does not name go to ``stored``.

    ``parts`` records the calls of submodules.
    """
    target = function.forward if isinstance(function, Module) else function
    check_call(target, call)
    recording = Recording(function, call, options.strict)
    recording.parts = parts
    graph = recording.first()
    aliases = ResultAliases(recording, graph)
    recording.warn()
    calls = options.checks or [call]
    expected = check_graphs(recording, graph, calls) if options.check_trace else []
    sizes = _sizes(recording, graph, options.dynamic)
    aliases.separate(sizes.graph)
    program = program_of(
        sizes, name=name, owner=owner, arguments=argument_names(target, call), paths=paths, stored=stored
    )
    if options.check_trace:
        check_results(program, stored_owner(function, stored), calls, expected, options.tolerance)
    return program, stored


def stored_owner(function: Traceable, stored: SimpleNamespace) -> object:
    """Return an object on which a program of ``function`` can run: a module like it, with ``stored``.

    It has the members that the trace will have: those of the module itself may compute what they return.
    """
    module = function if isinstance(function, Module) else getattr(function, "__self__", None)
    if not isinstance(module, Module):
        return SimpleNamespace(**{STORE: stored})
    owner = mirrored(module, TopLevelTracedModule, {})
    owner.__dict__[STORE] = stored
    return owner


def _sizes(recording: Recording, graph: CapturedGraph, dynamic: Dynamic | None) -> Sizes:
    if dynamic is None:
        return search(recording, graph)
    if not dynamic:
        return Sizes(graph)
    return Sizes(captured_at_sizes(recording.runner(), recording.call, dynamic, True, recording.recorder))
