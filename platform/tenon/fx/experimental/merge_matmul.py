"""``merge_matmul``: merge matrix products with the same right operand into one product of the concatenated
left operands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import getitem
from typing import Any

from tenon.fx._symbolic_trace import symbolic_trace
from tenon.fx.graph_module import GraphModule
from tenon.fx.node import Node
from tenon.fx.passes.tools_common import stable_topological_sort
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

#: The public functions, as programs call them.
_PUBLIC: Any = sys.modules["tenon"]


def split_result_tensors(result: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the rows of ``result`` that belong to each of ``inputs``."""
    rows = [x.shape[0] for x in inputs]
    parts: tuple[Tensor, ...] = _PUBLIC.split(result, rows)
    return parts


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether ``a`` may use the result of ``b``, searching ``search_depth`` steps back; True if the search is
    not exhaustive."""
    if a is b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(used, b, search_depth - 1) for used in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether none of ``nodes`` may use another one's result."""
    return not any(may_depend_on(a, b) for a in nodes for b in nodes if a is not b)


def merge_matmul(in_mod: Module) -> GraphModule:
    """Return ``in_mod``, traced, in which products of two-dimensional tensors with the same right operand are
    merged.

    >>> import tenon
    >>> x, y, w = tenon.ones(1, 2), tenon.ones(3, 2), tenon.ones(2, 2)
    >>> merged = merge_matmul(lambda x, y: (x @ w, tenon.matmul(x, w), tenon.matmul(y, w)))
    >>> sum(node.target is tenon.matmul for node in merged.graph.nodes)
    1
    """
    gm = symbolic_trace(in_mod)
    by_right: dict[Any, list[Node]] = {}  # nodes, or attributes by their names
    for node in gm.graph.find_nodes(op="call_function", target=_PUBLIC.matmul):
        right = node.args[1] if len(node.args) > 1 else node.kwargs["other"]
        if isinstance(right, Node):
            by_right.setdefault(right.target if right.op == "get_attr" else right, []).append(node)
    for products in by_right.values():
        if len(products) > 1 and not any(may_depend_on(_left(a), b) for a in products for b in products):
            _merge(gm, products)
    stable_topological_sort(gm)
    gm.recompile()
    return gm


def _left(product: Node) -> Node:
    left: Node = product.args[0] if product.args else product.kwargs["input"]
    return left


def _merge(gm: GraphModule, products: Iterable[Node]) -> None:
    products = list(products)
    graph = gm.graph
    lefts = [_left(product) for product in products]
    right = products[0].args[1] if len(products[0].args) > 1 else products[0].kwargs["other"]
    with graph.inserting_before(products[0]):
        joined = graph.call_function(_PUBLIC.cat, (lefts,))
        product = graph.call_function(_PUBLIC.matmul, (joined, right))
        parts = graph.call_function(split_result_tensors, (product, lefts))
        for k, old in enumerate(products):
            part = graph.call_function(getitem, (parts, k))
            part.meta = dict(old.meta)
            old.replace_all_uses_with(part)
    for old in products:
        graph.erase_node(old)
