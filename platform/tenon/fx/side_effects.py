"""Nodes with side effects, which dead code elimination retains even without users."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tenon.engine.op import Kind, table
from tenon.functions.checks import _assert, _assert_async
from tenon.fx.names import public_name
from tenon.ops.aten import Operator
from tenon.tensors.autograd.grad_mode import set_grad_enabled

if TYPE_CHECKING:
    from tenon.fx.node import Node

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])  # any function

#: Functions that ``has_side_effect`` has registered.
side_effectful_functions: set[Callable[..., Any]] = {  # any functions
    _assert,
    _assert_async,
    operator.setitem,
    set_grad_enabled,
}
#: Random functions: they advance the generator.
_RANDOM = {
    "tenon.alpha_dropout", "tenon.bernoulli", "tenon.binomial", "tenon.dropout",
    "tenon.feature_alpha_dropout", "tenon.feature_dropout", "tenon.multinomial", "tenon.native_dropout",
    "tenon.normal", "tenon.poisson", "tenon.rand", "tenon.rand_like", "tenon.randint",
    "tenon.randint_like", "tenon.randn", "tenon.randn_like", "tenon.randperm", "tenon.rrelu",
}  # fmt: skip


def has_side_effect(fn: FunctionT) -> FunctionT:
    """Register that calls of ``fn`` have a side effect, so that they stay in a graph without users; return
    ``fn``."""
    side_effectful_functions.add(fn)
    return fn


def is_impure(node: Node, impure_random: bool = True) -> bool:
    """Whether ``node`` has a side effect."""
    if node.op in ("placeholder", "output"):
        return True
    if node.op == "call_module":
        module = _called_module(node)
        return bool(getattr(module, "_is_impure", False)) or _has_impure_graph(module, impure_random)
    if node.op != "call_function":
        return False
    target = node.target
    if node.kwargs.get("out") is not None:
        return True
    if isinstance(target, Operator):
        written = target.name.endswith("_") and not target.name.endswith("__")
        return written or (impure_random and _is_random(target))
    if impure_random and public_name(target) in _RANDOM:
        return True
    return target in side_effectful_functions


def _is_random(target: Operator) -> bool:
    """Whether an operator draws random numbers, or is an op that has effects."""
    op = table.by_name.get(getattr(target, "op_name", target.name))
    return f"tenon.{target.name}" in _RANDOM or (op is not None and op.kind is Kind.RANDOM)


def _called_module(node: Node) -> object:
    owner = node.graph.owning_module
    if owner is None:
        return None
    module: object = owner
    for name in str(node.target).split("."):
        module = getattr(module, name, None)
    if module is None:
        raise AssertionError(f"Did not find expected submodule target {node.target} of node {node}")
    return module


def _has_impure_graph(module: object, impure_random: bool) -> bool:
    """Whether a module is a GraphModule with an impure node other than its arguments and output."""
    graph = getattr(module, "graph", None)
    nodes = getattr(graph, "nodes", ())
    return any(is_impure(n, impure_random) for n in nodes if n.op not in ("placeholder", "output"))
