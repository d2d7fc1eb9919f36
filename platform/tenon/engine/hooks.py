"""Run hooks in a backward pass: on gradients of tensors, on nodes, on leaves. ``tensors/autograd/hooks.py``
registers them.

Hooks get tensors, or None for an undefined gradient; a pass on arrays wraps them for each hook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.engine.accumulate import accumulate
from tenon.engine.plans import EngineBackend
from tenon.engine.tape import LEAF, Hooks, Node
from tenon.engine.types import Gradient
from tenon.engine.value import Value
from tenon.errors import GradError

if TYPE_CHECKING:
    from tenon.engine.sweep import Sweep


def as_tensor(grad: Gradient, backend: EngineBackend) -> Value | None:
    """``grad`` as a tensor; None if it is undefined."""
    if grad is None or isinstance(grad, Value):
        return grad
    result: Value = Value.make(backend.as_array(grad), backend)
    return result


def run_tensor_hooks(hooks: Hooks, grad: Gradient, backend: EngineBackend) -> Gradient:
    """Run ``hooks`` on ``grad`` and return the result: an array for an array, a tensor for a tensor."""
    for hook in list(hooks.values()):
        argument = as_tensor(grad, backend)
        result = hook(argument)
        if result is None:
            continue
        if not isinstance(result, Value):
            raise GradError(f"a tensor hook returned {type(result).__name__}; expected None or a Tensor.")
        if argument is not None and tuple(result.raw.shape) != tuple(argument.raw.shape):
            raise GradError(
                f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value: "
                f"{list(argument.raw.shape)} became {list(result.raw.shape)}."
            )
        grad = result if isinstance(grad, Value) else result.raw
    return grad


def _run_prehooks(
    sweep: Sweep, hooks: Hooks, grads: Sequence[Gradient], backend: EngineBackend
) -> Sequence[Gradient]:
    """Run a node's pre-hooks, which see, and may replace, the gradients of its outputs."""
    for hook in list(hooks.values()):
        changed = hook(tuple(as_tensor(g, backend) for g in grads))
        if changed is not None:
            grads = _replaced(sweep, changed)
    return grads


def _replaced(sweep: Sweep, changed: object) -> list[Gradient]:
    """The gradients that a hook returned, one or several, as the pass computes with them."""
    several = changed if isinstance(changed, (tuple, list)) else (changed,)
    return [g if sweep.as_tensors or g is None else g.raw for g in several]


def before_node(sweep: Sweep, node: Node, grad: Gradient) -> Gradient:
    """Process a node's incoming gradients: tensor hooks, retained gradients, requested inputs, pre-hooks."""
    single = node.op.outputs == 1
    grads = [grad] if single else grad
    for index, hooks in (node.hooks or {}).items():
        grads[index] = run_tensor_hooks(hooks, grads[index], node.backend)
    for index, reference in (node.retained or {}).items():
        tensor, value = reference(), grads[index]
        if tensor is not None and value is not None:
            tensor._grad = None if tensor._grad is None else tensor._grad.clone()
            accumulate(tensor, value, False, sweep.create_graph)
    if sweep.collected is not None:
        for index, value in enumerate(grads):
            if (id(node), index) in sweep.collected and value is not None:
                sweep.collected[id(node), index] = value
    # Last: pre-hooks change what the node receives, not what is retained; none run where ``grad`` stops.
    if node.node_prehooks is not None and (sweep.accumulates or id(node) not in sweep.stops):
        grads = _run_prehooks(sweep, node.node_prehooks, grads, node.backend)
    return grads[0] if single else grads


def after_node(sweep: Sweep, node: Node, results: list[Gradient], grad: Gradient) -> list[Gradient]:
    """Run the node hooks, which see, and may replace, the gradients of the inputs."""
    outputs = tuple(as_tensor(g, node.backend) for g in ((grad,) if node.op.outputs == 1 else grad))
    for hook in list((node.node_hooks or {}).values()):
        changed = hook(tuple(as_tensor(g, node.backend) for g in results), outputs)
        if changed is not None:
            results = _replaced(sweep, changed)
    return results


def _at_leaf(sweep: Sweep, leaf: Value, grad: Gradient, fresh: bool) -> None:
    """Run the hooks of ``leaf`` on its complete gradient and accumulate the result."""
    extra, backend = leaf.__dict__, leaf._backend
    if sweep.collected is not None and (id(leaf), LEAF) not in sweep.collected:
        return
    if hooks := extra.get("_hooks"):
        grad, fresh = run_tensor_hooks(hooks, grad, backend), False
    if not sweep.accumulates:
        assert sweep.collected is not None
        sweep.collected[id(leaf), LEAF] = grad
        return
    if not leaf._track:  # frozen after the op ran
        return
    if prehooks := extra.get("_node_prehooks"):
        grad, fresh = _run_prehooks(sweep, prehooks, (grad,), backend)[0], False
    first = leaf._grad is None
    accumulate(leaf, grad, fresh, sweep.create_graph)
    for hook in list(extra.get("_post_accumulate_hooks", {}).values()):
        if hook(leaf) is not None:
            raise GradError("Tensor post accumulate grad hooks should return None.")
    for hook in list((extra.get("_node_hooks") or {}).values()):
        hook((), (leaf._grad if first else as_tensor(grad, backend),))


class HookedLeaves:
    """Partial gradients of leaves with hooks: hooks run once, on the sum, as soon as it is complete.

    This requires the number of unvisited edges to each leaf, so the first such leaf costs one traversal of
    the remaining graph; passes without hooks never pay for it.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.sums: dict[int, tuple[Value, Gradient, bool]] = {}  # id of leaf -> leaf, partial sum, fresh
        self.open: dict[int, int] = {}  # id of leaf -> edges from nodes not yet visited
        self.counted: dict[int, Node] | None = None  # nodes whose edges are in ``open``, by id

    def _count(self) -> None:
        self.counted = counted = {}
        stack = list(self.sweep.pending)
        while stack:
            node = stack.pop()
            if id(node) in counted:
                continue
            counted[id(node)] = node
            for edge in node.edges:
                if edge is None:
                    continue
                if edge[1] == LEAF:
                    self.open[id(edge[0])] = self.open.get(id(edge[0]), 0) + 1
                else:
                    stack.append(edge[0])

    def add(self, leaf: Value, grad: Gradient, fresh: bool) -> None:
        """Add ``grad`` to the partial sum of ``leaf``; ``fresh`` if nothing else refers to the array."""
        if id(leaf) in self.sums:
            grad, fresh = self.sums[id(leaf)][1] + grad, True
        self.sums[id(leaf)] = leaf, grad, fresh

    def visited(self, node: Node) -> None:
        """Run the hooks of leaves whose last open edge came from ``node``, which has sent its gradients."""
        if self.counted is None:  # this node's own edges have been sent, all others are behind pending nodes
            self._count()
            known = False
        else:
            known = id(node) in self.counted
        for edge in node.edges:
            if edge is not None and edge[1] == LEAF:
                key = id(edge[0])
                if known:
                    self.open[key] -= 1
                if not self.open.get(key) and key in self.sums:
                    _at_leaf(self.sweep, *self.sums.pop(key))

    def finish(self) -> None:
        """Run the hooks of the remaining leaves, with an edge along which no gradient flowed."""
        while self.sums:
            _at_leaf(self.sweep, *self.sums.pop(next(iter(self.sums))))
