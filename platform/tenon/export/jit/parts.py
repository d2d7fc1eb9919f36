"""The parts of a traced module: the calls of its submodules while it is traced, and a trace of the first call
of each, by which the part of the trace is called alone.

A part is traced when it is first called alone, shown, converted, copied or saved, as it was when the whole
was traced: most parts never are. ``snapshot.py`` has what that takes.

Sizes that may change are looked for among those that differed between the calls. An argument without tensors,
such as a flag, is fixed, and is no argument of the trace.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from tenon.dtypes import get_default_dtype, set_default_dtype
from tenon.engine.interceptor import SLOT
from tenon.engine.types import Nested
from tenon.errors import CaptureError
from tenon.export.capture import Call
from tenon.export.jit.aliases import ResultAliases
from tenon.export.jit.free_sizes import Axis, Search, Sizes, quietly
from tenon.export.jit.program import REASON, Program, argument_names, program_of
from tenon.export.jit.recorder import STATE
from tenon.export.jit.recording import Recording
from tenon.export.jit.script_module import PENDING, ScriptModule, TracedModule, with_programs
from tenon.export.jit.snapshot import Example, kept, snapshot
from tenon.nn.module import Module
from tenon.tensors.call_site import user_line
from tenon.tensors.pytree import tree_flatten, tree_map
from tenon.tensors.tensor import Tensor


class CalledPart:
    """How a submodule was called: the first call, and the shapes of the tensors of all calls like it."""

    def __init__(self, module: Module, args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> None:
        self.module, self.where = module, user_line()
        leaves, self.spec = tree_flatten((args, kwargs))
        self.call: Call = tree_map(kept, (args, kwargs))
        self.plain = [repr(leaf) for leaf in leaves if not isinstance(leaf, Tensor)]
        self.shapes = [_shapes(leaves)]
        #: Those of the present run, which may fail.
        self.pending: list[list[tuple[int, ...]]] = []
        #: Whether a plain argument differed between runs of the whole.
        self.varies = False

    def seen(self, args: tuple[Nested, ...], kwargs: dict[str, Nested], first: bool) -> None:
        """Note the shapes of another call; ``first``: it is the first one of a run of the whole."""
        leaves, spec = tree_flatten((args, kwargs))
        shapes = _shapes(leaves)
        if spec != self.spec or [len(s) for s in shapes] != [len(s) for s in self.shapes[0]]:
            return
        plain = [repr(leaf) for leaf in leaves if not isinstance(leaf, Tensor)]
        if plain == self.plain:
            self.pending.append(shapes)
        elif first:
            self.varies = True

    def example(self) -> tuple[Callable[..., Nested], Call]:
        """Return what to trace, and its arguments: tensors only."""
        args, kwargs = tree_map(lambda leaf: leaf.tensor() if isinstance(leaf, Example) else leaf, self.call)
        own = [*args, *kwargs.values()]
        kinds = [{isinstance(leaf, Tensor) for leaf in tree_flatten(value)[0]} for value in own]
        if all(kind == {True} for kind in kinds):
            return self.module, (args, kwargs)
        if any(len(kind) == 2 for kind in kinds):
            raise CaptureError("it is called with a container of tensors and other values")
        if self.varies:
            raise CaptureError("it is called with numbers that follow from the sizes of tensors")
        names = argument_names(self.module.forward, (args, kwargs))
        places = [place for place, kind in enumerate(kinds) if kind == {True}]
        count, keys, module = len(args), list(kwargs), self.module
        fixed = [None if place in places else value for place, value in enumerate(own)]

        def forward(*given: Nested) -> Nested:
            values = list(fixed)
            for place, value in zip(places, given, strict=True):
                values[place] = value
            result: Nested = module(*values[:count], **dict(zip(keys, values[count:], strict=True)))
            return result

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(names[place], kind) for place in places]
        )
        return forward, (tuple(own[place] for place in places), {})

    def groups(self, axes: list[Axis]) -> Iterator[tuple[Axis, ...]]:
        """Yield the axes whose sizes differed, equal ones together; ``axes`` are all those of the tensors."""
        columns = zip(*(sum(shapes, ()) for shapes in self.shapes), strict=True)
        together: dict[tuple[int, ...], list[Axis]] = {}
        for axis, sizes in zip(axes, columns, strict=True):
            if len(set(sizes)) > 1:
                together.setdefault(sizes, []).append(axis)
        yield from map(tuple, together.values())


class PartCalls:
    """Records, while it is entered, how the submodules of ``root`` are called in traced runs."""

    def __init__(self, root: Module) -> None:
        self.root = root
        self.parts: dict[Module, CalledPart] = {}
        self._called: set[Module] = set()
        self._handles: list[Any] = []  # of hooks

    def begin(self) -> None:
        """A run of the whole begins."""
        self._called.clear()
        for part in self.parts.values():
            part.pending.clear()

    def finish(self) -> None:
        """A run of the whole ends, without error: its sizes count."""
        for part in self.parts.values():
            part.shapes += [each for each in part.pending if each not in part.shapes]

    def __enter__(self) -> Self:
        for module in list(self.root.modules())[1:]:
            self._handles.append(
                module.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True)
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, module: Module, args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> None:
        if not STATE.tracing:
            return
        part = self.parts.get(module)
        if part is None:
            self.parts[module] = CalledPart(module, args, kwargs)
        else:
            part.seen(args, kwargs, module not in self._called)
        self._called.add(module)


class PendingPart:
    """A part that has not been traced yet: its call, and the module as it is now."""

    def __init__(self, part: CalledPart, snapshot: Module) -> None:
        self.part, part.module = part, snapshot
        self._dtypes = {tensor: tensor.dtype for tensor in _states(snapshot)}
        self._default = get_default_dtype()
        self._lock = threading.RLock()

    def complete(self, module: ScriptModule) -> None:
        """Trace the part, and give ``module`` the method, or the reason why there is none."""
        with self._lock:
            if PENDING not in module.__dict__:  # another thread was first
                return
            self._convert_examples()
            present = get_default_dtype()
            set_default_dtype(self._default)
            try:
                result = traced_part(self.part)
            finally:
                set_default_dtype(present)
            if isinstance(result, str):
                module.__dict__[REASON] = result
            else:
                with_programs(TracedModule, module, {"forward": result[0]}, result[1])
            del module.__dict__[PENDING]

    def _convert_examples(self) -> None:
        """Follow a conversion of the parameters since then, ``model.double()``, with the examples."""
        changed = {old: t.dtype for t, old in self._dtypes.items() if t.dtype is not old}
        for leaf in tree_flatten(self.part.call)[0]:
            if isinstance(leaf, Example):
                leaf.dtype = changed.get(leaf.dtype, leaf.dtype)


def add_parts(calls: PartCalls, root: Module, made: Mapping[int, ScriptModule]) -> None:
    """Prepare the traces of the parts that were called; ``made`` has the modules that get them, by id of the
    submodule of ``root``."""
    copies: dict[int, Module] = {}
    snapshot(root, copies)
    for part in calls.parts.values():
        own = made[id(part.module)]
        if own._programs:  # the part is a trace itself
            continue
        own.__dict__[PENDING] = pending = PendingPart(part, copies[id(part.module)])
        if SLOT.top is not None:  # autocast, for example, which is part of what is traced
            pending.complete(own)


def traced_part(part: CalledPart) -> tuple[Program, SimpleNamespace] | str:
    """Return the program of a part and the tensors that it stores; why there is none, as text."""
    stored, module, here = SimpleNamespace(), part.module, user_line()
    try:
        with quietly():
            function, call = part.example()
            recording = Recording(function, call, strict=False, plain=True)
            graph = recording.first()
            aliases = ResultAliases(recording, graph)
            sizes = _sizes(part, recording, Search(recording, graph))
            aliases.separate(sizes.graph)
            for node in sizes.graph.nodes:
                if node.where == here:
                    node.where = part.where
            target = function.forward if isinstance(function, Module) else function
            paths = {id(t.raw): name for name, t in (*module.named_buffers(), *module.named_parameters())}
            program = program_of(
                sizes,
                name="forward",
                owner=type(module).__name__,
                arguments=argument_names(target, call),
                paths=paths,
                stored=stored,
            )
    except Exception as error:  # the module's own, of any type, too
        kind = "" if isinstance(error, CaptureError) else f"{type(error).__name__}: "
        return f"{kind}{str(error).rstrip('.') or 'no reason is known'}."
    return program, stored


def _sizes(part: CalledPart, recording: Recording, search: Search) -> Sizes:
    leaves = tree_flatten(recording.call)[0]
    axes = [(name, axis) for name, x in zip(search.names, leaves, strict=True) for axis in range(x.dim())]
    sizes = search.found(list(part.groups(axes)))
    for axis in axes:
        sizes.reasons.setdefault(axis, "it did not change while the whole was traced")
    return sizes


def _states(module: Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def _shapes(leaves: list[Any]) -> list[tuple[int, ...]]:  # of any type
    return [tuple(leaf.raw.shape) for leaf in leaves if isinstance(leaf, Tensor)]
