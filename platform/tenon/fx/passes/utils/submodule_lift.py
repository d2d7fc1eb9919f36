"""Create a module from a subgraph of another module, with the modules and tensors that it reads."""

from __future__ import annotations

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.nn.module import Module

__all__ = ["HolderModule", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module that has submodules only."""

    def __init__(self, d: dict[str, Module]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """Return a module of ``subgraph`` with the modules and tensors that it reads from ``gm``, and a map of
    their old names to new ones.

    With ``comp_name`` new names begin with it: the name that the module will have.
    """
    holder = HolderModule({})
    names: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path = str(node.target).split(".")
        source, place = gm, holder
        for name in path[:-1]:
            source = getattr(source, name)
            if not hasattr(place, name):
                place.add_module(name, HolderModule({}))
            place = getattr(place, name)
        value = getattr(source, path[-1])
        if not hasattr(place, path[-1]):
            setattr(place, path[-1], value)
        if node.op == "call_module":
            names[str(node.target)] = f"{comp_name}.{node.target}" if comp_name else str(node.target)
    return GraphModule(holder, subgraph, class_name), names
