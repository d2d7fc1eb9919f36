"""``record``: run a function once and return its graph, bound to the memory that it used.

A ``Recording`` holds the graph, the sources of its inputs (arguments, parameters, state), the structure of
the returned values, the gradients set on leaves, and the ``guards`` under which all this is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon.engine.value import Value
from tenon.errors import CaptureError, GraphError
from tenon.graph.frames import Frames
from tenon.graph.graph import Graph, Node, Ref, Write
from tenon.graph.guarded_values import GuardedValues
from tenon.graph.guards import Guard, ModulesGuard, are
from tenon.graph.optimizer_options import state_guard
from tenon.graph.partition import Backward, differentiate_outputs, partition
from tenon.graph.recorded_hooks import hooks_of
from tenon.graph.recorder import Recorder
from tenon.kernels.backend import backend_named
from tenon.tensors.generation import Generation, generation
from tenon.tensors.pytree import TreeSpec, tree_flatten


@dataclass(slots=True)
class Outside:
    """Memory that the graph reads or writes in place: the array of ``tensor``, looked up at every run."""

    node: Node
    tensor: Any


@dataclass(slots=True)
class Fed:
    """An input whose array differs from run to run: copied into a buffer. ``get(leaves)`` finds it."""

    node: Node
    get: Callable[[list[Any]], Any]
    #: Its place among the leaves, if it is an argument.
    position: int | None = None


@dataclass(slots=True)
class LeftGradient:
    """What ``leaf.grad`` is afterwards: output number ``output`` of the graph, or ``held``."""

    leaf: Callable[[list[Any]], Any]
    output: int | None
    #: A tensor from outside, or None.
    held: Any = None
    #: The leaf itself, unless it is an argument.
    tensor: Any = None
    #: Whether a guard says that it has no gradient before.
    without: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """The function returned output number ``index`` of the graph; ``tracked``: gradients flow through it."""

    index: int
    tracked: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """The function returned its own argument number ``position``."""

    position: int


@dataclass(slots=True)
class Recording:
    """One recorded call."""

    graph: Graph
    #: Guards on variables, attributes and items that Python code read.
    places: GuardedValues
    outside: list[Outside] = field(default_factory=list)
    fed: list[Fed] = field(default_factory=list)
    gradients: list[LeftGradient] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    counters: list[list[Any]] = field(default_factory=list)
    #: The returned nest: leaves are an ``Output``, an ``Argument``, a tensor from outside, or plain objects.
    returned: list[Any] = field(default_factory=list)
    spec: TreeSpec | None = None
    #: Arguments and gradients that the function changed in place: their inputs, and how to find the tensor.
    changed: list[tuple[Node, Callable[[list[Any]], Any]]] = field(default_factory=list)
    #: Positions of the arguments among the leaves: those that overlap in memory must be what they were.
    arguments: list[int] = field(default_factory=list)
    changed_arguments: list[int] = field(default_factory=list)
    settling: str | None = None
    #: Whether a run may stop in the middle, for values that the program does not hold for.
    expects: bool = False
    #: Hooks whose Python side effects no replay repeats.
    hooks: list[str] = field(default_factory=list)
    #: The second half, where outputs are tracked.
    backward: Backward | None = None


def record(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], strict: bool = False
) -> tuple[Any, Recording | CaptureError]:
    """Call ``function``; returns its result and the recording, or why there is none."""
    leaves, _ = tree_flatten((args, kwargs))
    recorder = Recorder(backend_named("cpu"), strict)
    before = _generation()
    try:
        recorder.start()
        nodes: dict[int, Node] = {}
        with recorder.refusing():
            for position, leaf in enumerate(leaves):
                if isinstance(leaf, Value):
                    nodes[position] = recorder.argument(leaf, f"argument{position}")
        with Frames() as frames:
            result = function(*args, **kwargs)
        if recorder.failure is None:
            with recorder.refusing():
                made = _close(recorder, leaves, nodes, result, GuardedValues(function, frames))
                if before != _generation():
                    made.settling = made.settling or "modules or hooks changed during the call"
                return result, made
    finally:
        try:
            recorder.stop()
        finally:
            recorder.stop()  # the first may have been interrupted
    assert recorder.failure is not None
    return result, recorder.failure


def _generation() -> tuple[int, int]:
    return generation(), Generation.structure


def _close(
    recorder: Recorder, leaves: list[Any], nodes: dict[int, Node], result: Any, places: GuardedValues
) -> Recording:
    for problem in filter(None, (ask() for ask in recorder.questions)):
        raise CaptureError(f"{problem}. Bring both into the compiled function, or leave both out of it.")
    known = {id(m) for root in recorder.roots.values() for m in root.modules()}
    for module in places.modules:
        if id(module) not in known:
            recorder.roots[id(module)] = module
            known |= {id(m) for m in module.modules()}
    made = Recording(recorder.graph, places, after=recorder.after, counters=recorder.counters())
    made.settling, made.expects = recorder.settling, recorder.expects
    made.guards = recorder.guards + [guard for guard in recorder.value_guards if guard.check()]
    made.arguments = list(nodes)
    _refuse_overlaps(recorder, nodes, leaves)
    for position, node in nodes.items():
        made.fed.append(Fed(node, lambda given, i=position: given[i].raw, position))  # type: ignore[misc]
    tracked = _returned(recorder, made, leaves, result)
    _gradients(recorder, made, leaves)
    _writes(recorder, made, nodes)
    joint = differentiate_outputs(recorder, tracked, leaves) if tracked else None
    _bind_outside(recorder, made, leaves)
    _module_guards(recorder, made, {id(leaf) for leaf in leaves})
    made.guards += [state_guard(optimizer) for optimizer in recorder.optimizers.values()]
    made.guards.append(places)
    try:
        recorder.graph.verify()
    except GraphError as error:
        raise CaptureError(
            f"the recorded graph does not hold together; please report this: {error}"
        ) from error
    if joint is not None:
        made.backward = partition(recorder.graph, *joint)
    return made


def _refuse_overlaps(recorder: Recorder, nodes: dict[int, Node], leaves: list[Any]) -> None:
    """CaptureError if an argument is changed whose memory another argument shows too."""
    written = {s.node for s in recorder.values.storages if s.written}
    for position, node in nodes.items():
        if node in written and overlapping(leaves, position, list(nodes)):
            raise CaptureError(
                f"argument {position} is changed in place and shares memory with another argument. Pass the "
                "whole tensor once, and make the views inside the compiled function."
            )


def overlapping(leaves: list[Any], position: int, positions: list[int]) -> bool:
    """Whether another argument shows memory of the one at ``position``."""
    raw = leaves[position].raw
    return any(
        leaves[other] is not leaves[position] and np.may_share_memory(leaves[other].raw, raw)
        for other in positions
        if other != position
    )


def _bind_outside(recorder: Recorder, made: Recording, leaves: list[Any]) -> None:
    """Find the owners of external memory; gradients from outside are copied in like arguments."""
    written = {s.node for s in recorder.values.storages if s.written}
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Value)}
    owners: dict[int, Any] = {}
    gradients: dict[int, Any] = {}
    for optimizer in recorder.optimizers.values():
        for group in optimizer.param_groups:
            for p in group["params"]:
                recorder.leaves.setdefault(id(p), p)
                for value in optimizer.state.get(p, {}).values():
                    if isinstance(value, Value):
                        owners[id(value.raw)] = value
    for root in recorder.roots.values():
        for tensor in (*root.parameters(), *root.buffers()):
            owners[id(tensor.raw)] = tensor
    for leaf in recorder.leaves.values():
        owners[id(leaf.raw)] = leaf
    for leaf, grad in recorder.found.values():
        if grad is not None:
            gradients[id(grad.raw)] = leaf
    for key, (node, tensor) in recorder.outside.items():
        if key in gradients:
            leaf = gradients[key]
            find = _leaf_at(positions[id(leaf)]) if id(leaf) in positions else _always(leaf)
            node.label, node.value = "gradient", None  # another at every run: this one is let go
            made.fed.append(Fed(node, lambda given, find=find: find(given)._grad.raw))  # type: ignore[misc]
            if node in written:
                made.changed.append((node, lambda given, find=find: find(given)._grad))  # type: ignore[misc]
        else:
            made.outside.append(Outside(node, owners.get(key, tensor)))
    _name_outside(recorder, made)
    mutable = [o for o in made.outside if o.node in written]
    for one in mutable:
        for other in made.outside:
            a, b = one.tensor.raw, other.tensor.raw
            if other is not one and np.may_share_memory(a, b) and np.shares_memory(a, b):
                raise CaptureError(
                    f"two tensors from outside share memory ({one.node.label or one.node!r} and "
                    f"{other.node.label or other.node!r}) and one of them is written. Give them memory of "
                    "their own, or make the view inside the compiled function."
                )


def _name_outside(recorder: Recorder, made: Recording) -> None:
    names: dict[int, str] = {}
    for root in recorder.roots.values():
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            names.setdefault(id(tensor), name)
    for optimizer in recorder.optimizers.values():
        for p, held in optimizer.state.items():
            for name, value in held.items():
                names.setdefault(id(value), f"{names.get(id(p), 'parameter')}.{name}")
    for each in made.outside:
        each.node.label = each.node.label or names.get(id(each.tensor), "")


def _returned(recorder: Recorder, made: Recording, leaves: list[Any], result: Any) -> list[Any]:
    """Describe the returned structure, and collect the tensors through which a gradient may still flow."""
    flat, made.spec = tree_flatten(result)
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Value)}
    outside = {id(tensor) for _, tensor in recorder.outside.values()} | set(recorder.leaves)
    tracked = []
    known: dict[int, Output] = {}
    for leaf in flat:
        if id(leaf) in known:
            made.returned.append(known[id(leaf)])
        elif not isinstance(leaf, Value):
            made.returned.append(leaf)
        elif id(leaf) in positions:
            made.returned.append(Argument(positions[id(leaf)]))
        elif id(leaf) in outside:
            made.returned.append(leaf)
        else:
            if leaf._track and leaf._node is None:
                raise CaptureError(
                    "a new leaf that requires grad is returned. Call requires_grad_() on it after."
                )
            alive = leaf._track and _alive(leaf)
            known[id(leaf)] = Output(_output(recorder, recorder.ref(leaf)), alive)
            made.returned.append(known[id(leaf)])
            if alive:
                tracked.append(leaf)
    return tracked


def _output(recorder: Recorder, ref: Ref) -> int:
    recorder.graph.outputs.append(ref)
    return len(recorder.graph.outputs) - 1


def _alive(tensor: Any) -> bool:
    """Whether somebody could still call ``backward`` on ``tensor``: no saved value behind it is freed."""
    seen: set[int] = set()
    stack = [tensor._node]
    while stack:
        node = stack.pop()
        if id(node) in seen or not hasattr(node, "edges"):
            continue
        seen.add(id(node))
        if getattr(node, "args", ()) is None:
            return False
        stack += [edge[0] for edge in node.edges if edge is not None]
    return True


def _gradients(recorder: Recorder, made: Recording, leaves: list[Any]) -> None:
    """The gradients that the function set on leaves, as ``leaf.grad``."""
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, Value)}
    made.guards.append(recorder.gradients_found(set(positions)))
    for key, leaf in recorder.given.items():
        grad = leaf._grad
        if recorder.made_here(leaf):
            continue
        find = _leaf_at(positions[key]) if key in positions else _always(leaf)
        own = None if key in positions else leaf
        without = own is not None and recorder.found.get(key, (leaf, leaf))[1] is None
        entry = None if grad is None else recorder.values.find(grad.raw)
        if entry is not None and entry.storage.node is None:
            made.gradients.append(
                LeftGradient(find, _output(recorder, recorder.values.read(entry)), None, own, without)
            )
        elif grad is not None and id(grad) in positions:
            raise CaptureError("an argument becomes the gradient of a parameter. Assign it after the call.")
        else:
            made.gradients.append(LeftGradient(find, None, grad, own))


def _leaf_at(position: int) -> Callable[[list[Any]], Any]:
    return lambda leaves: leaves[position]


def _always(leaf: Any) -> Callable[[list[Any]], Any]:
    return lambda leaves: leaf


def _writes(recorder: Recorder, made: Recording, nodes: dict[int, Node]) -> None:
    arguments = {node: position for position, node in nodes.items()}
    for storage in recorder.values.storages:
        node = storage.node
        if storage.written and node is not None and node.kind == "input":
            recorder.graph.writes.append(Write(node, storage.ref))
            if node in arguments:
                made.changed.append((node, _leaf_at(arguments[node])))
                made.changed_arguments.append(arguments[node])


def _module_guards(recorder: Recorder, made: Recording, arguments: set[int]) -> None:
    modules = [m for root in recorder.roots.values() for m in root.modules()]
    leaves = {id(leaf): leaf for leaf in recorder.leaves.values() if not recorder.made_here(leaf)}
    made.hooks = hooks_of(modules, recorder.optimizers.values(), leaves.values())
    own = [leaf for leaf in leaves.values() if id(leaf) not in arguments]
    made.guards.append(ModulesGuard(recorder.roots.values(), own, made.places.mentioned))
    tracked = ((t, "_track", t._track) for t in own)
    made.guards.append(are("requires_grad of a parameter", tracked))
