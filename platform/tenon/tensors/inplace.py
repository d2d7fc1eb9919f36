"""In-place operations: how ops write into a tensor's memory.

Untracked, an in-place op is its kernel writing into the tensor's own memory and a version bump. Tracked,
the op runs out of place on an alias of the old value, its result is copied in, and the tensor takes over
the result's history. If the tensor is a view, its base gets a ``CopySlices`` node: the gradient of the
base passes through everywhere except in the region of the view, where it goes through the op.
"""

from __future__ import annotations

import copy
from types import FunctionType
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np

from tenon import dtypes
from tenon.engine import scopes
from tenon.engine.aval import Aval
from tenon.engine.dispatch import explain
from tenon.engine.grad_mode import MODE, UNCOUNTED
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op, table
from tenon.engine.operands import LEAST, MOST
from tenon.engine.pending_copies import PENDING
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.value import FixedView, Value, move_retained
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, GradError, ShapeError, ViewError
from tenon.tensors.autograd.grad_mode import set_grad_enabled
from tenon.tensors.memory_overlap import check_read
from tenon.tensors.refused_writes import refuse_part, refuse_read_only, refuse_writing

if TYPE_CHECKING:
    from tenon.engine.tape import Node
    from tenon.engine.types import Array, Attrs, OpFunction
    from tenon.kernels.backend import Backend
    from tenon.tensors.tensor import Tensor

T = TypeVar("T", bound=Value)
_BOOL, _FLOAT16 = np.dtype(np.bool_), np.dtype(np.float16)
#: Types that an op that overwrites its first input accepts besides arrays; None is an absent bound.
_NUMBERS = (float, int, type(None))


def inplace(op: Op | OpFunction, x: T, *args: object, **attrs: object) -> T:
    """Run ``x[...] = op(x, *args)`` with autograd, views and versions, and return ``x``.

    ``op`` is an Op, or any function of tensors that does not modify its arguments.
    """
    if WATCHERS.changes is not None and not MODE.enabled and WATCHERS.changes(op, x, args, attrs):
        return x
    counter = x._version_counter
    if counter is None:
        counter = x._version_counter = [0]
    elif counter is UNCOUNTED and not MODE.inference:
        refuse_writing()
    if PENDING:
        x._settle()
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


def check_view(x: Value) -> None:
    """Raise ViewError if ``x`` is a view whose base cannot record a change, GradError if the base is a leaf
    that requires grad."""
    view = x._view
    if view is None or not view[0]._track:
        return
    if view[2].__class__ is FixedView:
        raise ViewError(view[2].message.format("is being modified"))
    if view[0]._node is None:
        _refuse_leaf(x, "a view of ")


def check_leaf(x: Value) -> None:
    """Raise GradError if ``x`` is a leaf that requires grad or a view of one, ViewError if it is a view that
    cannot be modified."""
    if x._view is not None:
        if x._view[2].__class__ is FixedView:
            raise ViewError(x._view[2].message.format("is being modified"))
        refuse_part(x._view)
        check_view(x)
        if x._track and x._view[0]._node is None:
            _refuse_leaf(x, "a view of ")
    if x._track and x._node is None:
        _refuse_leaf(x, "")


def _refuse_leaf(x: Value, prefix: str) -> NoReturn:
    raise GradError(
        f"{prefix}a leaf Variable that requires grad is being used in an in-place operation. (shape"
        f" {list(x.raw.shape)}{scopes.suffix()}) Wrap the change in no_grad(), or work on a clone()."
    )


def _untracked(op: Op | OpFunction, x: Value, args: tuple[object, ...], attrs: Attrs) -> None:
    """Write the result without recording: by the kernel with ``out=`` if possible, else as a copy."""
    raw = x.raw
    if (
        SLOT.top is None
        and isinstance(op, Op)
        and (op.is_ufunc or op.overwrites or op.in_place or op.name == "copy")
        and raw.dtype.kind == "f"
        and raw.ndim
        and raw.__class__ is not Aval
    ):
        operands = [a.raw if isinstance(a, Value) else a for a in args]
        if all(_may_overwrite(op, raw, each, x._backend) for each in operands):
            token = enter(IGNORE)
            try:
                own = x._backend.short_kernels if raw.dtype is _FLOAT16 else x._backend.kernels
                kernel: OpFunction = own[op]
                if WATCHERS.around_kernel is not None:
                    kernel = WATCHERS.around_kernel(x._backend, op, kernel)
                kernel(raw, *operands, out=raw, **attrs)
            except IndexError as error:
                explain(op, [raw, *operands], attrs, error)
            except ValueError as error:
                refuse_read_only(raw, op.name, error)
                raise
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


def _may_overwrite(op: Op, raw: Array, p: Array, backend: Backend) -> bool:
    """Whether the kernel of ``op`` may read ``p``, an array or number, while it overwrites ``raw``."""
    if not hasattr(p, "shape"):
        return p.__class__ in _NUMBERS and (p.__class__ is not int or LEAST <= p <= MOST)
    if op.in_place:
        return (p.dtype is raw.dtype or p.dtype.kind in "iu") and not backend.shares_memory(p, raw)
    return p.dtype is raw.dtype and (p.shape == raw.shape or p.ndim == 0) and not op.overwrites


def write(x: Value, array: Array, name: str) -> None:
    """Copy ``array`` into ``x``'s memory, with PyTorch's checks on shape and dtype."""
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
        try:
            raw[...] = array
        except ValueError as error:
            refuse_read_only(raw, name, error)
            raise
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.wrote(x, array)


def check_overlap(raw: Array) -> None:
    """Raise ViewError if elements of ``raw`` share memory, as after ``expand``."""
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


def _tracked(
    op: Op | OpFunction,
    x: Value,
    args: tuple[object, ...],
    attrs: Attrs,
    counter: list[int],
) -> None:
    """Run ``op`` on an alias of the old value, write the result into ``x`` and give ``x`` its history."""
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


def _alias(x: Value, copy: bool) -> Value:
    """Return the value of ``x`` before the change, with its history; copied if the gradient will read it."""
    if x._view is not None:
        x._refresh()
    old = Value.make(x.raw.copy() if copy and not isinstance(x.raw, Aval) else x.raw, x._backend)
    if WATCHERS.recorder is not None and old.raw is not x.raw:
        WATCHERS.recorder.copied(old.raw, x)
    node, index = x._node, x._index
    if (
        x._view is not None and x._view[2].__class__ is FunctionType
    ):  # a view by a custom Function: repeat its ops
        view = x._view[2](x._view[1])
        node, index = view._node, view._index
    elif x._view is not None and node is not None and (node.hooks or node.retained):
        node = copy_of(node)  # hooks stay with the old node, through which no gradient flows any more
    old._node, old._index, old._track = node, index, x._track
    return old


def copy_of(node: Node) -> Node:
    """Copy ``node`` without the hooks and retained gradients of its outputs."""
    result = copy.copy(node)
    result.hooks = result.retained = None
    return result


def turn_into_view(x: Tensor, name: str, *args: object) -> Tensor:
    """Turn ``x`` into the view of itself that its method ``name`` returns; return it.

    Without grad mode its history does not change, and a view of a base with history is still a view of it.
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
        before = Value.make(x.raw, x._backend)  # the former ``x`` in the chain of views
        before._node, before._index, before._track = x._node, x._index, x._track
        before._view, before._version_counter = view, x._version_counter
        version = other._view[4] if MODE.enabled else -1  # not recorded: replayed when it is read
        x._view = [view[0], before, *other._view[2:4], version]
    x.raw = other.raw
    if MODE.enabled:
        x._node, x._index, x._track = other._node, other._index, other._track
    x._settle()
    counter = x._counter()
    if counter is not UNCOUNTED:  # ops that saved the tensor would read it in another shape
        counter[0] += 1
        if x._view is not None and x._view[4] >= 0:
            x._view[4] = counter[0]
    return x


def adopt(x: Value, result: Value) -> None:
    """Replace the history of ``x``, whose memory holds the value of ``result``, by that of ``result``."""
    node, index = x._node, x._index
    view = x._view
    if view is None:
        x._node, x._index, x._track = result._node, result._index, result._track
    else:
        base = view[0]
        if result._node is None and not base._track:
            return
        copied = CopySlices(base, x, result)
        before, position = base._node, base._index
        base._node, base._index, base._track = copied, 0, True
        if before is not None and before.retained is not None:
            move_retained(base, before, position)
        x._refresh()  # moves what x retains
        return
    if node is not None and node.retained is not None:
        move_retained(x, node, index)


_COPY_SLICES = StandIn("copy_slices", "CopySlices")


class CopySlices(CustomNode):
    """History of a base after one of its views was modified in place."""

    __slots__ = ()

    chain: list[tuple[Op, Attrs]]
    crosses: bool
    shape: tuple[int, ...]
    order: list[int]

    def __init__(self, base: Value, view: Value, result: Value) -> None:
        super().__init__(_COPY_SLICES, base._backend, (base, result))
        raw = base.raw
        # The region is computed by replaying the views on an array with the base's strides: on other strides
        # some of them would copy.
        self.chain = _chain(view)
        self.crosses = any(not isinstance(op, Op) or op.splits_complex for op, _ in self.chain)
        self.shape = tuple(raw.shape)
        self.order = sorted(range(len(raw.shape)), key=lambda axis: -raw.strides[axis])

    def apply_tensors(self, grad: Tensor, create_graph: bool) -> list[Tensor | None]:
        """Return the gradient of the base, zero inside the view, and that of the op's result."""
        inside = grad
        for op, attrs in self.chain:
            inside = op(inside, **attrs)
        if not create_graph:
            inside = inside.clone()
        if self.edges[0] is None:
            return [None, inside]
        if grad.raw.dtype.kind == "c" and self.crosses:  # the view may show one part of each number only
            real, imag = table.real(grad), table.imag(grad)
            in_real, in_imag = self._region(grad, "real"), self._region(grad, "imag")
            return [table.rectangular(table.where(in_real, 0, real), table.where(in_imag, 0, imag)), inside]
        return [table.where(self._region(grad), 0, grad), inside]

    def _region(self, grad: Tensor, component: str = "") -> Tensor:
        """Return a mask of the elements, or of their ``component`` ("real", "imag"), that the view shows."""
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
                read = getattr(mask.raw, component) if component and flags is None else mask.raw
                mask = Value.make(read != 0 if flags is None else flags, mask._backend)
            if WATCHERS.recorder is not None and not isinstance(
                mask.raw, Aval
            ):  # no op wrote it that the recorder could have seen
                mask = Value.make(mask.raw.copy(), mask._backend)
                WATCHERS.recorder.made(mask.raw)
        return mask


def _chain(view: Value) -> list[tuple[Op, Attrs]]:
    """The view ops from the base to ``view``, with their attrs."""
    steps: list[tuple[Op, Attrs]] = []
    step = view._view
    while step is not None:
        steps.append((step[2], step[3]))
        step = step[1]._view
    return steps[::-1]
