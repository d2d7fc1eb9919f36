"""Find the sizes of arguments that may change in a trace, and capture with them as symbols.

Each axis is tried at another size, at which the function has to run the same ops. Axes of the same number and
size are first tried together, as the batch of several arguments is. All others keep the size of
the example, and the trace stores the reasons for its error messages.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tenon.engine.types import Nested
from tenon.errors import CaptureError
from tenon.export import naming
from tenon.export.capture import captured, captured_at_sizes
from tenon.export.captured import CapturedGraph
from tenon.export.jit.recording import Recording
from tenon.export.recorder import CaptureRecorder
from tenon.export.spelled_constants import spell_constants
from tenon.export.symbolic.samples import CHOICES, Choice
from tenon.graph.graph import Ref
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

#: An axis of an argument.
Axis: TypeAlias = tuple[str, int]
#: The most captures of trials, and the size from which smaller ones are tried first.
_TRIALS, _LARGE = 32, 48
#: The sizes that are compared: of large examples also smaller ones, which take less time.
_CHOICES: tuple[Choice, ...] = (
    lambda n: CHOICES[0](n) if n < _LARGE else (n // 2 + 1, n + 1, n // 4 + 3, n // 2 + 4, n - 1, n // 3 + 2),
    *CHOICES,
)


@dataclass
class Sizes:
    """What ``trace`` knows about the shapes of its arguments."""

    graph: CapturedGraph
    #: Whether arguments of any shape are valid.
    any_shape: bool = False
    #: Why axes keep the size of the example.
    reasons: dict[Axis, str] = field(default_factory=dict)


class Search:
    """Tries sizes of the arguments of one traced function."""

    def __init__(self, recording: Recording, graph: CapturedGraph) -> None:
        self.recording, self.graph = recording, graph
        self.leaves, self.spec = tree_flatten(recording.call)
        self.names = naming.argument_names(recording.runner(), *recording.call)
        self.reasons: dict[Axis, str] = {}
        self.trials = 0

    def found(self, tried: Sequence[tuple[Axis, ...]] | None = None) -> Sizes:
        """Return the graph with symbols, or the graph of the example if no size may change.

        ``tried`` are the groups of axes that may have one size each; they are searched for if it is None.
        """
        with quietly():
            if self._any_shape():
                return Sizes(self.graph, any_shape=True)
            groups = list(self._groups()) if tried is None else list(tried)
            graph = self._at_sizes(groups) if groups else self.graph
            if graph is None:
                groups = [group for group in groups if self._at_sizes([group]) is not None]
                while groups and (graph := self._at_sizes(groups)) is None:
                    groups.pop()
        return Sizes(self.graph if graph is None else graph, reasons=self.reasons)

    def _at_sizes(self, groups: Sequence[tuple[Axis, ...]]) -> CapturedGraph | None:
        """Capture with a symbol for each of ``groups``; None, and the reason, if that does not work."""
        dynamic: dict[str, dict[int, str]] = {}
        for symbol, group in self._named(groups).items():
            for name, axis in group:
                dynamic.setdefault(name, {})[axis] = symbol
                self.reasons.pop((name, axis), None)
        run, call, make = self.recording.runner(), self.recording.call, self.recording.recorder
        try:
            return captured_at_sizes(run, call, dynamic, True, make, _CHOICES)
        except CaptureError as error:
            self.reasons.update({axis: _reason(error) for group in groups for axis in group})
            return None

    def _any_shape(self) -> bool:
        """Whether the function does the same, in every detail, with arguments of other ranks."""
        shapes = [leaf.shape for leaf in self.leaves]
        if not shapes or any(node.kind == "constant" and node.value.ndim for node in self.graph.nodes):
            return False
        if any(node.value is not None and node.value.ndim for node in self.graph.states):
            return False
        own = self.graph.copy()
        _reduce_all(own)
        if not all(_fits_any_shape(node.attrs) for node in own.calls) or self._decides_by_sizes():
            return False
        for change in ((2, 3), (5,)):
            other = self._captured([_resized(leaf, (*change, *leaf.shape)) for leaf in self.leaves])
            if isinstance(other, str):
                return False
            _reduce_all(other)
            if _essence(other) != _essence(own):
                return False
        return True

    def _decides_by_sizes(self) -> bool:
        """Whether Python compares or divides sizes of the arguments, or of what follows from them."""

        def make() -> CaptureRecorder:
            recorder = self.recording.recorder()
            recorder.any_size = True
            recorder.free_axes = {
                name: dict.fromkeys(range(leaf.ndim))
                for name, leaf in zip(self.names, self.leaves, strict=True)
            }
            return recorder

        decisions = captured(self.recording.runner(), self.recording.call, True, make).decisions
        return bool(decisions.guards or decisions.refused or decisions.quotients)

    def _groups(self) -> Iterator[tuple[Axis, ...]]:
        """Yield the groups of axes that have one size, which may change."""
        sizes = {
            (name, axis): size
            for name, leaf in zip(self.names, self.leaves, strict=True)
            for axis, size in enumerate(leaf.shape)
            if size
        }
        alone: dict[Axis, str] = {}
        open_: list[Axis] = []
        together: dict[tuple[int, int], list[Axis]] = {}
        for axis, size in sizes.items():
            together.setdefault((axis[1], size), []).append(axis)
        for (_, size), group in together.items():
            if len(group) > 1 and self._works(group, size) is None:
                separately = size > 1 and all(self._works([axis], size) is None for axis in group)
                yield from [(axis,) for axis in group] if separately else [tuple(group)]
                continue
            for axis in group:
                problem = self._works([axis], size)
                if problem is None:
                    yield (axis,)
                else:
                    alone[axis] = problem
                    open_.append(axis)
        yield from self._ties(open_, sizes)
        self.reasons.update({axis: alone[axis] for axis in open_})

    def _ties(self, left: list[Axis], sizes: Mapping[Axis, int]) -> Iterator[tuple[Axis, ...]]:
        """Yield groups of the axes ``left`` that may change together only; remove them there."""
        for size in dict.fromkeys(sizes[axis] for axis in left):
            same = [axis for axis in left if sizes[axis] == size]
            pairs = [[a, b] for i, a in enumerate(same) for b in same[i + 1 :]]
            for group in [same, *pairs]:
                if len(group) > 1 and set(group) <= set(left) and self._works(group, size) is None:
                    yield tuple(group)
                    for axis in group:
                        left.remove(axis)

    def _works(self, group: Sequence[Axis], size: int) -> str | None:
        """Return why the axes of ``group`` cannot have another size; None if they can."""
        problem: str | None = None
        for trial in (size + 1, 2 * size) if size > 1 else (size + 2,):
            self.trials += 1
            if self.trials > _TRIALS:
                return "the function has too many arguments and axes to try all of them"
            leaves = list(self.leaves)
            for name, axis in group:
                position = self.names.index(name)
                shape = list(leaves[position].shape)
                shape[axis] = trial
                leaves[position] = _resized(leaves[position], tuple(shape))
            other = self._captured(leaves)
            if isinstance(other, str):
                problem = problem or other
                continue
            graphs = [self.graph.copy(), other]
            spell_constants(graphs)
            one, two = ([node.name for node in graph.nodes] for graph in graphs)
            return None if one == two else "the function then runs other ops"
        return problem

    def _captured(self, leaves: Sequence[Tensor]) -> CapturedGraph | str:
        """Capture with other arguments; return why it did not work."""
        try:
            return self.recording.captured(tree_unflatten(leaves, self.spec))
        except Exception as error:  # the model's own, of any type
            return f"{type(error).__name__}: {_reason(error)}"

    def _named(self, groups: Sequence[tuple[Axis, ...]]) -> dict[str, tuple[Axis, ...]]:
        """Return the groups by the name of their symbol."""
        named: dict[str, tuple[Axis, ...]] = {}
        for group in groups:
            name, axis = group[0]
            base = "batch" if axis == 0 and "batch" not in named else f"{name.replace('.', '_')}_{axis}"
            named[base] = group
        return named


def search(recording: Recording, graph: CapturedGraph) -> Sizes:
    """Return ``graph``, captured at the sizes of the example, with symbols where sizes may change."""
    return Search(recording, graph).found()


def _reason(error: Exception) -> str:
    """Return the text of an error, without the advice to callers of ``capture``."""
    return str(error).partition(" Leave ")[0].removesuffix(".")


def _resized(leaf: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor of ``shape`` that repeats the elements of ``leaf``."""
    return wrap(
        np.resize(leaf.raw, shape) if leaf.raw.size else np.zeros(shape, leaf.raw.dtype), device="cpu"
    )


def _fits_any_shape(attrs: Mapping[str, Nested]) -> bool:
    """Whether no attr is an axis, a size or an index."""
    for name, value in attrs.items():
        if name == "axes" and value is None:
            continue
        if name in ("shape", "key", "sizes", "steps"):
            return value is None
        if isinstance(value, int) and not isinstance(value, bool):
            return False
        if isinstance(value, tuple | list | slice):
            return False
    return True


def _reduce_all(graph: CapturedGraph) -> None:
    """Remove the axes argument of reductions over all axes."""
    for node in graph.calls:
        axes = node.attrs.get("axes")
        first = node.args[0] if node.args else None
        rank = first.aval.ndim if isinstance(first, Ref) else None
        if axes is not None and not node.attrs.get("keepdims") and rank == len(axes):
            node.attrs = {**node.attrs, "axes": None}


def _essence(graph: CapturedGraph) -> list[object]:
    """Return what a graph computes, without shapes, in comparable form."""
    positions = {node: number for number, node in enumerate(graph.nodes)}

    def shown(value: object) -> str:
        return f"%{positions[value.node]}.{value.index}" if hasattr(value, "node") else repr(value)  # type: ignore[attr-defined]

    return [
        (node.kind, node.name, [shown(a) for a in node.args], [(k, repr(v)) for k, v in node.attrs.items()])
        for node in graph.nodes
    ] + [shown(ref) for ref in graph.outputs]


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Discard what the function prints and warns of when it runs again, also with sizes at which it fails."""
    discarded = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(discarded),
        contextlib.redirect_stderr(discarded),
    ):
        warnings.simplefilter("ignore")
        yield
