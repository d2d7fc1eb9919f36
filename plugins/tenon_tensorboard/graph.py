"""The model for TensorBoard's tab Graphs: a GraphDef of a captured call, RunMetadata with profiled times.

tensorboardX would trace a PyTorch model for this; here ``tenon.export.capture`` does.
Namespaces are module paths under the model's class name, edges carry shapes. TensorBoard takes a group's time
to be the span from its first start to its last end, so nodes are laid end to end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tenon.extend import Aval, CapturedGraph, Module, Nested, Node, Ref, capture

#: A message of TensorBoard's protocol buffers, whose classes have no type stubs.
Message: TypeAlias = Any
_DEVICE = "/device:CPU:0"


class ModelGraph:
    """The graph of one call of ``model`` on ``inputs`` in evaluation mode; the model is not modified.

    A graph from ``tenon.export.capture`` is shown as it is. CaptureError if the call cannot be captured.
    """

    def __init__(self, model: Module | CapturedGraph, *inputs: Nested) -> None:
        self._top = type(model).__name__
        self._graph = model if isinstance(model, CapturedGraph) else _captured(model, inputs)
        kinds = self._graph.signature.states
        self._parameters = {label for label, kind in kinds.items() if kind == "parameter"}
        self._names = self._unique_names()

    def definition(self) -> Message:
        """Build the GraphDef."""
        from tensorboardX.proto.graph_pb2 import GraphDef  # type: ignore[import-untyped]
        from tensorboardX.proto.versions_pb2 import VersionDef  # type: ignore[import-untyped]

        graph_def = GraphDef(versions=VersionDef(producer=22))
        for node in self._graph.nodes:
            kind = self._op(node)
            node_def = graph_def.node.add(name=self._names[node], op=kind, device=_DEVICE)
            node_def.input.extend(self._edge(ref) for ref in node.refs)
            _set_shapes(node_def, node.avals)
            for key, value in (*node.attrs.items(), ("source", node.where)):
                if value != "":
                    node_def.attr[key].s = str(value).encode()
        for index, ref in enumerate(self._graph.outputs):
            node_def = graph_def.node.add(name=f"output/{index}", op="Output", device=_DEVICE)
            node_def.input.append(self._edge(ref))
            _set_shapes(node_def, [ref.aval])
        return graph_def

    def timed(self, times: Mapping[tuple[str, str], float]) -> Message:
        """Build RunMetadata that distributes ``times``, microseconds by module path and op, over the nodes.

        A module's time in ops that are not in this graph (those of gradients; the statistics of batch norm)
        is assigned to its nodes without a time of their own.
        """
        from tensorboard.compat.proto.config_pb2 import RunMetadata  # type: ignore[import-untyped]

        metadata, start = RunMetadata(), 1.0  # TensorBoard treats a start of 0 as missing
        stats = metadata.step_stats.dev_stats.add(device=_DEVICE)
        spread = self._spread(times)
        for node in self._graph.calls:
            length = spread.get(node, 0.0)
            first, last = round(start), round(start + length)
            entry = stats.node_stats.add(node_name=self._names[node], all_start_micros=first)
            entry.op_end_rel_micros = entry.all_end_rel_micros = max(last - first, 1 if length else 0)
            start = max(start + length, first + entry.all_end_rel_micros)
            for slot, aval in enumerate(node.avals):
                output = entry.output.add(slot=slot).tensor_description
                output.allocation_description.requested_bytes = _nbytes(aval)
                _set_shape(output.shape, aval)
        return metadata

    def _spread(self, times: Mapping[tuple[str, str], float]) -> dict[Node, float]:
        nodes: dict[str, list[Node]] = {}
        for node in self._graph.calls:
            nodes.setdefault(self.path(node.module), []).append(node)
        assigned: dict[Node, float] = {}
        left: dict[str, float] = {}
        for (module, op), time in times.items():
            path = self.path(module)
            same = [node for node in nodes.get(path, ()) if node.name == op]
            for node in same:
                assigned[node] = time / len(same)
            if not same:
                left[path] = left.get(path, 0.0) + time
        for path, time in left.items():
            all_here = nodes.get(path, [])
            here = [node for node in all_here if node not in assigned] or all_here
            for node in here:
                assigned[node] = assigned.get(node, 0.0) + time / len(here)
        return assigned

    def path(self, module: str) -> str:
        """A module's path below the model, without the model's own name; "" for the model itself."""
        return "" if module == self._top else module.removeprefix(f"{self._top}.")

    def _op(self, node: Node) -> str:
        if node.kind != "input":
            return str(node.op if node.kind == "scalar" else node.name)
        if node.value is None:
            return "Input"
        return "Parameter" if node.label in self._parameters else "Buffer"

    def _edge(self, ref: Ref) -> str:
        return self._names[ref.node] + (f":{ref.index}" if ref.index else "")

    def _unique_names(self) -> dict[Node, str]:
        preferred = {node: self._preferred_name(node) for node in self._graph.nodes}
        taken: set[str] = set()
        for name in preferred.values():  # a node is not named like a group of nodes
            parts = name.split("/")
            taken.update("/".join(parts[:end]) for end in range(1, len(parts)))
        names: dict[Node, str] = {}
        for node, name in preferred.items():
            unique, count = name, 0
            while unique in taken:
                count += 1
                unique = f"{name}_{count}"
            taken.add(unique)
            names[node] = unique
        return names

    def _preferred_name(self, node: Node) -> str:
        if node.kind == "input" and node.value is None:
            return f"input/{node.label}"
        path, own = self.path(node.module), node.name
        if node.kind == "input" and node.label:
            path, _, own = node.label.rpartition(".")
        return "/".join([self._top, *path.split("."), own] if path else [self._top, own])


def _captured(model: Module, inputs: Sequence[Nested]) -> CapturedGraph:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        return capture(model, *inputs)
    finally:
        for module in training:
            module.training = True


def _set_shapes(node_def: Message, avals: Sequence[Aval]) -> None:
    if avals:
        node_def.attr["T"].s = str(avals[0].dtype).encode()
    for aval in avals:
        _set_shape(node_def.attr["_output_shapes"].list.shape.add(), aval)


def _set_shape(shape: Message, aval: Aval) -> None:
    for size in aval.shape:
        shape.dim.add(size=size)


def _nbytes(aval: Aval) -> int:
    return int(math.prod(aval.shape) * aval.dtype.itemsize)
