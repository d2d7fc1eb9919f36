"""Compare two recordings of one function: whether they are the same program."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from types import FunctionType, MethodType

import numpy as np

from tenon.device import Device
from tenon.engine.aval import aval_of
from tenon.engine.types import Array
from tenon.engine.value import Value
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recording import Argument, Output, Recording
from tenon.random.draws import Draw
from tenon.tensors.size import Size


def difference(a: Recording, b: Recording) -> str | None:
    """Describe the first difference between two recordings; None if they are the same program."""
    if (a.backward is None) != (b.backward is None):
        return "one of them returns tensors that need a gradient"
    if a.backward is not None and b.backward is not None:
        difference = _graph_difference(a.backward.graph, b.backward.graph, {}, {})
        if difference is not None:
            return difference
    positions: dict[Node, int] = {}
    others: dict[Node, int] = {}
    difference = _graph_difference(a.graph, b.graph, positions, others)
    if difference is not None:
        return difference
    targets = [o.tensor for o in a.outside], [o.tensor for o in b.outside]
    if [id(t) for t in targets[0]] != [id(t) for t in targets[1]]:
        return "tensors from outside the function differ from call to call; pass them as arguments"
    for one, other in zip(a.returned, b.returned, strict=False):
        if not _same_object(one, other):
            return _returned_difference(other)
    if _side_effects(a) != _side_effects(b):
        return "a schedule or the optimizer whose options are read"
    return None


def fingerprint(recording: Recording) -> bytes:
    """Return a digest that is equal for two recordings of the same program.

    It is computed before passes change the graph. It is a digest because the text of a large graph and its
    constants would need memory as long as the program exists.
    """
    facts: list[object] = [[id(o.tensor) for o in recording.outside]]
    facts += [value if isinstance(value, Output | Argument) else id(value) for value in recording.returned]
    facts += [_side_effects(recording)]
    for graph in (
        [recording.graph] if recording.backward is None else [recording.graph, recording.backward.graph]
    ):
        positions = {node: i for i, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            args = [_comparable_argument(a, positions) for a in node.args]
            kind = node.kind if node.kind != "constant" else hashlib.blake2b(_bytes(node.value).data).digest()
            facts.append((kind, node.name, node.function or str(node.op), node.avals, args, _attrs(node)))
        facts += [[_comparable_argument(r, positions) for r in graph.outputs]]
        facts += [
            (_comparable_argument(w.target.out(), positions), _comparable_argument(w.value, positions))
            for w in graph.writes
        ]
    return hashlib.blake2b(repr(facts).encode()).digest()


def _side_effects(recording: Recording) -> list[object]:
    """Return the sources of scalars, and the counters and side effects after a run, in comparable form."""
    readings = [n.value.key for n in recording.graph.nodes if n.function == "input"]
    counted = [[id(tensor) for tensor in tensors] for tensors in recording.counters]
    return [readings, counted, [_comparable(effect) for effect in recording.after]]


def _graph_difference(a: Graph, b: Graph, positions: dict[Node, int], others: dict[Node, int]) -> str | None:
    for i, (m, n) in enumerate(zip(a.nodes, b.nodes, strict=False)):
        positions[m], others[n] = i, i
        difference = _node_difference(m, n, positions, others)
        if difference is not None:
            return f"{difference} in {n.name} at {n.where or 'an unknown place'} (was {m.where or 'unknown'})"
    if len(a.nodes) != len(b.nodes):
        return f"{len(a.nodes)} operations, then {len(b.nodes)}"
    return None


def _node_difference(m: Node, n: Node, positions: dict[Node, int], others: dict[Node, int]) -> str | None:
    if m.kind != n.kind or m.op != n.op or m.function != n.function:
        return f"another operation ({m.name} before)"
    if m.avals != n.avals:
        return f"another shape or dtype ({m.avals} before, {n.avals} now)"
    if m.kind == "constant" and not np.array_equal(_bytes(m.value), _bytes(n.value)):
        return (
            "the values of a tensor created from Python data differ from call to call; pass it as an argument"
        )
    if [_comparable_argument(x, positions) for x in m.args] != [
        _comparable_argument(x, others) for x in n.args
    ]:
        return "an operation has other arguments (a Python number that changes from call to call?)"
    if _attrs(m) != _attrs(n):
        return "an operation has other options (a rate, bound or seed that changes from call to call?)"
    return None


def _comparable_argument(value: object, positions: Mapping[Node, int]) -> object:
    """Return an argument in comparable form: a reference by the position of its node."""
    if isinstance(value, Ref):
        return (positions.get(value.node), value.index)
    return repr(value) if isinstance(value, float) else value


def _same_object(a: object, b: object) -> bool:
    """Whether both are one object, or equal plain values; ``==`` of others may compare tensors in them."""
    return a is b or (a.__class__ is b.__class__ and isinstance(a, _COMPARED) and _repr(a) == _repr(b))


def _repr(value: object) -> object:
    return repr(value) if isinstance(value, float) else value  # NaN equals itself here


def _returned_difference(value: object) -> str:
    if isinstance(value, _COMPARED):
        return "the returned value (a Python number or object changed)"
    return (
        f"the returned value contains a new {type(value).__name__} in every call. Return tensors in tuples,"
        " lists, dictionaries or named tuples, and create other objects from them after the call"
    )


def _attrs(node: Node) -> str:
    attrs = {name: _comparable(value) if node.effect else value for name, value in node.attrs.items()}
    return repr(sorted(attrs.items(), key=lambda pair: pair[0]))


def _comparable(value: object) -> object:
    """Return ``value`` in comparable form: a function as its code and the values that it captured."""
    if isinstance(value, Value):
        return ("tensor", aval_of(value.raw))
    if isinstance(value, np.ndarray):
        return ("array", aval_of(value))
    if isinstance(value, functools.partial):
        return (_comparable(value.func), _comparable(value.args), _comparable(value.keywords))
    if isinstance(value, Draw):
        return _comparable([*vars(value).values()])
    if isinstance(value, MethodType):
        return (_comparable(value.__func__), id(value.__self__))
    if isinstance(value, FunctionType):
        closure = [cell.cell_contents for cell in value.__closure__ or ()]
        return (id(value.__code__), *map(_comparable, closure), _comparable(value.__defaults__))
    if isinstance(value, dict):
        return [(name, _comparable(each)) for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]
    return value if isinstance(value, _PLAIN) else id(value)


_PLAIN = (bool, int, float, complex, str, type(None), np.dtype, type)
#: Types of values that every call may create anew.
_COMPARED = (*_PLAIN, bytes, range, np.generic, Size, Device, Output, Argument)


def _bytes(array: Array) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)
