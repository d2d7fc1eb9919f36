"""``ExportedProgram.module()``: a module that runs a program's graph on the arguments of the exported one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence, Set
from typing import Any

from numpy.lib.array_utils import byte_bounds

from tenon import fx
from tenon.engine.op import Op, table
from tenon.engine.types import Nested
from tenon.export.captured import CapturedGraph
from tenon.export.layers import Layers
from tenon.export.python_graph import PythonGraph, python_graph, state_paths
from tenon.export.runner import argument_sizes
from tenon.export.signature import Result, Signature
from tenon.export.values import is_plain
from tenon.fx.module_paths import assign, holder_of
from tenon.graph.graph import Ref
from tenon.nn.module import Module
from tenon.nn.parameter import Buffer, Parameter
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import TreeSpec
from tenon.tensors.tensor import Tensor


class ProgramModule(fx.GraphModule):
    """Runs an exported program on the arguments of the exported module, whose parameters it has by name."""

    _signature: Signature
    _checked: CapturedGraph | None
    #: Whether the graph's output has the structure of the result, not a tuple of its tensors.
    _structured: bool

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Check the arguments, run the graph, and return the result in the module's structure."""
        tensors = self._signature.flatten(args, kwargs)
        if self._checked is not None:
            argument_sizes(self._checked, [tensor.raw for tensor in tensors])
        result = super().__call__(*tensors)
        return result if self._structured else self._signature.unflatten(result)


def program_module(
    graph: CapturedGraph, check: bool, layers: Layers | None = None, temporary: Set[str] = frozenset()
) -> ProgramModule:
    """Return ``graph`` as a module with its state; ``check``: whether calls check shapes and dtypes.

    ``temporary`` are the buffers that are not in ``state_dict()``, as constants are not.
    """
    written = python_graph(graph, lifted=False, layers=layers)
    kept = _kept_values(graph, written)
    for write in graph.writes:
        label = write.target.label
        target, value = written.names.get(label), kept[write.value]
        if write.target.value is None:
            owner = next(n for n in written.graph.nodes if n.op == "placeholder" and n.name == target)
        else:
            owner = written.graph.get_attr(label)
            value = written.graph.call_method("detach", (value,))
        written.graph.call_method("copy_", (owner, value))
    outputs = tuple(kept[ref] for ref in graph.outputs)
    structured = all(
        isinstance(r, Result) or is_plain(r) for r in graph.signature.returned
    ) and _is_plain_structure(graph.signature.out_spec)
    written.graph.output(graph.signature.unflatten(outputs) if structured else outputs)
    root: dict[str, Tensor | Module] = dict(graph_state(graph))
    if layers is not None:
        root = {path: value for path, value in root.items() if path not in layers.labels}
        root.update(layers.modules)
    made = ProgramModule(root, written.graph, "Program")
    kinds = graph.signature.states
    for node, path in state_paths(graph).items():
        if kinds.get(node.label) not in ("parameter", "buffer") or path in temporary:
            _leave_out(made, path)
    _tie(made, graph.signature.aliases)
    made._signature, made._checked = graph.signature, graph if check else None
    made._structured = structured
    return made


def _tie(module: Module, aliases: Mapping[str, str]) -> None:
    """Give tied parameters and buffers of ``module`` the names that they lack there."""
    groups: dict[str, list[str]] = {}
    for name, label in aliases.items():
        groups.setdefault(label, [label]).append(name)
    for names in groups.values():
        found = [tensor for name in names if isinstance(tensor := _at(module, name), Tensor)]
        for name in names if found else ():
            if _at(module, name) is None:
                assign(found[0], module, name)


def _leave_out(module: Module, path: str) -> None:
    """Leave a constant or a temporary buffer out of ``state_dict()``."""
    holder, name = holder_of(module, path)
    if holder is not None and name in holder._buffers:
        holder._non_persistent_buffers_set.add(name)


def _at(module: Module, path: str) -> object:
    holder, name = holder_of(module, path)
    return None if holder is None else getattr(holder, name, None)


def _is_plain_structure(spec: TreeSpec) -> bool:
    """Whether a structure has tuples, lists and dictionaries only, which a graph can return."""
    return spec.is_leaf() or (
        spec.type in (tuple, list, dict) and all(map(_is_plain_structure, spec.children_specs))
    )


def _kept_values(graph: CapturedGraph, written: PythonGraph) -> dict[Ref, fx.Node]:
    """Return the nodes of outputs and of written values: copies of those in memory that is written."""
    nodes = dict(zip(graph.outputs, written.outputs, strict=True))
    nodes |= {write.value: written.writes[write.target.label] for write in graph.writes}
    targets = {write.target for write in graph.writes}
    clone = table["clone"]
    return {
        ref: written.graph.call_function(clone, (node,)) if _owner(ref) in targets else node
        for ref, node in nodes.items()
    }


def _owner(ref: Ref) -> object:
    """Return the node in whose memory a value may lie."""
    while ref.node.kind == "call" and _may_view(ref.node.op) and ref.node.refs:
        ref = next(iter(ref.node.refs))
    return ref.node


def _may_view(op: Op) -> bool:
    return bool(op.view)


def copied(module: ProgramModule) -> ProgramModule:
    """Return a copy whose parameters and buffers share memory where those of ``module`` do."""
    memo: dict[int, Any] = {}  # the copy of each object, of any type
    for tensor in _overlapping([*module.parameters(), *module.buffers()]):
        if isinstance(tensor, Parameter):
            memo[id(tensor)] = Parameter(copy.deepcopy(tensor.detach(), memo), tensor.requires_grad)
        elif isinstance(tensor, Buffer):
            memo[id(tensor)] = Buffer(copy.deepcopy(tensor.detach(), memo), persistent=tensor.persistent)
    return copy.deepcopy(module, memo)


def _overlapping(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that lie in memory of another: ``copy.deepcopy`` copies parameters apart."""
    spans = sorted(
        ((*byte_bounds(t.raw), number) for number, t in enumerate(tensors) if t.raw.size), key=lambda s: s[0]
    )
    found: set[int] = set()
    reach, last = 0, 0
    for start, end, number in spans:
        if start < reach:
            found |= {last, number}
        if end > reach:
            reach, last = end, number
    return [tensors[number] for number in sorted(found)]


def graph_state(graph: CapturedGraph) -> dict[str, Tensor]:
    """Return the tensors that the graph holds, by the paths at which a module has them."""
    return {
        path: wrap(node.value, device="cpu") if node.kind == "constant" else node.value
        for node, path in state_paths(graph).items()
    }
