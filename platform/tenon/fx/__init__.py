"""PyTorch's ``torch.fx``: programs traced into graphs of nodes, changed by Python code, and run again.

``symbolic_trace`` runs a program on proxies (``proxy.py``, ``_symbolic_trace.py``) and returns a
``GraphModule``, whose ``graph`` (``graph.py``, ``node.py``) can be read and changed, and whose ``forward``
is generated from it (``codegen.py``). ``Interpreter`` runs a graph node by node. The guide is
docs/guide/fx.md.
"""

from __future__ import annotations

from types import ModuleType

from tenon.fx import saved_graphs as saved_graphs  # tenon.serialize checks whether it is loaded
from tenon.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace
from tenon.fx.graph import CodeGen, Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Interpreter, Transformer
from tenon.fx.node import Node, has_side_effect, map_arg
from tenon.fx.proxy import Proxy
from tenon.fx.subgraph_rewriter import replace_pattern
from tenon.fx.submodules import submodule
from tenon.fx.wrapping import wrap

__all__ = [
    "PH",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
