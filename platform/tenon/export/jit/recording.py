"""Record a function for ``trace``: check its arguments and results as PyTorch does, and capture it.

Next: ``free_sizes.py`` captures at more sizes.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.engine.types import Array, Nested
from tenon.errors import ArgumentError, CaptureError, UnsupportedError
from tenon.export.capture import Call, captured
from tenon.export.captured import CapturedGraph
from tenon.export.jit.recorder import STATE, Note, TraceRecorder, TracerWarning
from tenon.export.values import is_plain
from tenon.nn.module import Module
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.export.jit.parts import PartCalls

#: A result of a traced function, in PyTorch's containers.
Plain: TypeAlias = Any


class ExampleError(ArgumentError, TypeError):
    """Examples are missing, or are not what the traced function takes."""


class Recording:
    """A function that is traced, and how it is captured: ``tracked`` if arguments come with gradient.

    ``strict`` refuses results in dicts; ``plain`` allows None, numbers and texts among results.
    """

    def __init__(
        self, function: Callable[..., Nested], call: Call, strict: bool, plain: bool = False
    ) -> None:
        self.function, self.call, self.strict, self.plain = function, call, strict, plain
        #: Records the calls of submodules.
        self.parts: PartCalls | None = None
        #: The warnings to issue, in order.
        self.notes: dict[Note, None] = {}
        self.tracked = True
        #: The tensors that the last call returned.
        self.results: list[Tensor] = []
        #: Their memory, and that of the arguments.
        self.returned: list[Array] = []
        self.given: list[Array] = []

    def first(self) -> CapturedGraph:
        """Capture at the sizes of the examples.

        The arguments require gradients, so that the recording shows where these stop. A function that does
        not work with such arguments is captured without gradients.
        """
        try:
            return self.captured(self.call)
        except UnsupportedError:
            raise
        except Exception:
            self.notes.clear()
            self.tracked = False
            return self.captured(self.call)

    def captured(self, call: Call) -> CapturedGraph:
        """Capture at the sizes of ``call``."""
        return captured(self.runner(), call, True, self.recorder)

    def recorder(self) -> TraceRecorder:
        """Return a new recorder."""
        return TraceRecorder(self.notes, self.tracked)

    def runner(self) -> Callable[..., Plain]:
        """Return the function that is captured: it checks arguments and results."""
        target = self.function.forward if isinstance(self.function, Module) else self.function

        def run(*args: Nested, **kwargs: Nested) -> Plain:
            leaves, spec = tree_flatten((args, kwargs))
            if self.tracked:
                leaves = [_with_gradient(leaf) for leaf in leaves]
            versions = [leaf._version for leaf in leaves]
            positional, named = tree_unflatten(leaves, spec)
            if self.parts is not None:
                self.parts.begin()
            before, STATE.tracing = STATE.tracing, True
            try:
                result = self.function(*positional, **named)
            finally:
                STATE.tracing = before
            for leaf, version in zip(leaves, versions, strict=True):
                if leaf._version != version:
                    raise CaptureError(
                        "the traced function changes an argument in place. Change a copy of it: x.clone()."
                    )
            plain = plain_result(result, self.strict, self.plain)
            self.returned = [leaf.raw for leaf in tree_flatten(plain)[0] if isinstance(leaf, Tensor)]
            self.given = [leaf.raw for leaf in leaves]
            if self.parts is not None:
                self.parts.finish()
            self.results = [wrap(raw.copy(), device="cpu") for raw in self.returned]
            return plain

        functools.update_wrapper(run, target, updated=())
        return run

    def warn(self) -> None:
        """Issue the warnings of the lines that the trace does not repeat."""
        for note in self.notes:
            warnings.warn_explicit(note.text, TracerWarning, note.file, note.line)
        self.notes.clear()


def _with_gradient(leaf: Tensor) -> Tensor:
    if not leaf.is_floating_point() and not leaf.is_complex():
        return leaf
    return leaf.detach().requires_grad_().clone()


def check_call(function: Callable[..., Nested], call: Call) -> None:
    """Raise ExampleError unless ``function`` takes the examples."""
    args, kwargs = call
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except ValueError:  # a function that Python has no signature of
        return
    except TypeError as error:
        raise ExampleError(
            f"{getattr(function, '__qualname__', function)} does not take the examples: {error}. Pass a "
            "tensor for each argument, in a tuple, or by name in example_kwarg_inputs={...}."
        ) from None


def check_arguments(call: Call) -> None:
    """Raise RuntimeError unless all leaves of the examples are tensors."""
    for value in (*call[0], *call[1].values()):
        for leaf in tree_flatten(value)[0]:
            if not isinstance(leaf, Tensor):
                raise UnsupportedError(
                    f"Type '{_type_text(call[0] or call[1])}' cannot be traced. Only Tensors and (possibly "
                    "nested) Lists, Dicts, and Tuples of Tensors can be traced. Fix other arguments by a "
                    "function: trace(lambda x: f(x, 2), x)."
                )


def _type_text(value: Nested) -> str:
    if isinstance(value, tuple):
        return f"Tuple[{', '.join(map(_type_text, value))}]"
    if isinstance(value, list):
        return f"List[{', '.join(map(_type_text, value))}]"
    if isinstance(value, Mapping):
        return f"Dict[{', '.join(f'{k}: {_type_text(v)}' for k, v in value.items())}]"
    return "Tensor" if isinstance(value, Tensor) else type(value).__name__


def plain_result(result: Nested, strict: bool, plain: bool = False) -> Plain:
    """Return what a traced function returned, in tuples, lists and dicts; RuntimeError for other values."""
    if isinstance(result, Tensor) or (plain and is_plain(result)):
        return result
    if isinstance(result, tuple):
        return tuple(plain_result(each, strict, plain) for each in result)
    if isinstance(result, list):
        return [plain_result(each, strict, plain) for each in result]
    if isinstance(result, Mapping):
        if strict:
            raise UnsupportedError(
                "Encountering a dict at the output of the tracer might cause the trace to be incorrect, this "
                "is only valid if the container structure does not change based on the module's inputs. "
                "Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for "
                "`dict`, use a `NamedTuple` instead). If you absolutely need this and know the side effects, "
                "pass strict=False to trace() to allow this behavior."
            )
        return {key: plain_result(each, strict, plain) for key, each in result.items()}
    raise UnsupportedError(
        "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced "
        f"functions, not a {type(result).__name__} ({result!r:.60})."
    )
