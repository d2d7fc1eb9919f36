"""``record``: run a function once and return its graph, bound to the memory that it used.

A ``Recording`` holds the graph, the sources of its inputs (arguments, parameters, state), the structure of
the returned values, the gradients set on leaves, and the ``guards`` under which it is valid.

``leaves`` are the leaves of the call's arguments: all that is in the nested tuples, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tenon.engine.types import Array, Nested
from tenon.errors import CaptureError, GraphError
from tenon.graph.frames import Frames
from tenon.graph.graph import Graph, Node, Ref, Write
from tenon.graph.guarded_values import GuardedValues
from tenon.graph.guards import Guard, ModulesGuard, attributes_guard
from tenon.graph.optimizer_options import state_guard
from tenon.graph.partition import Backward, differentiate_outputs, partition
from tenon.graph.recorded_hooks import hooks_of
from tenon.graph.recorder import Recorder
from tenon.kernels.backend import backend_named
from tenon.tensors.generation import Generation, generation
from tenon.tensors.pytree import TreeSpec, tree_flatten
from tenon.tensors.tensor import Tensor

#: The leaves of a call's arguments: tensors and other objects.
Leaves: TypeAlias = Sequence[Any]
#: Finds a tensor: an argument among the leaves, or one from outside.
FindTensor: TypeAlias = Callable[[Leaves], Tensor]


@dataclass(slots=True)
class ExternalTensor:
    """An external tensor whose memory the graph reads, or writes in place."""

    node: Node
    tensor: Tensor


@dataclass(slots=True)
class BufferedInput:
    """An input whose array differs from run to run, so that it is copied into a buffer."""

    node: Node
    #: ``get(leaves)`` returns the array.
    get: Callable[[Leaves], Array]
    #: Its index among the leaves if it is an argument, else None.
    position: int | None = None


@dataclass(slots=True)
class FinalGradient:
    """The value of ``leaf.grad`` after the call."""

    leaf: FindTensor
    #: Which output of the graph it is; None if it is ``external``.
    output: int | None
    #: A tensor that the function did not compute, or None for no gradient.
    external: Tensor | None = None
    #: The leaf itself, unless it is an argument.
    tensor: Tensor | None = None
    #: Whether a guard ensures that the leaf has no gradient before the call.
    without: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A returned value: output number ``index`` of the graph."""

    index: int
    #: Whether a gradient flows through it.
    tracked: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """A returned value: the argument at ``position`` among the leaves."""

    position: int


@dataclass(slots=True)
class Recording:
    """One recorded call of a function."""

    graph: Graph
    #: Guards on variables, attributes and items that Python code read.
    places: GuardedValues
    #: Parameters, buffers, optimizer state and other tensors that are not arguments.
    outside: list[ExternalTensor] = field(default_factory=list)
    #: Arguments, and gradients from before the call.
    fed: list[BufferedInput] = field(default_factory=list)
    #: The gradients that the function set on leaves.
    gradients: list[FinalGradient] = field(default_factory=list)
    #: All conditions under which the recording is valid.
    guards: list[Guard] = field(default_factory=list)
    #: Python's side effects to repeat after every run.
    after: list[Callable[[], None]] = field(default_factory=list)
    #: Groups of equal step counts, which every run increments by one.
    counters: list[list[Tensor]] = field(default_factory=list)
    #: The leaves of the returned value: an ``Output``, an ``Argument``, a tensor from outside, or any object.
    returned: list[Any] = field(default_factory=list)
    #: The structure of the returned value.
    spec: TreeSpec | None = None
    #: Arguments and gradients that the function changed in place: their inputs, and how to find the tensor.
    changed: list[tuple[Node, FindTensor]] = field(default_factory=list)
    #: Positions of the arguments that are tensors among the leaves.
    arguments: list[int] = field(default_factory=list)
    #: Those that the function changed in place, which may not overlap with another argument.
    changed_arguments: list[int] = field(default_factory=list)
    #: Why to discard the recording and record the next call instead; None to keep it.
    discard_reason: str | None = None
    #: Whether a run may stop in the middle: see ``SideEffects.expect``.
    expects: bool = False
    #: Hooks whose Python side effects no replay repeats.
    hooks: list[str] = field(default_factory=list)
    #: The backward graph, if gradients flow through outputs.
    backward: Backward | None = None


def record(
    function: Callable[..., Nested], args: tuple[Nested, ...], kwargs: dict[str, Nested], strict: bool = False
) -> tuple[Nested, Recording | CaptureError]:
    """Call ``function``; return its result, and the recording or the reason why there is none.

    With ``strict`` that reason, a CaptureError, is raised where the function does what cannot be recorded.
    """
    leaves, _ = tree_flatten((args, kwargs))
    recorder = Recorder(backend_named("cpu"), strict)
    before = _generation()
    try:
        recorder.start()
        nodes: dict[int, Node] = {}
        with recorder.refusing():
            for position, leaf in enumerate(leaves):
                if isinstance(leaf, Tensor):
                    nodes[position] = recorder.argument(leaf, f"argument{position}")
        with Frames() as frames:
            result = function(*args, **kwargs)
        if recorder.failure is None:
            with recorder.refusing():
                recording = _finish(recorder, leaves, nodes, result, GuardedValues(function, frames))
                if before != _generation():
                    recording.discard_reason = (
                        recording.discard_reason or "modules or hooks changed during the call"
                    )
                return result, recording
    finally:
        try:
            recorder.stop()
        finally:
            recorder.stop()  # the first may have been interrupted
    assert recorder.failure is not None
    return result, recorder.failure


def _generation() -> tuple[int, int]:
    return generation(), Generation.structure


def _finish(
    recorder: Recorder, leaves: Leaves, nodes: dict[int, Node], result: Nested, places: GuardedValues
) -> Recording:
    """Return the recording of a call that has returned ``result``."""
    for problem in filter(None, (check() for check in recorder.final_checks)):
        raise CaptureError(f"{problem}. Bring both into the compiled function, or leave both out of it.")
    known = {id(m) for root in recorder.roots.values() for m in root.modules()}
    for module in places.modules:
        if id(module) not in known:
            recorder.roots[id(module)] = module
            known |= {id(m) for m in module.modules()}
    recording = Recording(recorder.graph, places, after=recorder.after, counters=recorder.counters())
    recording.discard_reason, recording.expects = recorder.discard_reason, recorder.expects
    recording.guards = recorder.guards + [guard for guard in recorder.value_guards if guard.check()]
    recording.arguments = list(nodes)
    _refuse_overlaps(recorder, nodes, leaves)
    for position, node in nodes.items():
        recording.fed.append(BufferedInput(node, lambda given, i=position: given[i].raw, position))  # type: ignore[misc]
    tracked = _returned(recorder, recording, leaves, result)
    _gradients(recorder, recording, leaves)
    _writes(recorder, recording, nodes)
    joint = differentiate_outputs(recorder, tracked, leaves) if tracked else None
    _bind_outside(recorder, recording, leaves)
    _module_guards(recorder, recording, {id(leaf) for leaf in leaves})
    recording.guards += [state_guard(optimizer) for optimizer in recorder.optimizers.values()]
    recording.guards.append(places)
    try:
        recorder.graph.verify()
    except GraphError as error:
        raise CaptureError(f"the recorded graph is not consistent; please report this: {error}") from error
    if joint is not None:
        recording.backward = partition(recorder.graph, *joint)
    return recording


def _refuse_overlaps(recorder: Recorder, nodes: dict[int, Node], leaves: Leaves) -> None:
    """Raise CaptureError if an argument is changed whose memory another argument shares."""
    written = {s.node for s in recorder.values.storages if s.written}
    for position, node in nodes.items():
        if node in written and overlapping(leaves, position, list(nodes)):
            raise CaptureError(
                f"argument {position} is changed in place and shares memory with another argument. Pass the "
                "whole tensor once, and make the views inside the compiled function."
            )


def overlapping(leaves: Leaves, position: int, positions: list[int]) -> bool:
    """Whether another argument shares memory with the one at ``position``."""
    raw = leaves[position].raw
    return any(
        leaves[other] is not leaves[position] and np.may_share_memory(leaves[other].raw, raw)
        for other in positions
        if other != position
    )


def _bind_outside(recorder: Recorder, recording: Recording, leaves: Leaves) -> None:
    """Find the owners of external memory. Gradients from before the call are copied in, like arguments."""
    written = {s.node for s in recorder.values.storages if s.written}
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    owners: dict[int, Tensor] = {}
    gradients: dict[int, Tensor] = {}
    for optimizer in recorder.optimizers.values():
        for group in optimizer.param_groups:
            for p in group["params"]:
                recorder.leaves.setdefault(id(p), p)
                for value in optimizer.state.get(p, {}).values():
                    if isinstance(value, Tensor):
                        owners[id(value.raw)] = value
    for root in recorder.roots.values():
        for tensor in (*root.parameters(), *root.buffers()):
            owners[id(tensor.raw)] = tensor
    for leaf in recorder.leaves.values():
        owners[id(leaf.raw)] = leaf
    for leaf, grad in recorder.initial_gradients.values():
        if grad is not None:
            gradients[id(grad.raw)] = leaf
    for key, (node, tensor) in recorder.outside.items():
        if key in gradients:
            leaf = gradients[key]
            find = _leaf_at(positions[id(leaf)]) if id(leaf) in positions else _always(leaf)
            node.label, node.value = "gradient", None  # it differs from run to run, so no reference is stored
            recording.fed.append(BufferedInput(node, lambda given, find=find: find(given)._grad.raw))  # type: ignore[misc]
            if node in written:
                recording.changed.append((node, lambda given, find=find: find(given)._grad))  # type: ignore[misc]
        else:
            recording.outside.append(ExternalTensor(node, owners.get(key, tensor)))
    _name_outside(recorder, recording)
    mutable = [o for o in recording.outside if o.node in written]
    for one in mutable:
        for other in recording.outside:
            a, b = one.tensor.raw, other.tensor.raw
            if other is not one and np.may_share_memory(a, b) and np.shares_memory(a, b):
                raise CaptureError(
                    f"two tensors from outside share memory ({one.node.label or one.node!r} and "
                    f"{other.node.label or other.node!r}) and one of them is written. Give them memory of "
                    "their own, or make the view inside the compiled function."
                )


def _name_outside(recorder: Recorder, recording: Recording) -> None:
    """Label the inputs by the names of parameters, buffers and state."""
    names: dict[int, str] = {}
    for root in recorder.roots.values():
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            names.setdefault(id(tensor), name)
    for optimizer in recorder.optimizers.values():
        for p, state in optimizer.state.items():
            for name, value in state.items():
                names.setdefault(id(value), f"{names.get(id(p), 'parameter')}.{name}")
    for each in recording.outside:
        each.node.label = each.node.label or names.get(id(each.tensor), "")


def _returned(recorder: Recorder, recording: Recording, leaves: Leaves, result: Nested) -> list[Tensor]:
    """Describe the returned structure, and return the tensors in it through which a gradient may flow."""
    flat, recording.spec = tree_flatten(result)
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    outside = {id(tensor) for _, tensor in recorder.outside.values()} | set(recorder.leaves)
    tracked = []
    known: dict[int, Output] = {}
    for leaf in flat:
        if id(leaf) in known:
            recording.returned.append(known[id(leaf)])
        elif not isinstance(leaf, Tensor):
            recording.returned.append(leaf)
        elif id(leaf) in positions:
            recording.returned.append(Argument(positions[id(leaf)]))
        elif id(leaf) in outside:
            recording.returned.append(leaf)
        else:
            if leaf._track and leaf._node is None:
                raise CaptureError(
                    "a new leaf that requires grad is returned. Call requires_grad_() on it after."
                )
            alive = leaf._track and _alive(leaf)
            known[id(leaf)] = Output(_output(recorder, recorder.ref(leaf)), alive)
            recording.returned.append(known[id(leaf)])
            if alive:
                tracked.append(leaf)
    return tracked


def _output(recorder: Recorder, ref: Ref) -> int:
    """Add an output to the graph; return its index."""
    recorder.graph.outputs.append(ref)
    return len(recorder.graph.outputs) - 1


def _alive(tensor: Tensor) -> bool:
    """Whether ``backward`` can still run from ``tensor``: no saved value of its history is freed."""
    seen: set[int] = set()
    stack: list[Any] = [tensor._node]  # nodes, and leaves, which have no edges
    while stack:
        node = stack.pop()
        if id(node) in seen or not hasattr(node, "edges"):
            continue
        seen.add(id(node))
        if getattr(node, "args", ()) is None:
            return False
        stack += [edge[0] for edge in node.edges if edge is not None]
    return True


def _gradients(recorder: Recorder, recording: Recording, leaves: Leaves) -> None:
    """Record the gradients that the function set on leaves."""
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    recording.guards.append(recorder.initial_gradients_guard(set(positions)))
    for key, leaf in recorder.assigned_leaves.items():
        grad = leaf._grad
        if recorder.created_inside(leaf):
            continue
        find = _leaf_at(positions[key]) if key in positions else _always(leaf)
        own = None if key in positions else leaf
        without = own is not None and recorder.initial_gradients.get(key, (leaf, leaf))[1] is None
        entry = None if grad is None else recorder.values.find(grad.raw)
        if entry is not None and entry.storage.node is None:
            recording.gradients.append(
                FinalGradient(find, _output(recorder, recorder.values.read(entry)), None, own, without)
            )
        elif grad is not None and id(grad) in positions:
            raise CaptureError("an argument becomes the gradient of a parameter. Assign it after the call.")
        else:
            recording.gradients.append(FinalGradient(find, None, grad, own))


def _leaf_at(position: int) -> FindTensor:
    """Return a function that finds an argument."""
    return lambda leaves: leaves[position]


def _always(leaf: Tensor) -> FindTensor:
    """Return a function that returns ``leaf``."""
    return lambda leaves: leaf


def _writes(recorder: Recorder, recording: Recording, nodes: dict[int, Node]) -> None:
    """Record the writes into external memory, and the arguments that were changed."""
    arguments = {node: position for position, node in nodes.items()}
    for storage in recorder.values.storages:
        node = storage.node
        if storage.written and node is not None and node.kind == "input":
            recorder.graph.writes.append(Write(node, storage.ref))
            if node in arguments:
                recording.changed.append((node, _leaf_at(arguments[node])))
                recording.changed_arguments.append(arguments[node])


def _module_guards(recorder: Recorder, recording: Recording, arguments: set[int]) -> None:
    """Add the guards on modules, hooks and ``requires_grad``, other than of arguments (by id)."""
    modules = [m for root in recorder.roots.values() for m in root.modules()]
    leaves = {id(leaf): leaf for leaf in recorder.leaves.values() if not recorder.created_inside(leaf)}
    recording.hooks = hooks_of(modules, recorder.optimizers.values(), leaves.values())
    own = [leaf for leaf in leaves.values() if id(leaf) not in arguments]
    recording.guards.append(ModulesGuard(recorder.roots.values(), own, recording.places.mentioned))
    tracked = ((t, "_track", t._track) for t in own)
    recording.guards.append(attributes_guard("requires_grad of a parameter", tracked))
