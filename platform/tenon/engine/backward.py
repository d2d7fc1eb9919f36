"""``backward`` and ``grad``: set up a backward pass, collect its results, run its final callbacks.

``sweep.py`` traverses the graph; here the roots and initial gradients are checked, the nodes that lead to
requested inputs are marked, and callbacks queued by hooks are called.
"""

from __future__ import annotations

import warnings
from typing import Any

from tenon.engine.accumulate import accumulate
from tenon.engine.backward_end import PASS, call_queued
from tenon.engine.depth import EVERY, ROOM
from tenon.engine.edges import EdgeEnd, GradientEdge, end_of
from tenon.engine.grad_mode import MODE, set_grad_enabled
from tenon.engine.op import table
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.sweep import Sweep
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, GradError, TenonWarning

_LEAF = -1
_CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its"
    " gradient which can cause a memory leak. Use autograd.grad for gradients with a graph, or set the .grad"
    " of your parameters to None after use."
)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into the leaves, or only into ``inputs``
    (torch.autograd.backward)."""
    if create_graph:
        warnings.warn(_CYCLE, TenonWarning, stacklevel=3)
    try:
        _backward(tensors, grad_tensors, retain_graph, create_graph, inputs)
    except BaseException:
        PASS.queued = ()
        raise
    if PASS.queued:
        call_queued()


def _backward(
    tensors: Any, grad_tensors: Any, retain_graph: bool | None, create_graph: bool, inputs: Any
) -> None:
    roots = _sequence(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    sweep = Sweep(create_graph, keep)
    grads = _initial(
        roots, _sequence(grad_tensors) if grad_tensors is not None else [None] * len(roots), sweep
    )
    if inputs is None:
        _run(sweep, roots, grads)
        return
    targets = _sequence(inputs)
    if not targets:
        raise GradError("`inputs` argument to `backward()` cannot be empty.")
    _check_wanted(targets)
    _want(sweep, roots, targets)
    _run(sweep, roots, grads)
    for target in targets:
        if target._node is not None and not isinstance(target, EdgeEnd):
            value = sweep.wanted[_key(target)]  # type: ignore[index]
            if value is not None:
                accumulate(target, value, False, create_graph)


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
    """Gradients of ``outputs`` with respect to ``inputs``, without touching any ``.grad``
    (torch.autograd.grad).

    ``is_grads_batched``: the first axis of each of ``grad_outputs`` is a batch axis: one pass is run per row,
    and the gradients are stacked along it.
    """
    if is_grads_batched:
        options = (retain_graph, create_graph, only_inputs, allow_unused, materialize_grads)
        return _batched(outputs, inputs, grad_outputs, *options)
    if allow_unused is False and materialize_grads:
        raise ArgumentError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got:"
            " allow_unused=False."
        )
    roots, targets = _sequence(outputs), _sequence(inputs)
    if not targets:
        raise ArgumentError("grad requires non-empty inputs.")
    keep = create_graph if retain_graph is None else retain_graph
    sweep = Sweep(create_graph, keep)
    sweep.accumulates = False
    grads = _initial(
        roots, _sequence(grad_outputs) if grad_outputs is not None else [None] * len(roots), sweep
    )
    _check_wanted(targets)
    _want(sweep, roots, targets)
    _run(sweep, roots, grads)
    collected = []
    for position, target in enumerate(targets):
        value = sweep.wanted[_key(target)]  # type: ignore[index]
        if value is None:
            if materialize_grads:
                if isinstance(target, EdgeEnd):
                    raise GradError(
                        "materialize_grads cannot be used when the given input is a GradientEdge that nothing"
                        " reached: pass the tensor, or allow_unused=True alone."
                    )
                value = table.new_full(
                    target.detach(), shape=target.raw.shape, value=0, dtype=target.raw.dtype
                ).requires_grad_(create_graph)
            elif not allow_unused:
                raise GradError(
                    f"The differentiated Tensor at index {position} appears to not have been used in the"
                    " graph. Set allow_unused=True if this is the desired behavior. (its shape:"
                    f" {list(target.raw.shape)})"
                )
        elif not isinstance(value, Value):
            value = Value.make(target._backend.as_array(value), target._backend)
        elif not create_graph:
            value = Value.make(_data(value), value._backend)
        if value is not None and not isinstance(target, EdgeEnd) and value.raw.dtype != target.raw.dtype:
            with set_grad_enabled(create_graph):  # rules may compute wider than the input is
                value = table.cast(value, dtype=target.raw.dtype)
        collected.append(value)
    if PASS.queued:
        call_queued()
    return tuple(collected)


def _batched(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any,
    retain_graph: bool | None,
    create_graph: bool,
    only_inputs: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    given = [] if grad_outputs is None else _sequence(grad_outputs)
    ends = _sequence(outputs)
    for index, (end, g) in enumerate(zip(ends, given, strict=False)):
        if g is not None and (not g.raw.ndim or tuple(g.raw.shape[1:]) != tuple(end.raw.shape)):
            raise GradError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the"
                " batch dimension. The sizes of the remaining dimensions are expected to match the shape of"
                f" corresponding output, but a mismatch was detected: grad_output[{index}] has a shape of"
                f" {g.shape} and output[{index}] has a shape of {end.shape}. If you only want some tensors in"
                " `grad_output` to be considered batched, consider using vmap."
            )
    counts = {g.raw.shape[0] for g in given if g is not None}
    if len(counts) != 1 or counts == {0}:
        raise GradError(
            "is_grads_batched=True wants grad_outputs whose first axes are of one size, at least 1; got "
            f"{[None if g is None else list(g.raw.shape) for g in given]}."
        )
    last = counts.pop() - 1
    keep = create_graph if retain_graph is None else retain_graph
    rows = [
        grad(
            outputs,
            inputs,
            [None if g is None else g[i] for g in given],
            keep or i < last,
            create_graph,
            only_inputs,
            allow_unused,
            False,
            materialize_grads,
        )
        for i in range(last + 1)
    ]
    return tuple(None if each[0] is None else table.stack(*each, axis=0) for each in zip(*rows, strict=True))


def _run(sweep: Sweep, roots: Any, grads: Any) -> None:
    previous, outer, around = MODE.enabled, PASS.partial, PASS.sweep
    inside = PASS.inside = PASS.inside + 1
    if not inside % EVERY:
        ROOM.take()
    token = enter(IGNORE)
    try:
        MODE.enabled, PASS.partial, PASS.sweep = sweep.create_graph, sweep.wanted is not None, sweep
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
            ROOM.leave()


def _sequence(value: Any) -> list[Any]:
    if value.__class__ is list and len(value) == 1 and isinstance(value[0], Value):
        return value
    if isinstance(value, (Value, GradientEdge)) or value is None:
        return [end_of(value)]
    return [end_of(v) for v in (value.values() if isinstance(value, dict) else value)]


def _check_wanted(targets: list[Any]) -> None:
    for position, target in enumerate(targets):
        if not target.requires_grad:
            raise GradError(
                f"One of the differentiated Tensors does not require grad: number {position}, of shape"
                f" {list(target.raw.shape)}. Call requires_grad_() on it before the computation."
            )


def _key(tensor: Any) -> tuple[int, int]:
    return (id(tensor), _LEAF) if tensor._node is None else (id(tensor._node), tensor._index)


def _want(sweep: Sweep, roots: Any, targets: Any) -> None:
    """Restrict ``sweep`` to collecting gradients at ``targets`` and visiting nodes that lead there."""
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
    """Set ``leads[id(node)]`` to whether a path from the node reaches a goal; iterative, for deep graphs."""
    stack = [(start, False)]
    while stack:
        node, done = stack.pop()
        if done:
            found = id(node) in goals
            for e in getattr(node, "edges", ()):
                if e is not None and leads.get(id(e[0])):
                    found = True
                    break
            leads[id(node)] = found
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
    """Check and return the initial gradients: ones for scalars where none is given."""
    if len(grads) != len(roots):
        raise GradError(f"got {len(roots)} tensors and {len(grads)} gradients")
    result = []
    for root, grad in zip(roots, grads, strict=True):
        if root._view is not None:
            root._refresh()
        if not (root._track or root.requires_grad):
            raise GradError(
                "element 0 of tensors does not require grad and does not have a grad_fn: nothing that led to"
                " it requires grad. Set requires_grad on a leaf, and compute outside no_grad()."
            )
        raw = root.raw
        if grad is None:
            if raw.size != 1:
                raise GradError(
                    "grad can be implicitly created only for scalar outputs, not for shape"
                    f" {list(raw.shape)}. Reduce it to a scalar (.sum(), .mean()), or pass gradient=."
                )
            if raw.dtype.kind == "c":
                raise GradError(
                    f"grad can be implicitly created only for real scalar outputs but got {root.dtype}. Take"
                    " .real or .abs() of it, or pass gradient=."
                )
            ones = root._backend.raw.new_full(raw, shape=raw.shape, value=1, dtype=raw.dtype)
            if WATCHERS.recorder is not None:
                WATCHERS.recorder.made(ones)
            result.append(Value.make(ones, root._backend) if sweep.as_tensors else ones)
            continue
        else:
            if tuple(grad.raw.shape) != tuple(raw.shape):
                raise GradError(
                    f"Mismatch in shape: grad_output[0] has a shape of {grad.shape} and output[0] has a shape"
                    f" of {root.shape}."
                )
            value = grad
            if (value.raw.dtype.kind == "c") is not (raw.dtype.kind == "c"):
                raise GradError(
                    "For complex Tensors, both grad_output and output are required to have the same dtype."
                    f" Mismatch in dtype: grad_output[0] has a dtype of {grad.dtype} and output[0] has a"
                    f" dtype of {root.dtype}."
                )
            if value.raw.dtype != raw.dtype:
                value = table.cast(value, dtype=raw.dtype)
        result.append(value if sweep.as_tensors else _data(value))
    return result


def _data(value: Any) -> Any:
    """The backend array of ``value``; a wrapper subclass is converted to one."""
    raw = value.raw
    backend = value._backend
    return raw if raw.__class__ is backend.array_type else backend.as_array(raw)


def _calculate_shape(output: Any, grad: Any, is_grads_batched: bool) -> tuple[Any, Any]:
    """The shapes of ``output`` and of ``grad``, the latter without the axis of a batch of gradients."""
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape
