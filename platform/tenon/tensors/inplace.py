"""In-place operations: the one place where a tensor's memory changes.

Untracked, an in-place op is its kernel writing into the tensor's own memory and a version bump. Tracked,
the op runs out of place on an alias of the old value, its result is copied in, and the tensor takes over
the result's history. If the tensor is a view, its base gets a ``CopySlices`` node: the gradient of the
base passes through everywhere except in the region of the view, where it goes through the op.
"""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from tenon import dtypes
from tenon.engine import scopes
from tenon.engine.aval import Aval
from tenon.engine.dispatch import explain, result_of
from tenon.engine.grad_mode import MODE, UNCOUNTED, set_grad_enabled
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op, table
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.value import FixedView, Value, move_retained, refuse_part, refuse_writing
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, GradError, ShapeError, ViewError
from tenon.tensors.overlap import check_read

_BOOL = np.dtype(np.bool_)
#: What an op that writes over its first input takes besides arrays; None is a bound that is missing.
_NUMBERS = (float, int, type(None))


def inplace(op: Any, x: Any, *args: Any, **attrs: Any) -> Any:
    """``x`` after ``x[...] = op(x, *args)``; autograd, views and versions kept right.

    ``op`` is an Op, or any function of tensors that leaves its arguments alone.
    """
    if WATCHERS.changes is not None and not MODE.enabled and WATCHERS.changes(op, x, args, attrs):
        return x
    counter = x._version_counter
    if counter is None:
        counter = x._version_counter = [0]
    elif counter is UNCOUNTED and not MODE.inference:
        refuse_writing()
    raw = x.raw
    if 0 in raw.strides:
        check_overlap(raw)
    for a in args:
        if isinstance(a, Value) and (a._view is not None or x._view is not None or a is x):
            check_read(op, x, args)
            break
    tracked = False
    if MODE.enabled:
        tracked = x._track or x._stale()
        for a in args:
            if isinstance(a, Value) and (a._track or a._stale()):
                tracked = True
    if tracked:
        check_leaf(x)
        _tracked(op, x, args, attrs, counter)
    else:
        if MODE.enabled:
            check_view(x)
        _untracked(op, x, args, attrs)
        counter[0] += 1
    return x


def check_view(x: Any) -> None:
    """ViewError if ``x`` is a view whose base cannot get the history of a change, GradError if that is a leaf
    that requires grad."""
    view = x._view
    if view is None or not view[0]._track:
        return
    if view[2].__class__ is FixedView:
        raise ViewError(view[2].message.format("is being modified"))
    if view[0]._node is None:
        _refuse_leaf(x, "a view of ")


def check_leaf(x: Any) -> None:
    """GradError if ``x`` is a leaf that requires grad or a view of one, ViewError if it is a view that cannot
    change."""
    if x._view is not None:
        if x._view[2].__class__ is FixedView:
            raise ViewError(x._view[2].message.format("is being modified"))
        refuse_part(x._view)
        check_view(x)
        if x._track and x._view[0]._node is None:
            _refuse_leaf(x, "a view of ")
    if x._track and x._node is None:
        _refuse_leaf(x, "")


def _refuse_leaf(x: Any, how: str) -> NoReturn:
    raise GradError(
        f"{how}a leaf Variable that requires grad is being used in an in-place operation. (shape"
        f" {list(x.raw.shape)}{scopes.suffix()}) Wrap the change in no_grad(), or work on a clone()."
    )


def _untracked(op: Any, x: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    raw = x.raw
    if (
        SLOT.top is None
        and isinstance(op, Op)
        and (op.is_ufunc or op.overwrites or op.in_place or op.name == "copy")
        and raw.dtype.kind == "f"
        and raw.ndim
        and raw.__class__ is not Aval
    ):
        plain = [a.raw if isinstance(a, Value) else a for a in args]
        if all(_goes_over(op, raw, p, x._backend) for p in plain):
            token = enter(IGNORE)
            try:
                kernel: Any = x._backend.kernels[op]
                if WATCHERS.around_kernel is not None:
                    kernel = WATCHERS.around_kernel(x._backend, op, kernel)
                kernel(raw, *plain, out=raw, **attrs)
            except IndexError as error:
                explain(op, [raw, *plain], attrs, error)
            finally:
                leave(token)
            return
    previous = MODE.enabled
    try:
        MODE.enabled = False
        result = op(x, *args, **attrs)
    finally:
        MODE.enabled = previous
    write(x, result.raw, getattr(op, "name", None) or op.__name__)


def _goes_over(op: Op, raw: Any, p: Any, backend: Any) -> bool:
    """Whether a kernel may read ``p`` while it writes over ``raw``."""
    if not hasattr(p, "shape"):
        return p.__class__ in _NUMBERS
    if op.in_place:
        return (p.dtype is raw.dtype or p.dtype.kind in "iu") and not backend.shares_memory(p, raw)
    return p.dtype is raw.dtype and (p.shape == raw.shape or p.ndim == 0) and not op.overwrites


def write(x: Any, array: Any, name: str) -> None:
    """Copy ``array`` into ``x``'s memory, with torch's checks on shape and dtype."""
    raw = x.raw
    if isinstance(raw, Aval):
        _check_shape(raw.shape, array.shape)
        return
    if array.dtype != raw.dtype:
        source, target = dtypes.FROM_NUMPY[array.dtype], dtypes.FROM_NUMPY[raw.dtype]
        if not dtypes.can_cast(source, target):
            raise DTypeError(
                f"result type {dtypes.scalar_name(source)} can't be cast to the desired output type"
                f" {dtypes.scalar_name(target)}"
                f" ({name}_ on a {target} tensor). Use the out-of-place form or convert the tensor first."
            )
    _check_shape(raw.shape, array.shape)
    check_overlap(raw)
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.writing(x)
    if array is not raw:
        raw[...] = array
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.wrote(x, array)


def check_overlap(raw: Any) -> None:
    """ViewError if some elements of ``raw`` lie at one place, as after ``expand``."""
    if (
        0 in raw.strides
        and raw.size
        and any(step == 0 and size > 1 for step, size in zip(raw.strides, raw.shape, strict=True))
    ):
        raise ViewError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory"
            f" location. Please clone() the tensor before performing the operation. (shape {list(raw.shape)})"
        )


def _check_shape(own: tuple[int, ...], result: tuple[int, ...]) -> None:
    if tuple(own) != tuple(result):
        raise ShapeError(f"output with shape {list(own)} doesn't match the broadcast shape {list(result)}")


def _tracked(op: Any, x: Any, args: tuple[Any, ...], attrs: dict[str, Any], counter: list[int]) -> None:
    old = _alias(x, copy=not isinstance(op, Op) or op.saves_input(0))
    result = op(old, *args, **attrs)
    write(x, result.raw, getattr(op, "name", None) or op.__name__)
    counter[0] += 1
    node = result._node
    if result.raw.dtype != x.raw.dtype:
        result = table.cast(result, dtype=x.raw.dtype)
        node = result._node
    if node is not None and node.op is op and node.out is not None:
        node.out, node.out_counter, node.out_version = x.raw, counter, counter[0]
    adopt(x, result)


def _alias(x: Any, copy: bool) -> Any:
    """The value of ``x`` before the change, with its history; a copy if the gradient will read it."""
    if x._view is not None:
        x._refresh()
    old = result_of(x.raw.copy() if copy and not isinstance(x.raw, Aval) else x.raw, x._backend)
    if WATCHERS.recorder is not None and old.raw is not x.raw:
        WATCHERS.recorder.copied(old.raw, x)
    node, index = x._node, x._index
    if x._view is not None and x._view[2].__class__ is FunctionType:  # a Function's pure view: by its ops
        again = x._view[2](x._view[1])
        node, index = again._node, again._index
    elif x._view is not None and node is not None and (node.hooks or node.retained):
        node = copy_of(node)  # hooks on a view are about it as it was: nothing flows through its old node
    old._node, old._index, old._track = node, index, x._track
    return old


def copy_of(node: Any) -> Any:
    """Another node that does as ``node``, without the hooks and retained gradients of its outputs."""
    made = copy.copy(node)
    made.hooks = made.retained = None
    return made


def become(x: Any, name: str, *args: Any) -> Any:
    """In-place view ops: ``x`` turns into the view of it that its method ``name`` makes.

    Untaped, it keeps its history; a view of what has one goes on to follow its base.
    """
    if x._version_counter is UNCOUNTED and not MODE.inference:
        refuse_writing()
    view = x._view
    if MODE.enabled:
        if view is not None and view[0]._track and view[2].__class__ is FixedView:
            raise ViewError(view[2].message.format("is being modified"))
        if view is not None and view[0]._track:
            refuse_part(view)
        if x._track and x._node is None:
            _refuse_leaf(x, "")
    follows = view is not None and view[0]._track and view[2].__class__ is not FixedView
    previous = MODE.enabled
    MODE.enabled = previous or (follows and not MODE.inference)
    try:
        other = getattr(x, name)(*args)
    finally:
        MODE.enabled = previous
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.exchanged(x)
    if view is not None and other._view is not None and view[2].__class__ is not FixedView:
        before = Value.make(x.raw, x._backend)  # stands in the chain of views for what x was
        before._node, before._index, before._track = x._node, x._index, x._track
        before._view, before._version_counter = view, x._version_counter
        version = other._view[4] if MODE.enabled else -1  # untaped: its history is made when it is asked for
        x._view = [view[0], before, *other._view[2:4], version]
    x.raw = other.raw
    if MODE.enabled:
        x._node, x._index, x._track = other._node, other._index, other._track
    counter = x._counter()
    if counter is not UNCOUNTED:  # what saved the tensor would find it in another shape
        counter[0] += 1
        if x._view is not None and x._view[4] >= 0:
            x._view[4] = counter[0]
    return x


def adopt(x: Any, result: Any) -> None:
    """Give ``x``, whose memory already holds ``result``'s value, ``result``'s history."""
    node, index = x._node, x._index
    view = x._view
    if view is None:
        x._node, x._index, x._track = result._node, result._index, result._track
    else:
        base = view[0]
        if result._node is None and not base._track:
            return
        copied = CopySlices(base, x, result)
        before, at = base._node, base._index
        base._node, base._index, base._track = copied, 0, True
        if before is not None and before.retained is not None:
            move_retained(base, before, at)
        x._refresh()  # moves what x retains
        return
    if node is not None and node.retained is not None:
        move_retained(x, node, index)


_COPY_SLICES = StandIn("copy_slices", "CopySlices")


class CopySlices(CustomNode):
    """History of a base after one of its views was modified in place."""

    __slots__ = ()

    chain: list[tuple[Any, dict[str, Any]]]
    crosses: bool
    shape: tuple[int, ...]
    order: list[int]

    def __init__(self, base: Any, view: Any, result: Any) -> None:
        super().__init__(_COPY_SLICES, base._backend, (base, result))
        raw = base.raw
        # The region is found by replaying the views on an array laid out like the base: only there are they
        # views.
        self.chain = _chain(view)
        self.crosses = any(not isinstance(op, Op) or op.splits_complex for op, _ in self.chain)
        self.shape = tuple(raw.shape)
        self.order = sorted(range(len(raw.shape)), key=lambda axis: -raw.strides[axis])

    def apply_tensors(self, grad: Any, create_graph: bool) -> list[Any]:
        """Gradient of the base outside the view, and of the op's result inside it."""
        inside = grad
        for op, attrs in self.chain:
            inside = op(inside, **attrs)
        if not create_graph:
            inside = inside.clone()
        if self.edges[0] is None:
            return [None, inside]
        if grad.raw.dtype.kind == "c" and self.crosses:  # the view may show one part of each number only
            real, imag = table.real(grad), table.imag(grad)
            ours, theirs = self._region(grad, "real"), self._region(grad, "imag")
            return [table.rectangular(table.where(ours, 0, real), table.where(theirs, 0, imag)), inside]
        return [table.where(self._region(grad), 0, grad), inside]

    def _region(self, grad: Any, part_of: str = "") -> Any:
        """True where the view lies, or where a part of the base's numbers lies in it."""
        order = self.order
        sizes = tuple(self.shape[axis] for axis in order)
        with set_grad_enabled(False):
            kind = grad.raw.dtype if self.crosses else _BOOL
            mask = table.new_full(grad.detach(), shape=sizes, value=0, dtype=kind)
            mask = table.permute(mask, axes=tuple(order.index(axis) for axis in range(len(order))))
            part = mask
            for op, attrs in self.chain:
                part = op(part, **attrs)
            if not isinstance(part.raw, Aval):
                part.raw[...] = 1 + 1j if part.raw.dtype.kind == "c" else 1
            if self.crosses:
                flags = Aval(tuple(mask.raw.shape), _BOOL) if isinstance(mask.raw, Aval) else None
                read = getattr(mask.raw, part_of) if part_of and flags is None else mask.raw
                mask = Value.make(read != 0 if flags is None else flags, mask._backend)
            if WATCHERS.recorder is not None and not isinstance(mask.raw, Aval):  # which saw no op write it
                mask = Value.make(mask.raw.copy(), mask._backend)
                WATCHERS.recorder.made(mask.raw)
        return mask


def _chain(view: Any) -> list[tuple[Any, dict[str, Any]]]:
    """The view ops from the base to ``view``."""
    steps: list[tuple[Any, dict[str, Any]]] = []
    while view._view is not None:
        steps.append((view._view[2], view._view[3]))
        view = view._view[1]
    return steps[::-1]
