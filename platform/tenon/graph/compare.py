"""Whether two recordings of one function are the same program."""

from __future__ import annotations

import functools
import hashlib
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from tenon.device import Device
from tenon.engine.aval import aval_of
from tenon.engine.value import Value
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recording import Argument, Output, Recording
from tenon.tensors.size import Size


def difference(a: Recording, b: Recording) -> str | None:
    """Describe the first difference between two recordings; None if they are the same program."""
    if (a.backward is None) != (b.backward is None):
        return "one of them returns tensors that need a gradient"
    if a.backward is not None and b.backward is not None:
        found = _graph_difference(a.backward.graph, b.backward.graph, {}, {})
        if found is not None:
            return found
    places: dict[Node, int] = {}
    others: dict[Node, int] = {}
    found = _graph_difference(a.graph, b.graph, places, others)
    if found is not None:
        return found
    targets = [o.tensor for o in a.outside], [o.tensor for o in b.outside]
    if [id(t) for t in targets[0]] != [id(t) for t in targets[1]]:
        return "tensors from outside the function are others at every call; pass them as arguments"
    for one, other in zip(a.returned, b.returned, strict=False):
        if not _same_object(one, other):
            return _about_returned(other)
    if _beside(a) != _beside(b):
        return "a schedule or the optimizer whose options are read"
    return None


def fingerprint(made: Recording) -> bytes:
    """Equal for two recordings of the same program; to be taken before passes change the graph. A digest: the
    text of a large graph and its constants would be kept for as long as the program."""
    found: list[Any] = [[id(o.tensor) for o in made.outside]]
    found += [value if isinstance(value, Output | Argument) else id(value) for value in made.returned]
    found += [_beside(made)]
    for graph in [made.graph] if made.backward is None else [made.graph, made.backward.graph]:
        places = {node: i for i, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            given = [_shown(a, places) for a in node.args]
            about = node.kind if node.kind != "constant" else hashlib.blake2b(_bytes(node.value)).digest()
            found.append((about, node.name, str(node.op), node.avals, given, _attrs(node)))
        found += [[_shown(r, places) for r in graph.outputs]]
        found += [(_shown(w.target.out(), places), _shown(w.value, places)) for w in graph.writes]
    return hashlib.blake2b(repr(found).encode()).digest()


def _beside(made: Recording) -> list[Any]:
    """Whose numbers are read before a run, and what is done after it."""
    readings = [n.value.key for n in made.graph.nodes if n.kind == "scalar" and n.op == "input"]
    counted = [[id(tensor) for tensor in tensors] for tensors in made.counters]
    return [readings, counted, [_comparable(effect) for effect in made.after]]


def _graph_difference(a: Graph, b: Graph, places: dict[Node, int], others: dict[Node, int]) -> str | None:
    for i, (m, n) in enumerate(zip(a.nodes, b.nodes, strict=False)):
        places[m], others[n] = i, i
        found = _node_difference(m, n, places, others)
        if found is not None:
            return f"{found} in {n.name} at {n.where or 'an unknown place'} (was {m.where or 'unknown'})"
    if len(a.nodes) != len(b.nodes):
        return f"{len(a.nodes)} operations, then {len(b.nodes)}"
    return None


def _node_difference(m: Node, n: Node, places: dict[Node, int], others: dict[Node, int]) -> str | None:
    if m.kind != n.kind or m.op != n.op:
        return f"another operation ({m.name} before)"
    if m.avals != n.avals:
        return f"another shape or dtype ({m.avals} before, {n.avals} now)"
    if m.kind == "constant" and not np.array_equal(_bytes(m.value), _bytes(n.value)):
        return "a tensor made from Python data has other values at every call; pass it as an argument"
    if [_shown(x, places) for x in m.args] != [_shown(x, others) for x in n.args]:
        return "an operation has other arguments (a Python number that changes from call to call?)"
    if _attrs(m) != _attrs(n):
        return "an operation has other options (a rate, bound or seed that changes from call to call?)"
    return None


def _shown(value: Any, places: dict[Node, int]) -> Any:
    if value.__class__ is Ref:
        return (places.get(value.node), value.index)
    return repr(value) if isinstance(value, float) else value


def _same_object(a: Any, b: Any) -> bool:
    """One object, or equal plain values: ``==`` of others would compare the values of tensors in them."""
    return a is b or (a.__class__ is b.__class__ and isinstance(a, _COMPARED) and _repr(a) == _repr(b))


def _repr(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value  # NaN equals itself here


def _about_returned(value: Any) -> str:
    if isinstance(value, _COMPARED):
        return "what is returned (a Python number or object changed)"
    return (
        f"what is returned holds another {type(value).__name__} at every call. Return tensors as they are, in"
        " tuples, lists, dictionaries or named tuples, and make other objects of them after the call"
    )


def _attrs(node: Node) -> str:
    known = {name: _comparable(value) if node.effect else value for name, value in node.attrs.items()}
    return repr(sorted(known.items(), key=lambda pair: pair[0]))


def _comparable(value: Any) -> Any:
    """What a callable will do, as far as two of them can be compared: its code and what it holds."""
    if isinstance(value, Value):
        return ("tensor", aval_of(value.raw))
    if isinstance(value, np.ndarray):
        return ("array", aval_of(value))
    if isinstance(value, functools.partial):
        return (_comparable(value.func), _comparable(value.args), _comparable(value.keywords))
    if isinstance(value, MethodType):
        return (_comparable(value.__func__), id(value.__self__))
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        return (id(value.__code__), *map(_comparable, held), _comparable(value.__defaults__))
    if isinstance(value, dict):
        return [(name, _comparable(each)) for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [_comparable(each) for each in value]
    return value if isinstance(value, _PLAIN) else id(value)


_PLAIN = (bool, int, float, complex, str, type(None), np.dtype, type)
#: Types of values that may be created afresh by every call.
_COMPARED = (*_PLAIN, bytes, range, np.generic, Size, Device, Output, Argument)


def _bytes(array: Any) -> Any:
    return np.ascontiguousarray(array).view(np.uint8)
