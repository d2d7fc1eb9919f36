"""Generated code as a class, for reading: with shapes, and with the lines of the program as comments."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenon.fx.graph_module import GraphModule


def readable(module: GraphModule, name: str, **style: bool) -> str:
    """Return the code of ``module`` and of the GraphModules in it, as classes within each other."""
    code = module.graph.python_code("self", verbose=True, **style).src.strip("\n")
    lines = [f"class {name}(tenon.nn.Module):", textwrap.indent(code.rstrip(), "    "), ""]
    for child_name, child in module.named_children():
        if hasattr(child, "graph"):
            inner = readable(child, child_name, **style)  # type: ignore[arg-type]  # it has a graph
            lines.append(textwrap.indent(inner, "    "))
    return "\n".join(line.rstrip() for line in "\n".join(lines).split("\n"))
