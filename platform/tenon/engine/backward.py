"""Set up a backward pass, collect its results, run its final callbacks.

``sweep.py`` traverses the graph; here the initial gradients are checked, the nodes that lead to requested
inputs are marked, and callbacks queued by hooks are called. ``backward`` and ``grad`` as PyTorch has them,
with the checks of their arguments, are in ``tensors/autograd/passes.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NoReturn

from tenon.engine.accumulate import accumulate
from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.running_pass import EVERY, PASS, RECURSION_LIMIT, call_queued
from tenon.engine.sweep import Sweep
from tenon.engine.tape import LEAF, Node
from tenon.engine.types import Array, Gradient, NumpyDType
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import GradError


def accumulate_gradients(
    roots: Sequence[Value],
    gradients: Sequence[Value | None],
    *,
    keep_graph: bool,
    create_graph: bool,
    targets: Sequence[Value] | None = None,
) -> None:
    """Add the gradients of ``roots`` to ``grad`` of the leaves behind them, or only of ``targets``.

    ``gradients``: what each root's gradient starts from; None for ones, for a scalar.
    """
    sweep = Sweep(create_graph, keep_graph)
    initial = _initial(roots, gradients, sweep)
    if targets is not None:
        _restrict(sweep, roots, targets)
    _run(sweep, roots, initial)
    for target in targets or ():
        if target._node is not None and isinstance(target, Value):
            value = sweep.collected[_key(target)]  # type: ignore[index]
            if value is not None:
                accumulate(target, value, False, create_graph)
    if PASS.queued:
        call_queued()


def collect_gradients(
    roots: Sequence[Value],
    gradients: Sequence[Value | None],
    targets: Sequence[Value],
    *,
    keep_graph: bool,
    create_graph: bool,
) -> list[Value | None]:
    """The gradients of ``roots`` with respect to ``targets``; None for a target that none reached."""
    sweep = Sweep(create_graph, keep_graph)
    sweep.accumulates = False
    initial = _initial(roots, gradients, sweep)
    _restrict(sweep, roots, targets)
    _run(sweep, roots, initial)
    result = []
    for target in targets:
        value = sweep.collected[_key(target)]  # type: ignore[index]
        if value is not None and not (create_graph and isinstance(value, Value)):
            backend = value._backend if isinstance(value, Value) else target._backend
            array = _data(value) if isinstance(value, Value) else backend.as_array(value)
            value = Value.make(array, backend)
        if value is not None and isinstance(target, Value) and value.raw.dtype != target.raw.dtype:
            value = _cast(value, target.raw.dtype, create_graph)  # rules may compute wider than the input is
        result.append(value)
    if PASS.queued:
        call_queued()
    return result


def _cast(value: Value, dtype: NumpyDType, create_graph: bool) -> Value:
    previous, MODE.enabled = MODE.enabled, create_graph
    try:
        result: Value = table.cast(value, dtype=dtype)
        return result
    finally:
        MODE.enabled = previous


def _run(sweep: Sweep, roots: Sequence[Value], grads: Sequence[Gradient]) -> None:
    previous, outer, around = MODE.enabled, PASS.partial, PASS.sweep
    inside = PASS.inside = PASS.inside + 1
    if not inside % EVERY:
        RECURSION_LIMIT.increase()
    token = enter(IGNORE)
    try:
        MODE.enabled, PASS.partial, PASS.sweep = sweep.create_graph, sweep.collected is not None, sweep
        if WATCHERS.span is None:
            sweep.run(roots, grads)
        else:
            with WATCHERS.span("backward", "backward"):
                sweep.run(roots, grads)
    except BaseException:
        PASS.queued = ()
        raise
    finally:
        MODE.enabled, PASS.partial, PASS.sweep = previous, outer, around
        leave(token)
        PASS.inside = inside - 1
        if not inside % EVERY:
            RECURSION_LIMIT.restore()


def _key(tensor: Value) -> tuple[int, int]:
    return (id(tensor), LEAF) if tensor._node is None else (id(tensor._node), tensor._index)


def _restrict(sweep: Sweep, roots: Sequence[Value], targets: Sequence[Value]) -> None:
    """Restrict ``sweep`` to collecting gradients at ``targets`` and visiting nodes that lead there."""
    for t in targets:
        if t._view is not None:
            t._refresh()
    sweep.collected = {_key(t): None for t in targets}
    target_nodes = {id(t) if t._node is None else id(t._node) for t in targets}
    needed = sweep.needed = set()
    for node in _oldest_first(roots):
        leads = any(e is not None and (id(e[0]) in needed or id(e[0]) in target_nodes) for e in node.edges)
        if leads or id(node) in target_nodes:
            needed.add(id(node))
        if id(node) in target_nodes:
            node.watched = True
            if not leads:
                sweep.stops.add(id(node))


def _oldest_first(roots: Sequence[Value]) -> list[Node]:
    """The nodes behind ``roots``, each after all nodes that its edges lead to."""
    nodes: dict[int, Node] = {}
    stack = [root._node for root in roots if root._node is not None]
    while stack:
        node = stack.pop()
        if id(node) not in nodes:
            nodes[id(node)] = node
            stack += [e[0] for e in node.edges if e is not None and e[1] != LEAF]
    return sorted(nodes.values(), key=attrgetter("seq"))


def _initial(roots: Sequence[Value], grads: Sequence[Value | None], sweep: Sweep) -> list[Gradient]:
    """Check and return the initial gradients: ones for scalars where none is given."""
    if len(grads) != len(roots):
        raise GradError(f"got {len(roots)} tensors and {len(grads)} gradients; pass one gradient per tensor")
    result: list[Gradient] = []
    for root, grad in zip(roots, grads, strict=True):
        if root._view is not None:
            root._refresh()
        if not (root._track or root.requires_grad):
            raise GradError(
                "element 0 of tensors does not require grad and does not have a grad_fn: nothing that led to"
                " it requires grad. Set requires_grad on a leaf, and compute outside no_grad()."
            )
        if grad is None:
            raw = root.raw
            if raw.size != 1 or raw.dtype.kind == "c":
                _refuse_implicit(root)
            ones = root._backend.raw.new_full(raw, shape=raw.shape, value=1, dtype=raw.dtype)
            if WATCHERS.recorder is not None:
                WATCHERS.recorder.made(ones)
            result.append(Value.make(ones, root._backend) if sweep.as_tensors else ones)
        else:
            value = _checked(root, grad)
            result.append(value if sweep.as_tensors else _data(value))
    return result


def _refuse_implicit(root: Value) -> NoReturn:
    """Raise GradError: ``root`` is not a real scalar, so that its gradient must be given."""
    if root.raw.size != 1:
        raise GradError(
            "grad can be implicitly created only for scalar outputs, not for shape"
            f" {list(root.raw.shape)}. Reduce it to a scalar (.sum(), .mean()), or pass gradient=."
        )
    raise GradError(
        f"grad can be implicitly created only for real scalar outputs but got {root.dtype}. Take"
        " .real or .abs() of it, or pass gradient=."
    )


def _checked(root: Value, grad: Value) -> Value:
    raw = root.raw
    if tuple(grad.raw.shape) != tuple(raw.shape):
        raise GradError(
            f"Mismatch in shape: grad_output[0] has a shape of {grad.shape} and output[0] has a shape"
            f" of {root.shape}."
        )
    if (grad.raw.dtype.kind == "c") is not (raw.dtype.kind == "c"):
        raise GradError(
            "For complex Tensors, both grad_output and output are required to have the same dtype."
            f" Mismatch in dtype: grad_output[0] has a dtype of {grad.dtype} and output[0] has a"
            f" dtype of {root.dtype}."
        )
    cast: Value = grad if grad.raw.dtype == raw.dtype else table.cast(grad, dtype=raw.dtype)
    return cast


def _data(value: Value) -> Array:
    """The backend array of ``value``; a wrapper subclass is converted to one."""
    raw = value.raw
    backend = value._backend
    return raw if raw.__class__ is backend.array_type else backend.as_array(raw)
