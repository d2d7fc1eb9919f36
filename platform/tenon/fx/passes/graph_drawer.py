"""``FxGraphDrawer``: drawings of a traced program and of the traced modules that it calls."""

from __future__ import annotations

import zlib
from typing import Any

from tenon.fx.graph_module import GraphModule
from tenon.fx.names import qualified_name
from tenon.fx.node import Node
from tenon.fx.passes.dot_graph import DotGraph, DotNode
from tenon.fx.passes.shape_prop import TensorMetadata
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

__all__ = ["FxGraphDrawer"]

_BY_OP = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_param": "Yellow2",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
#: Colors of calls of functions and methods, chosen by the name, so that equal calls look equal.
_BY_NAME = [
    "CadetBlue1",
    "Coral",
    "DarkOliveGreen1",
    "PeachPuff1",
    "Khaki1",
    "Wheat1",
    "Thistle1",
    "PaleTurquoise1",
]
_STYLE = {"shape": "record", "fillcolor": "#CAFFE3", "style": "filled,rounded", "fontcolor": "#000000"}


class FxGraphDrawer:
    """Draws ``graph_module``, and the traced modules that it calls, under ``name``.

    ``ignore_getattr`` leaves reads of attributes out, ``ignore_parameters_and_buffers`` those of modules.
    ``skip_node_names_in_args``: only plain values are printed among the arguments. ``parse_stack_trace``
    prints the source line of each node. Drawings are ``DotGraph`` objects: ``write("x.svg")``,
    ``write("x.dot")``, ``to_string()``.

    >>> import tenon
    >>> drawer = FxGraphDrawer(tenon.fx.symbolic_trace(tenon.nn.Sequential(tenon.nn.Linear(2, 3))), "net")
    >>> drawer.get_dot_graph().edges[:2]
    [('_0.weight', '_0'), ('_0.bias', '_0')]
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name, self.normalize_args = name, normalize_args
        self.dot_graph_shape = dot_graph_shape or "record"
        self._hidden = (ignore_getattr, ignore_parameters_and_buffers)
        self._skip_names, self._parse_stack_trace = skip_node_names_in_args, parse_stack_trace
        self._dot_graphs: dict[str, DotGraph] = {}
        self._draw(graph_module, name)

    def get_dot_graph(self, submod_name: str | None = None) -> DotGraph:
        """Return the drawing of the program, or of the submodule ``submod_name`` (``<name>_<node's
        name>``)."""
        return self.get_main_dot_graph() if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self) -> DotGraph:
        """Return the drawing of the program."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> DotGraph:
        """Return the drawing of a submodule."""
        return self._dot_graphs[submod_name]

    def get_all_dot_graphs(self) -> dict[str, DotGraph]:
        """Return all drawings by name."""
        return self._dot_graphs

    def _draw(self, module: GraphModule, name: str) -> None:
        drawing = DotGraph(name)
        self._dot_graphs[name] = drawing
        hide_attributes, hide_parameters = self._hidden
        for node in module.graph.nodes:
            if hide_attributes and node.op == "get_attr":
                continue
            drawing.nodes.append(
                DotNode(node.name, {"label": self._label(module, node), **self._style(node)})
            )
            if node.op != "call_module":
                continue
            called = _called(module, node)
            if isinstance(called, GraphModule):
                self._draw(called, f"{name}_{node.name}")
            elif not hide_parameters:
                self._draw_parameters(drawing, node, called)
        drawn = {node.name for node in drawing.nodes}
        for node in module.graph.nodes:
            if node.name in drawn:
                drawing.edges += [(node.name, user.name) for user in node.users]

    def _draw_parameters(self, drawing: DotGraph, node: Node, module: Module) -> None:
        for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
            for path, tensor in named:
                name = f"{node.name}.{path}"
                label = f"{{{name}|op_code=get_{kind}{_tensor_label(tensor)}\\n}}"
                drawing.nodes.append(DotNode(name, {"label": label, **_STYLE, "shape": self.dot_graph_shape}))
                drawing.edges.append((name, node.name))

    def _style(self, node: Node) -> dict[str, str]:
        style = {**_STYLE, "shape": self.dot_graph_shape}
        if node.op in _BY_OP:
            style["fillcolor"] = _BY_OP[node.op].strip('"')
        else:
            style["fillcolor"] = _BY_NAME[zlib.crc32(_called_name(node.target).encode()) % len(_BY_NAME)]
        return style

    def _label(self, module: GraphModule, node: Node) -> str:
        label = "{" + f"name=%{node.name}|op_code={node.op}\\n"
        if node.op == "call_module":
            called = _called(module, node)
            label += f"|{_escaped(_called_name(called))}\\n"
            constants = getattr(called, "__constants__", ())
            if constants:
                label += (
                    "|" + _escaped("\\n".join(f"{c}: {getattr(called, c, None)}" for c in constants)) + "\\n"
                )
        else:
            label += f"|target={_escaped(_called_name(node.target))}\\n"
            label += self._arguments("args", node.args) + self._arguments("kwargs", node.kwargs)
            label += f"|num_users={len(node.users)}\\n"
        if self._parse_stack_trace and node.stack_trace is not None:
            lines = [line.strip() for line in node.stack_trace.strip().split("\n") if line.strip()]
            label += "|" + _escaped("file=" + " ".join(lines[-2:])) + "\\n"
        return label + _meta_label(node.meta.get("tensor_meta")) + "}"

    def _arguments(self, title: str, arguments: Any) -> str:  # nested arguments
        if not arguments:
            return ""
        plain = _plain(arguments) if self._skip_names else arguments
        return f"|{title}={_escaped(str(plain))}\\n" if plain else ""


def _plain(arguments: Any) -> Any:  # nested arguments
    """Return arguments without those that are nodes."""
    if isinstance(arguments, dict):
        return {key: value for key, value in arguments.items() if not isinstance(value, Node)}
    return tuple(value for value in arguments if not isinstance(value, Node))


def _called(module: GraphModule, node: Node) -> Module:
    return module.get_submodule(str(node.target))


def _called_name(target: Any) -> str:  # what a node calls
    if isinstance(target, Module):
        return f"{type(target).__module__}.{type(target).__qualname__}"
    return target if isinstance(target, str) else qualified_name(target)


def _escaped(text: str) -> str:
    for mark in "{}<>|":
        text = text.replace(mark, f"\\{mark}")
    return text


def _tensor_label(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _meta_label(meta: Any) -> str:  # metadata of one tensor, or nested
    if meta is None:
        return ""
    if isinstance(meta, TensorMetadata):
        fields = [
            f"|dtype={meta.dtype}",
            f"|shape={tuple(meta.shape)}",
            f"|requires_grad={meta.requires_grad}",
        ]
        fields.append(f"|stride={meta.stride}")
        if meta.is_quantized:
            fields.append(f"|qparams={_escaped(str(meta.qparams))}")
        return "".join(f"{each}\\n" for each in fields)
    if isinstance(meta, dict):
        return "".join(map(_meta_label, meta.values()))
    return "".join(map(_meta_label, meta)) if isinstance(meta, (list, tuple)) else ""
