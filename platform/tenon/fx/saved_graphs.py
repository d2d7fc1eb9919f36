"""GraphModules in files: the graph as plain lists, which name functions of tenon and Python's operators only.

``tenon.serialize.modules`` calls ``state_of`` when a GraphModule is saved and ``restore`` when one is read.
Names in a file are looked up in tables, every name and path is checked, and nothing is run before the module
is called. A graph that calls the user's functions cannot be saved, as a file has no code for them.
"""

from __future__ import annotations

import builtins
import functools
import keyword
import math
import operator
import re
from collections.abc import Callable
from typing import Any, NoReturn

from tenon.compat.overriding import NAMESPACES
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import CheckpointError, UnsafeCheckpointError, UnsavableError
from tenon.functions.checks import _assert, _assert_async
from tenon.fx.arguments import Function, Named, Nested
from tenon.fx.codegen import CodeGen
from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.names import qualified_name
from tenon.fx.node import Node
from tenon.fx.operators import INPLACE_FORMATS, OPERATOR_FORMATS
from tenon.fx.root_arguments import _assert_is_none
from tenon.fx.tracer_base import assert_fn
from tenon.nn.module import Module
from tenon.ops.aten import Operator
from tenon.tensors import memory_formats
from tenon.tensors.tensor import Tensor

__all__ = ["KIND", "NAME", "holds", "restore", "state_of"]

KIND = GraphModule
#: Module and name of the class in files.
NAME = ("tenon.fx.graph_module", "GraphModule")
_OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
_BUILT_IN = ("abs", "bool", "float", "getattr", "int", "len", "max", "min", "round", "sum")
#: Functions that read files, or call what they are given.
_WITHHELD = frozenset(["from_file", "apply_", "map_", "map2_", "register_hook", "cond", "while_loop"])
_PLAIN = (type(None), bool, int, float, complex, str)
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_PATH = re.compile(r"(?!__)\w+(\.(?!__)\w+)*")


@functools.cache
def _functions(registered: int) -> dict[str, Function]:
    """Return the functions that a file may name; ``registered`` is how many of tenon's there are."""
    table: dict[str, Function] = {}
    for namespace, members in NAMESPACES.items():
        for name, member in members.items():
            if callable(member) and name not in _WITHHELD and not name.startswith("__"):
                table.setdefault(f"tenon{namespace[5:]}.{name}", member)
    python: tuple[Function, ...]
    python = (*OPERATOR_FORMATS, *INPLACE_FORMATS, operator.abs, operator.not_, operator.truth)
    for function in python:
        table[f"operator.{function.__name__}"] = function
    table |= {f"builtins.{name}": getattr(builtins, name) for name in _BUILT_IN}
    table |= {f"math.{name}": value for name, value in vars(math).items() if callable(value)}
    checks: tuple[Function, ...] = (_assert, _assert_async, _assert_is_none, assert_fn)
    return table | {f"tenon.{function.__name__}": function for function in checks}


def _table() -> dict[str, Function]:
    return _functions(sum(map(len, NAMESPACES.values())))


def holds(module: Module) -> bool:
    """Whether ``module`` is a GraphModule itself, not an instance of a class that a user derived from it."""
    return type(module).__mro__[1] is GraphModule


# Writing.


def state_of(module: GraphModule, where: str) -> Named:
    """Return the attributes of ``module`` for a file, with the graph as plain values.

    UnsavableError, naming the key path ``where``, if the graph calls a function or holds a value that a
    reader could not know.
    """
    state = dict(GraphModule.__getstate__(module))
    for name in ("meta", "_in_spec", "_out_spec", "_tracer_cls", "_tracer_extras"):
        state.pop(name, None)
    known = {id(function): name for name, function in _table().items()}
    positions: dict[Node, int] = {}
    nodes = []
    for index, node in enumerate(module.graph.nodes):
        place = f"{where}: node {node.name!r}"
        target = _written_target(node, known, place)
        arguments = [_written(value, positions, place) for value in (node.args, node.kwargs)]
        nodes.append([node.op, node.name, target, *arguments])
        positions[node] = index
    codegen = module.graph._codegen
    if type(codegen) is not CodeGen or codegen._body_transformer is not None:
        _refuse(where, f"its graph has a {type(codegen).__name__} of its own, or a transformer of code")
    return {**state, "_nodes": nodes, "_class_name": type(module).__name__}


def _refuse(where: str, reason: str) -> NoReturn:
    raise UnsavableError(
        f"cannot save {where}: {reason}, which no reader could know without running code. Save the state"
        " instead"
        " (state_dict()), and trace the program where it is loaded."
    )


def _written_target(node: Node, known: dict[int, str], place: str) -> object:
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, Operator):
        return ["aten", node.target.name, node.target.overload]
    name = known.get(id(node.target))
    if name is None:
        _refuse(place, f"it calls {qualified_name(node.target)}")
    return name


def _written(value: Nested, positions: dict[Node, int], place: str) -> object:
    """Return an argument as plain values: a list that begins with its kind, or the value itself."""
    if isinstance(value, Node):
        return ["node", positions[value]]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        _refuse(place, f"it has a {type(value).__name__} among its arguments")
    if isinstance(value, (tuple, list)):
        items = [_written(item, positions, place) for item in value]
        return ["tuple" if isinstance(value, tuple) else "list", items]
    if isinstance(value, dict):
        return [
            "dict",
            [[_written(k, positions, place), _written(v, positions, place)] for k, v in value.items()],
        ]
    if isinstance(value, slice):
        return ["slice", [_written(end, positions, place) for end in (value.start, value.stop, value.step)]]
    if value is ...:
        return ["ellipsis", None]
    if isinstance(value, (*_PLAIN, dtype, Device)):
        return value
    name = repr(value).removeprefix("torch.")
    if name in _FORMATS:
        return ["memory_format", name]
    return _refuse(place, f"it has a {type(value).__name__} among its arguments")


# Reading.


def restore(module: GraphModule, state: Named, source: str) -> None:
    """Set the attributes of ``module`` and generate its code, after checking the graph.

    CheckpointError for an invalid graph, UnsafeCheckpointError for unknown names.
    """
    nodes, name = state.pop("_nodes", None), state.pop("_class_name", None)
    if type(nodes) is not list or type(name) is not str or not name.isidentifier():
        raise CheckpointError("a GraphModule without a list of nodes and a class name")
    graph = Graph()
    restored: list[Node] = []
    _check_tree(nodes)
    for row in nodes:
        if type(row) is not list or len(row) != 5 or row[0] not in _OPS or type(row[1]) is not str:
            raise CheckpointError("a node of a graph is not a list of op, name, target, args and kwargs")
        restored.append(_read_node(graph, row, restored, source))
    module.__setstate__((state, graph, name))


def _check_tree(nodes: list[object]) -> None:
    """Raise CheckpointError if a list is in two places: lists that share members can stand for 2^n."""
    seen: set[int] = set()
    pending = [nodes]
    while pending:
        for each in pending.pop():
            if type(each) is list:
                if id(each) in seen:
                    raise CheckpointError("a list in a graph is in two places")
                seen.add(id(each))
                pending.append(each)


def _read_node(graph: Graph, row: list[Any], nodes: list[Node], source: str) -> Node:  # of any types
    op, name, written, args, kwargs = row
    target = _read_target(op, written, source)
    read_args, read_kwargs = _read(args, nodes), _read(kwargs, nodes)
    if type(read_args) is not tuple or type(read_kwargs) is not dict:
        raise CheckpointError(f"the arguments of node {name!r} are not a tuple and a dict")
    if not all(type(key) is str and key.isidentifier() and not keyword.iskeyword(key) for key in read_kwargs):
        raise CheckpointError(f"the keyword arguments of node {name!r} have no names")
    if target is getattr and not (len(read_args) >= 2 and _is_public(read_args[1])):
        _unsafe(source, f"reads the attribute {read_args[1:2]}")
    return graph.create_node(op, target, read_args, read_kwargs, name)


def _unsafe(source: str, what: str) -> NoReturn:
    raise UnsafeCheckpointError(
        f"refused to load {source}: a graph in it {what}. Only functions of tensors, Python's operators,"
        " and names"
        " without leading underscores are known to be safe to run."
    )


def _is_public(name: object) -> bool:
    return (
        type(name) is str and name.isidentifier() and not name.startswith("_") and not keyword.iskeyword(name)
    )


def _read_target(op: str, written: object, source: str) -> Any:  # a function or a name
    if op == "call_function":
        if type(written) is list and len(written) == 3 and written[0] == "aten":
            name, overload = written[1:]
            if not all(type(part) is str for part in (name, overload)) or not _is_public(name.strip("_")):
                _unsafe(source, f"calls the operator {written[1:]}")
            if not callable(getattr(Tensor, name, None)):
                _unsafe(source, f"calls the operator {name!r}, which is not a method of a tensor")
            return Operator(name, overload)
        function = _table().get(written) if type(written) is str else None
        if function is None:
            _unsafe(source, f"calls {written!r}")
        return function
    if type(written) is not str:
        raise CheckpointError(f"the target of a {op} is not a name")
    if op == "placeholder" and not _is_public(written.lstrip("*").lstrip("_")):
        _unsafe(source, f"has an argument {written!r}")
    if op == "call_method" and not _is_public(written):
        _unsafe(source, f"calls the method {written!r}")
    if op in ("get_attr", "call_module") and not _PATH.fullmatch(written):
        _unsafe(source, f"reads the attribute {written!r}")
    return written


_READERS: dict[str, Callable[[Any], Any]] = {  # what _written has written
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "slice": lambda ends: slice(*ends),
    "ellipsis": lambda _: ...,
}


def _read(written: Any, nodes: list[Node]) -> Nested:  # what _written has written
    if type(written) is not list:
        if not isinstance(written, (*_PLAIN, dtype, Device)):
            raise CheckpointError(f"an argument of a node is a {type(written).__name__}")
        return written
    if len(written) != 2 or type(written[0]) is not str:
        raise CheckpointError("an argument of a node is not a list of two, its kind and its value")
    kind, value = written
    if kind == "node":
        if type(value) is not int or not 0 <= value < len(nodes):
            raise CheckpointError(f"an argument of a node is node {value!r}, which does not come before it")
        return nodes[value]
    if kind == "memory_format" and value in _FORMATS:
        return getattr(memory_formats, value)
    if kind not in _READERS or (type(value) is not list and kind != "ellipsis"):
        raise CheckpointError(f"an argument of a node is of the kind {kind!r}")
    items = [_read(item, nodes) for item in value or ()] if kind != "dict" else _read_pairs(value, nodes)
    return _READERS[kind](items)


def _read_pairs(
    value: list[Nested], nodes: list[Node]
) -> list[tuple[Nested, Nested]]:  # what _written has written
    if not all(type(pair) is list and len(pair) == 2 for pair in value):
        raise CheckpointError("a dictionary among the arguments of a node is not a list of pairs")
    return [(_read(key, nodes), _read(item, nodes)) for key, item in value]
