"""Connect the outputs of a custom Function's ``forward`` to its autograd node.

Outputs that are unchanged inputs, or views, are replaced by new tensors on the same memory, as their gradient
goes through the Function, not through the view. For that reason most of them cannot be modified in place.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.value import FixedView
from tenon.engine.watchers import WATCHERS
from tenon.errors import GradError, TenonWarning
from tenon.tensors.inplace import adopt, check_leaf
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.autograd.function import Function, FunctionNode
    from tenon.autograd.function_context import FunctionCtx

_ONE_OF_SEVERAL = (
    "Output {} of {} is a view and {{}} inplace. This view is the output of a function that returns multiple"
    " views. Such functions do not allow the output views to be modified inplace. You should replace the"
    " inplace operation by an out-of-place one."
)
_RETURNED_VIEW = (
    "Output {} of {} is a view and {{}} inplace. This view was created inside a custom Function (or because"
    " an input was returned as-is) and the autograd logic to handle view+inplace would override the custom"
    " backward associated with the custom Function, leading to incorrect gradients. This behavior is"
    " forbidden. You can fix this by cloning the output of the custom Function."
)


def connected(
    cls: type[Function],
    ctx: FunctionCtx,
    node: FunctionNode | None,
    args: tuple[object, ...],
    outputs: tuple[object, ...],
) -> tuple[object, ...]:
    """Return ``outputs`` with ``node`` as their ``grad_fn``; without a node, none is connected."""
    inputs = {id(a) for a in args if isinstance(a, Tensor)}
    dirty = {id(t) for t in ctx.dirty_tensors}
    plain = {id(t) for t in ctx.non_differentiable}
    for t in ctx.dirty_tensors:
        if id(t) not in inputs and t._view is not None and node is not None:
            raise GradError(
                f"ctx.mark_dirty of {cls.__name__} received a tensor that was not an input. Mark inputs only."
            )
        if id(t) not in inputs:
            warnings.warn(
                "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there"
                " is no need to pass it to mark_dirty().",
                TenonWarning,
                stacklevel=4,
            )
    if dirty - {id(o) for o in outputs}:
        raise GradError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs"
            f" that are modified inplace must all be outputs of the Function. ({cls.__name__})"
        )
    for t in ctx.dirty_tensors:
        if node is not None:
            check_leaf(t)
        t._counter()[0] += 1
    if dirty and len(outputs) > 1 and node is not None:
        for t in ctx.dirty_tensors:
            if t._view is not None:
                raise GradError(
                    "If your Function modifies inplace an input that is a view of another Tensor, your"
                    f" Function cannot return more than one Tensor: {cls.__name__} returns {len(outputs)}."
                    " Return only that one, or clone the view first."
                )
    if node is not None:
        node.__dict__["plain"] = frozenset(i for i, o in enumerate(outputs) if id(o) in plain)
    flowing = [
        o for o in outputs if isinstance(o, Tensor) and id(o) not in plain and o.raw.dtype.kind not in "iub"
    ]
    message = _ONE_OF_SEVERAL if len(flowing) > 1 else _RETURNED_VIEW
    replay = _replayed(cls, args, outputs) if ctx._is_pure_view else None
    connected: list[object] = []
    saved_as: dict[int, int] = {}
    avals: list[Aval | None] = []
    for index, o in enumerate(outputs):
        if not isinstance(o, Tensor):
            connected.append(o)
            avals.append(None)
            continue
        avals.append(Aval(tuple(o.raw.shape), o.raw.dtype))
        if node is None or id(o) in plain or o.raw.dtype.kind in "iub":
            o = o.detach() if id(o) in inputs and id(o) not in dirty else o
            if (
                o._view is not None
                and id(o) not in inputs
                and MODE.enabled
                and o._view[2].__class__ is not FixedView
            ):
                fixed = FixedView(message.format(index, f"{cls.__name__}Backward"))
                o._view = [o._view[0], o._view[1], fixed, {}, o._view[4]]
        else:
            saved_as[id(o)] = index
            reason = message.format(index, f"{cls.__name__}Backward")
            o = _tracked_output(node, index, o, id(o) in inputs, id(o) in dirty, reason, replay)
        connected.append(o)
    if node is not None:
        node.op.outputs = 1 if len(outputs) == 1 else 0
        node.output_avals = tuple(avals)
        ctx._store_saved(saved_as)
        if WATCHERS.taped is not None:
            WATCHERS.taped(node)
    ctx.dirty_tensors = ctx.non_differentiable = ()
    return tuple(connected)


def _tracked_output(
    node: FunctionNode,
    index: int,
    o: Tensor,
    is_input: bool,
    is_dirty: bool,
    reason: str,
    replay: tuple[Tensor, Callable[[Tensor], Tensor]] | None,
) -> Tensor:
    """Return ``o`` as output ``index`` of ``node``.

    In-place changes of a view raise ``reason``; those of a pure view call ``replay``, its input and function.
    """
    if is_dirty:
        result = Tensor.make(o.raw, o._backend)
        result._node, result._index, result._track = node, index, True
        adopt(o, result)
        return o
    if is_input or o._view is not None or (o._track and o._node is None):
        base, parent = (o, o) if o._view is None else (o._view[0], o)
        op: FixedView | Callable[[Tensor], Tensor] = FixedView(reason)
        if replay is not None:
            source, op = replay
            parent = source if base is source or (source._view and base is source._view[0]) else o
        alias = Tensor.make(o.raw, o._backend)
        counter = alias._version_counter = o._counter()
        alias._view = [base, parent, op, {}, counter[0]]
        o = alias
    o._node, o._index, o._track = node, index, True
    return o


def _replayed(
    cls: type[Function],
    args: tuple[Any, ...],  # of ``forward``: tensors, and whatever it takes
    outputs: tuple[object, ...],
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the only tensor input of a pure view, and ``cls.forward`` as a function of it."""
    positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    if len(positions) != 1 or sum(isinstance(o, Tensor) for o in outputs) != 1:
        raise GradError(
            "Pure view custom Function can only have one input Tensor and one output Tensor. Open an issue if"
            f" you need to support more. ({cls.__name__} has {len(positions)} and"
            f" {sum(isinstance(o, Tensor) for o in outputs)})"
        )
    before, after = args[: positions[0]], args[positions[0] + 1 :]

    return args[positions[0]], lambda x: cls._call_forward(*before, x, *after)
