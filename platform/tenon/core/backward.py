"""The backward pass: nodes in reverse order of creation, gradients summed where paths join.

Nodes carry a growing sequence number, and edges always lead to older nodes, so a heap keyed by
``-seq`` visits every node after all of its consumers: no counting of dependencies is needed.

First order runs the rules on bare arrays (``f = backend.raw``). With ``create_graph``, or with an
interceptor in the slot, values are tensors and ``f`` is the op table, so nothing is invisible.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from tenon.core import second_order
from tenon.core.backward_end import PASS
from tenon.core.grad_mode import MODE, set_grad_enabled
from tenon.core.hooks import run_tensor_hooks
from tenon.core.interceptor import SLOT
from tenon.core.op import table
from tenon.core.tape import Node
from tenon.core.value import Value
from tenon.errors import GradError

_LEAF = -1


class Sweep:
    """One backward pass over the graph behind ``roots``."""

    def __init__(self, create_graph: bool, keep_graph: bool) -> None:
        self.create_graph = create_graph
        self.keep_graph = keep_graph
        self.as_tensors = create_graph or SLOT.top is not None
        self.heap: list[tuple[int, Any]] = []
        self.pending: dict[Any, Any] = {}  # node -> gradient, or list of them for several outputs
        self.owned: set[Any] = set()  # nodes whose pending gradient is a sum made here
        self.wanted: dict[tuple[int, int], Any] | None = None  # (id of target, output index) -> collected gradient
        self.needed: set[int] | None = None  # ids of the nodes that lead to a wanted input
        self.stops: set[int] = set()  # ids of wanted nodes behind which nothing is wanted

    def run(self, roots: Sequence[Any], grads: Sequence[Any]) -> None:
        """Send ``grads`` (arrays or tensors, as ``as_tensors`` says) into ``roots`` and empty the heap."""
        for root, grad in zip(roots, grads, strict=True):
            if root._node is None:
                self.send((root, _LEAF), grad, False)
            else:
                self.send((root._node, root._index), grad, False)
        heap, pending = self.heap, self.pending
        while heap:
            node = heapq.heappop(heap)[1]
            self.owned.discard(node)
            self.visit(node, pending.pop(node))

    def send(self, edge: Any, grad: Any, fresh: bool) -> None:
        """Add ``grad`` to what waits at ``edge``. ``fresh``: nobody else holds this array."""
        target, index = edge
        if index == _LEAF:
            self.reach_leaf(target, grad, fresh)
            return
        if self.needed is not None and id(target) not in self.needed:
            return
        waiting = self.pending.get(target)
        if target.op.outputs == 1:
            if waiting is None:
                self.pending[target] = grad
                heapq.heappush(self.heap, (-target.seq, target))
            elif target in self.owned:
                waiting += grad
            else:
                self.pending[target] = waiting + grad
                if not self.as_tensors and grad.ndim:
                    self.owned.add(target)
            return
        if waiting is None:
            waiting = self.pending[target] = [None] * len(target.output_avals)
            heapq.heappush(self.heap, (-target.seq, target))
        waiting[index] = grad if waiting[index] is None else waiting[index] + grad

    def visit(self, node: Any, grad: Any) -> None:
        """Run ``node``'s rules on ``grad`` and send the results on."""
        if node.watched:
            grad = self.before(node, grad)
        if self.stops and id(node) in self.stops:
            return
        edges = node.edges
        op = node.op
        if node.__class__ is not Node:
            results = self.custom(node, grad)
        elif self.as_tensors:
            results = second_order.gradients(node, grad, self.create_graph)
        else:
            if not op.simple and op.outputs != 1:
                grad = _materialize(node, grad)
            saved, out = node.values(False)
            f = node.backend.raw
            attrs = node.attrs
            if op.joint is not None:
                needs = tuple(e is not None for e in edges)
                extra = {"residuals": node.residuals} if op.residuals else {}
                results = op.joint(f, grad, out, *saved, needs=needs, **extra, **attrs)
            else:
                rules = op.rules
                results = [
                    None if e is None or rule is None else rule(f, grad, out, *saved, **attrs)
                    for e, rule in zip(edges, rules if len(rules) == len(edges) else _spread(op, edges), strict=True)
                ]
        if node.node_hooks is not None:
            results = self.after(node, results, grad)
        if not self.keep_graph:
            node.release()
        as_tensors = self.as_tensors
        for position, (edge, result) in enumerate(zip(edges, results, strict=True)):
            if edge is not None and result is not None:
                fresh = not as_tensors and result is not grad and getattr(result, "base", None) is None
                if fresh and op.joint is not None:
                    fresh = not any(result is other for other in results[:position])
                self.send(edge, result, fresh)

    def custom(self, node: Any, grad: Any) -> list[Any]:
        """Run a node that is not an op's: it works on tensors, whatever this sweep works on."""
        if self.as_tensors:
            return list(node.apply_tensors(grad, self.create_graph))
        single = node.op.outputs == 1
        given = self._tensor(grad, node) if single else [self._tensor(g, node) for g in grad]
        return [None if r is None else r.raw for r in node.apply_tensors(given, self.create_graph)]

    def before(self, node: Any, grad: Any) -> Any:
        """Hooks on the gradients that arrived, node pre-hooks, retained gradients, wanted inputs."""
        single = node.op.outputs == 1
        if node.hooks is not None:
            for index, hooks in node.hooks.items():
                if single:
                    grad = run_tensor_hooks(hooks, grad, node.backend)
                elif grad[index] is not None:
                    grad[index] = run_tensor_hooks(hooks, grad[index], node.backend)
        if node.node_prehooks is not None:
            grad = self._prehooks(node, grad, single)
        if node.retained is not None and self.wanted is None:
            for index, reference in node.retained.items():
                tensor = reference()
                value = grad if single else grad[index]
                if tensor is not None and value is not None:
                    accumulate(tensor, value, False, self.create_graph)
        if self.wanted is not None:
            for index in range(1 if single else len(grad)):
                key = (id(node), index)
                value = grad if single else grad[index]
                if key in self.wanted and value is not None:
                    self.wanted[key] = value
        return grad

    def _prehooks(self, node: Any, grad: Any, single: bool) -> Any:
        for hook in list(node.node_prehooks.values()):
            given = tuple(self._tensor(g, node) for g in ((grad,) if single else grad))
            changed = hook(given)
            if changed is not None:
                changed = changed if isinstance(changed, (tuple, list)) else (changed,)
                values = [g if self.as_tensors or g is None else g.raw for g in changed]
                grad = values[0] if single else values
        return grad

    def after(self, node: Any, results: Any, grad: Any) -> Any:
        """Node hooks: they see, and may replace, the gradients of the inputs."""
        single = node.op.outputs == 1
        outputs = tuple(self._tensor(g, node) for g in ((grad,) if single else grad))
        for hook in list(node.node_hooks.values()):
            inputs = tuple(self._tensor(g, node) for g in results)
            changed = hook(inputs, outputs)
            if changed is not None:
                changed = changed if isinstance(changed, (tuple, list)) else (changed,)
                results = [g if self.as_tensors or g is None else g.raw for g in changed]
        return results

    def _tensor(self, grad: Any, node: Any) -> Any:
        return grad if grad is None or isinstance(grad, Value) else Value.make(node.backend.as_array(grad), node.backend)

    def reach_leaf(self, leaf: Any, grad: Any, fresh: bool) -> None:
        """A gradient arrived at a leaf: run its hooks, then accumulate or collect it."""
        extra = leaf.__dict__
        hooks = extra.get("_hooks")
        if hooks:
            grad, fresh = run_tensor_hooks(hooks, grad, leaf._backend), False
        if self.wanted is not None:
            key = (id(leaf), _LEAF)
            if key in self.wanted:
                found = self.wanted[key]
                self.wanted[key] = grad if found is None else found + grad
                return
            return
        accumulate(leaf, grad, fresh, self.create_graph)
        after = extra.get("_post_accumulate_hooks")
        if after:
            for hook in list(after.values()):
                hook(leaf)


def _spread(op: Any, edges: Any) -> Any:
    """Rules for a variadic op: the last one serves the rest."""
    return op.rules + (op.rules[-1],) * (len(edges) - len(op.rules))


def _materialize(node: Any, grads: Any) -> Any:
    """Zeros for outputs that received no gradient."""
    if None not in [None if g is None else 0 for g in grads]:
        return grads
    like = next(g for g in grads if g is not None)
    f = node.backend.raw
    return [
        f.new_full(like, shape=a.shape, value=0, dtype=a.dtype) if g is None else g
        for g, a in zip(grads, node.output_avals, strict=True)
    ]


def accumulate(leaf: Any, grad: Any, fresh: bool, create_graph: bool) -> None:
    """Add ``grad`` to ``leaf.grad`` (in place unless the graph of the gradient is wanted)."""
    held = leaf.grad
    if isinstance(grad, Value):
        if held is None:
            # A copy: two leaves may receive the same tensor, or views of one.
            leaf.grad = (grad if create_graph else Value.make(grad.raw, grad._backend)).clone()
        elif create_graph:
            leaf.grad = held + grad
        else:
            with set_grad_enabled(False):
                held.add_(grad)
        return
    backend = leaf._backend
    if held is None:
        raw = leaf.raw
        if grad.__class__ is not backend.array_type:
            grad = backend.as_array(grad)
        if grad.shape != raw.shape:
            raise GradError(
                f"a gradient of shape {list(grad.shape)} reached a tensor of shape {list(raw.shape)}: "
                "the rule of an op is wrong; please report it with the op's name."
            )
        if grad.dtype is not raw.dtype:
            grad = grad.astype(raw.dtype)
        elif not fresh:
            grad = grad.copy()
        leaf.grad = Value.make(grad, backend)
    elif held._track:
        leaf.grad = held + Value.make(backend.as_array(grad), backend)
    else:
        held.raw += grad
        counter = held._version_counter
        if counter is not None:
            counter[0] += 1


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into the leaves (or into ``inputs`` only)."""
    PASS.depth += 1
    try:
        _backward(tensors, grad_tensors, retain_graph, create_graph, inputs)
    except BaseException:
        PASS.queued = ()
        raise
    finally:
        PASS.depth -= 1
    if PASS.queued and not PASS.depth:
        queued, PASS.queued = PASS.queued, ()
        for callback in queued:
            callback()


def _backward(
    tensors: Any, grad_tensors: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
) -> None:
    roots = _sequence(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    sweep = Sweep(create_graph, keep)
    grads = _initial(roots, _sequence(grad_tensors) if grad_tensors is not None else [None] * len(roots), sweep)
    if inputs is None:
        _run(sweep, roots, grads)
        return
    targets = _sequence(inputs)
    if not targets:
        raise GradError("`inputs` argument to `backward()` cannot be empty.")
    _want(sweep, roots, targets)
    _run(sweep, roots, grads)
    for target in targets:
        value = sweep.wanted[_key(target)]  # type: ignore[index]
        if value is not None:
            accumulate(target, value, False, create_graph)
            after = target.__dict__.get("_post_accumulate_hooks")
            for hook in list(after.values()) if after else ():
                hook(target)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of ``outputs`` with respect to ``inputs``, without touching any ``.grad`` (torch.autograd.grad)."""
    if is_grads_batched:
        raise GradError("is_grads_batched=True is not supported; call grad once per row of grad_outputs.")
    if allow_unused is False and materialize_grads:
        raise GradError("Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False.")
    roots, targets = _sequence(outputs), _sequence(inputs)
    if not targets:
        raise GradError("grad requires non-empty inputs.")
    keep = create_graph if retain_graph is None else retain_graph
    sweep = Sweep(create_graph, keep)
    grads = _initial(roots, _sequence(grad_outputs) if grad_outputs is not None else [None] * len(roots), sweep)
    for target in targets:
        if not target.requires_grad:
            raise GradError("One of the differentiated Tensors does not require grad")
    _want(sweep, roots, targets)
    _run(sweep, roots, grads)
    collected = []
    for target in targets:
        value = sweep.wanted[_key(target)]  # type: ignore[index]
        if value is None:
            if materialize_grads:
                value = table.new_full(target.detach(), shape=target.raw.shape, value=0, dtype=target.raw.dtype)
            elif not allow_unused:
                raise GradError(
                    "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True "
                    f"if this is the desired behavior. (its shape: {list(target.raw.shape)})"
                )
        elif not isinstance(value, Value):
            value = Value.make(target._backend.as_array(value), target._backend)
        elif not create_graph:
            value = value.detach()
        collected.append(value)
    return tuple(collected)


def _run(sweep: Sweep, roots: Any, grads: Any) -> None:
    previous = MODE.enabled
    MODE.enabled = sweep.create_graph
    try:
        sweep.run(roots, grads)
    finally:
        MODE.enabled = previous


def _sequence(value: Any) -> list[Any]:
    if isinstance(value, Value) or value is None:
        return [value]
    if isinstance(value, dict):
        return list(value.values())
    return list(value)


def _key(tensor: Any) -> tuple[int, int]:
    return (id(tensor), _LEAF) if tensor._node is None else (id(tensor._node), tensor._index)


def _want(sweep: Sweep, roots: Any, targets: Any) -> None:
    """Collect gradients at ``targets`` only, and visit only nodes that lead there."""
    for t in targets:
        if t._view is not None:
            t._refresh()
    sweep.wanted = {_key(t): None for t in targets}
    goals = {id(t) if t._node is None else id(t._node) for t in targets}
    needed: set[int] = set()
    leads: dict[int, bool] = {}
    for root in roots:
        _mark(root._node if root._node is not None else root, goals, leads)
    needed.update(key for key, value in leads.items() if value)
    sweep.needed = needed
    beyond = _beyond(targets, leads)
    for t in targets:
        if t._node is not None:
            t._node.watched = True
            if id(t._node) not in beyond:
                sweep.stops.add(id(t._node))


def _mark(start: Any, goals: set[int], leads: dict[int, bool]) -> None:
    """Fill ``leads[id(node)]``: does any path from the node reach a goal? Iterative, for deep graphs."""
    stack = [(start, False)]
    while stack:
        node, done = stack.pop()
        if done:
            leads[id(node)] = id(node) in goals or any(
                e is not None and leads.get(id(e[0]), False) for e in getattr(node, "edges", ())
            )
            continue
        if id(node) in leads:
            continue
        leads[id(node)] = False
        stack.append((node, True))
        for e in getattr(node, "edges", ()):
            if e is not None and id(e[0]) not in leads:
                if e[1] == _LEAF:
                    leads[id(e[0])] = id(e[0]) in goals
                else:
                    stack.append((e[0], False))


def _beyond(targets: Any, leads: dict[int, bool]) -> set[int]:
    """Ids of target nodes from which another target is still reachable, so they must run too."""
    return {
        id(t._node)
        for t in targets
        if t._node is not None and any(e is not None and leads.get(id(e[0]), False) for e in t._node.edges)
    }


def _initial(roots: list[Any], grads: list[Any], sweep: Sweep) -> list[Any]:
    """Checked first gradients: ones for scalars, else what was given."""
    if len(grads) != len(roots):
        raise GradError(f"got {len(roots)} tensors and {len(grads)} gradients")
    result = []
    for root, grad in zip(roots, grads, strict=True):
        if root._view is not None:
            root._refresh()
        if not root.requires_grad:
            raise GradError(
                "element 0 of tensors does not require grad and does not have a grad_fn: nothing that led to it requires "
                "grad. Set requires_grad on a leaf, and compute outside no_grad()."
            )
        if grad is None:
            if root.raw.size != 1:
                raise GradError(
                    f"grad can be implicitly created only for scalar outputs, not for shape {list(root.raw.shape)}. "
                    "Reduce it to a scalar (.sum(), .mean()), or pass gradient=."
                )
            if root.raw.dtype.kind in "iub":
                raise GradError(f"grad can be computed only for real scalar outputs but got {root.dtype}")
            value = table.new_full(root.detach(), shape=root.raw.shape, value=1, dtype=root.raw.dtype)
        else:
            if tuple(grad.raw.shape) != tuple(root.raw.shape):
                raise GradError(
                    f"Mismatch in shape: grad_output[0] has a shape of {grad.shape} and output[0] has a shape of {root.shape}."
                )
            value = grad
            if value.raw.dtype != root.raw.dtype:
                value = table.cast(value, dtype=root.raw.dtype)
        result.append(value if sweep.as_tensors else value.raw)
    return result
