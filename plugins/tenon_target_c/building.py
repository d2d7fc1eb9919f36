"""Build a ``Program`` from a lowered graph: views, steps, and the memory of arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np

from tenon.extend import CapturedGraph, Node
from tenon_target_c import families  # noqa: F401 - its modules register emitters
from tenon_target_c.emitters import EMITTERS, emittable
from tenon_target_c.families import (  # noqa: F401
    classes,
    convolution,
    elementwise,
    indexing,
    integers,
    movement,
    pooling,
    products,
    recurrent,
    recurrent_gradients,
    reductions,
    rows,
    sampling,
    sorting,
)
from tenon_target_c.families.movement import as_view
from tenon_target_c.fusion import groups
from tenon_target_c.lowering import Lowering, drop_unused
from tenon_target_c.merging import fold_channels, merge_ends
from tenon_target_c.program import Place, Program
from tenon_target_c.scalars import condition, scalar_line
from tenon_target_c.values import View, buffer_of, reserve


def build(graph: CapturedGraph) -> Program:
    """Return the program of ``graph``; LoweringError lists all calls that cannot be written in C."""
    return program_of(prepared(graph))


def prepared(graph: CapturedGraph) -> CapturedGraph:
    """Return ``graph`` in calls that can be written in C, with factors of channels in the weights."""
    lowering = Lowering(graph)
    fold_channels(lowering)
    drop_unused(lowering.graph)
    return lowering.graph


def program_of(graph: CapturedGraph, changing: Mapping[Node, Set[Place]] | None = None) -> Program:
    """Return the program of a graph that is ``prepared``; ``changing`` numbers are arguments of its steps."""
    program = Program(graph, graph.signature.inputs, changing=changing or {})
    program.merged = merge_ends(graph)
    _emit(program)
    program.conditions = [condition(program, guard) for guard in graph.guards]
    _place_results(program)
    return program


def _emit(program: Program) -> None:
    """Emit all nodes in order; groups and merged calls at the position of their last call."""
    graph = program.graph
    last = {calls[-1]: first for first, calls in program.merged.items()}
    inside = {call for calls in program.merged.values() for call in calls}
    written = {w.target for w in graph.writes}
    loops = groups(graph, inside)
    grouped = {n for nodes in loops.values() for n in nodes}
    for node in graph.nodes:
        if node.kind == "input":
            program.views[node.out()] = _input(program, node, node in written)
        elif node.kind == "constant":
            program.views[node.out()] = program.weight(np.asarray(node.value))
        elif node.kind == "scalar":
            scalar_line(program, node)
        elif node in last:
            EMITTERS[last[node].name](program, last[node])
        elif node in inside or (node.op.view and as_view(program, node)):
            continue
        elif node in loops:
            elementwise.emit_group(program, loops[node])
        elif node in grouped:
            continue
        elif emittable(node):
            EMITTERS[node.name](program, node)
        else:
            for index in range(len(node.avals)):
                program.new(node, index)
            assert not any(a.size for a in node.avals), node


def _input(program: Program, node: Node, written: bool) -> View:
    if node.value is None:
        view = reserve("input", tuple(node.avals[0].shape), node.avals[0].dtype)
        view.buffer.offset = program.arguments.index(node.label)
        return view
    array = np.asarray(node.value.detach().numpy())
    return buffer_of("state", array) if written else program.weight(array)


def _place_results(program: Program) -> None:
    """Place outputs in the caller's memory, and append the writes of state."""
    graph = program.graph
    for position, ref in enumerate(graph.outputs):
        view = program.views[ref]
        if view.buffer.kind == "arena" and view.fills_buffer:
            view.buffer.kind, view.buffer.offset = "output", position
            continue
        target = reserve("output", view.shape, view.dtype)
        target.buffer.offset = position
        program.copy(view, target)
    values = []
    for write in graph.writes:
        view = program.views[write.value]
        values.append(program.copy(view) if view.buffer.kind == "state" and view.size else view)
    for write, value in zip(graph.writes, values, strict=True):
        target = program.views[write.target.out()]
        if value.buffer is not target.buffer:
            program.copy(value, target)
