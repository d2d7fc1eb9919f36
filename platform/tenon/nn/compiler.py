"""``tenon.compile``: record the ops of a function or module, then replay them as one fused program.

>>> import tenon
>>> @tenon.compile
... def double(x):
...     return x * 2
>>> for _ in range(4):
...     y = double(tenon.ones(3))
>>> y, len(double.programs)
(tensor([2., 2., 2.]), 1)

Guide: ``docs/guide/compile.md``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tenon.engine.types import Forwarded, Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, CaptureError
from tenon.graph.compile import EVERY, Compiled
from tenon.graph.stance import set_stance
from tenon.nn.module import Module
from tenon.nn.optimized_module import OptimizedModule


def compile(
    model: Callable[..., Nested] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = None,
    mode: str | None = None,
    options: dict[str, object] | None = None,
    disable: bool = False,
    explain: bool = False,
) -> Any:  # a compiled function, an OptimizedModule, or a decorator
    """Compile ``model``: a function, a method or a module; also usable as a decorator (torch.compile).

    Calls run eagerly once, are recorded twice, and are replayed from then on if both recordings agree. A
    function that is not static (Python reads a value, shapes depend on data) stays eager, with one
    warning that names the line; ``fullgraph=True`` makes that a CaptureError. ``explain=True`` prints every
    recording and its reason; ``compiled.reasons`` keeps them, ``compiled.programs[0].source`` is the program.

    ``dynamic``, ``mode`` and ``options`` are PyTorch's and have no effect: shapes are always static here, and
    every shape gets a program of its own. Raises ArgumentError for an unknown ``backend``.
    """
    if backend not in (None, "inductor", "tenon", "eager"):
        raise ArgumentError(
            f"tenon.compile(backend={backend!r}): tenon has one compiler. Leave backend out; plugins add"
            " passes through the hook tenon_graph_passes."
        )
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, backend=backend, disable=disable, explain=explain
        )
    if disable or backend == "eager":
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, Compiled(model.__call__, fullgraph, explain))
    if not callable(model):
        raise ArgumentError(f"tenon.compile takes a function or a module, got {type(model).__name__}.")
    return Compiled(model, fullgraph, explain)


def is_compiling() -> bool:
    """Whether a function is currently being recorded for compilation (torch.compiler.is_compiling)."""
    return WATCHERS.recorder is not None


def disable(
    fn: Callable[..., Nested] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:  # the function or module, or a decorator
    """Exclude ``fn`` from compilation: functions that call it stay eager. Also a decorator.

    PyTorch compiles the parts before and after the call (a graph break); here the whole calling function
    stays eager, with one warning that contains ``reason``. ``recursive`` has no effect.

    >>> import tenon
    >>> shapes = []
    >>> logged = tenon.compiler.disable(lambda x: shapes.append(x.shape) or x)
    >>> logged(tenon.ones(2)), shapes
    (tensor([1., 1.]), [torch.Size([2])])
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(fn):
        raise ArgumentError(f"tenon.compiler.disable takes a function or a module, got {type(fn).__name__}.")
    if isinstance(fn, Module):
        fn.forward = disable(fn.forward, reason=reason)
        return fn

    @functools.wraps(fn)
    def eager(*args: Forwarded, **kwargs: Forwarded) -> Nested:
        if WATCHERS.recorder is not None:
            name = getattr(fn, "__qualname__", type(fn).__name__)
            WATCHERS.recorder.refuse(
                CaptureError(
                    f"{name} is excluded from compilation by tenon.compiler.disable"
                    f"{'' if reason is None else f' ({reason})'}. Call it outside the compiled function."
                )
            )
        return fn(*args, **kwargs)

    return eager


T = TypeVar("T")


def is_exporting() -> bool:
    """Return False: nothing is traced for export (torch.compiler.is_exporting)."""
    return False


def reset() -> None:
    """Discard all compiled programs; compiled functions record again."""
    for compiled in list(EVERY):
        compiled.forget()


def cudagraph_mark_step_begin() -> None:
    """Do nothing: results own their memory, which later steps do not overwrite."""


def allow_in_graph(fn: T) -> T:
    """Return ``fn`` unchanged: calls within a compiled function are recorded op by op."""
    return fn


def assume_constant_result(fn: T) -> T:
    """Return ``fn`` unchanged: values that Python computes during recording are constants of the program."""
    return fn


def list_backends(exclude_tags: object = ()) -> list[str]:
    """Return the backend names that ``compile`` accepts, all one compiler; ``exclude_tags`` has no effect."""
    return ["inductor", "tenon"]


is_dynamo_compiling = is_compiling

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
]
