"""``CSEPass``: common subexpression elimination."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

from tenon.fx.graph import Graph
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.infra.pass_base import PassBase, PassResult
from tenon.ops import aten
from tenon.ops.aten import Operator

#: Operators that are random or have side effects.
_RANDOM = [
    "bernoulli",
    "binomial",
    "dropout",
    "_fused_dropout",
    "multinomial",
    "native_dropout",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "uniform",
    "random",
    "rrelu_with_noise",
]
#: Operators that return uninitialised memory, of which two must stay distinct.
_EMPTY = ["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"]


def get_CSE_banned_ops() -> set[Operator]:
    """Return the operators that are never merged: random ones, and those that return uninitialized memory."""
    return {getattr(aten, name) for name in [*_RANDOM, *_EMPTY]}


class CSEPass(PassBase):
    """Merges calls of functions with equal arguments; ``banned_ops`` and calls that change an argument are
    never merged.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: x.neg() + tenon.cos(x) + tenon.cos(x))
    >>> sum(node.target is tenon.cos for node in CSEPass()(traced).graph_module.graph.nodes)
    1
    """

    def __init__(self, banned_ops: Collection[Any] | None = None) -> None:  # operators or functions
        self.banned_ops = set(banned_ops if banned_ops is not None else get_CSE_banned_ops())
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """Return a module with a new graph, and whether it has fewer nodes."""
        new, copies = Graph(), dict[Node, Node]()
        known: dict[Hashable, Node] = {}
        changed = {
            used
            for node in graph_module.graph.nodes
            if _changes_arguments(node)
            for used in node.all_input_nodes
        }
        modified = False
        for node in graph_module.graph.nodes:
            key = None if changed & {node, *node.all_input_nodes} else self._key(node, copies)
            if key is not None and key in known:
                copies[node], modified = known[key], True
                continue
            copies[node] = new.node_copy(node, copies.__getitem__)
            if key is not None:
                known[key] = copies[node]
        new._codegen = graph_module.graph._codegen
        return PassResult(GraphModule(graph_module, new), modified)

    def _key(self, node: Node, copies: dict[Node, Node]) -> Hashable | None:
        """Return a key that is equal for nodes that compute the same value; None for nodes that may not be
        merged."""
        if node.op != "call_function":
            return None
        target = getattr(node.target, "overloadpacket", node.target)
        if target in self.banned_ops or node.target in self.banned_ops or node.is_impure():
            return None
        key = (target, _frozen(node.args, copies), _frozen(node.kwargs, copies))
        try:
            hash(key)
        except TypeError:
            return None
        return key


def _changes_arguments(node: Node) -> bool:
    """Whether a node changes one of its arguments in place."""
    name = getattr(node.target, "name", None) if node.op == "call_function" else node.target
    name = (
        getattr(node.target, "__name__", "")
        if node.op == "call_function" and not isinstance(name, str)
        else name
    )
    text = str(name).split(".")[0]
    return node.op in ("call_function", "call_method") and text.endswith("_") and not text.endswith("__")


def _frozen(value: Any, copies: dict[Node, Node]) -> Any:  # nested arguments
    """Return arguments in hashable form, with nodes replaced by their copies and plain values paired with
    their types."""
    if isinstance(value, Node):
        return copies[value]
    if isinstance(value, (list, tuple)):
        return (list, *(_frozen(item, copies) for item in value))
    if isinstance(value, dict):
        return (dict, *((key, _frozen(value[key], copies)) for key in sorted(value)))
    if isinstance(value, slice):
        return (slice, *(_frozen(end, copies) for end in (value.start, value.stop, value.step)))
    return (type(value), value)
