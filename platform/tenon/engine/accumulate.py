"""Accumulation of gradients into ``leaf.grad``, the last step of a backward pass at a leaf."""

from __future__ import annotations

from typing import Protocol

from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.types import Array, Gradient, NumpyDType, OpNamespace
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import GradError

#: Key of a leaf's ``GradientDestination`` in its ``__dict__``.
DESTINATION = "_gradient_destination"
#: Key of a leaf, in its ``__dict__``, with the reason why only eager functions may change it.
CHANGED_EAGERLY = "_changed_eagerly"


class GradientDestination(Protocol):
    """An external buffer for a leaf's gradient, as a bucket of data parallel, notified of each gradient.

    Register one in ``leaf.__dict__[DESTINATION]``.
    """

    def take(self, grad: Array) -> Array | None:
        """Move the first gradient of a pass into the buffer and return the array there; None to decline."""

    def ops(self, f: OpNamespace) -> OpNamespace:
        """The namespace ``f`` with which the rule of a pass's first gradient runs; its ops may write into the
        buffer."""

    def arrived(self) -> None:
        """Called after a gradient was added to ``leaf.grad``."""


def accumulate(leaf: Value, grad: Gradient, fresh: bool, create_graph: bool) -> None:
    """Add ``grad`` to ``leaf.grad``, in place unless ``create_graph``.

    ``fresh``: no other reference to the array exists, so that it need not be copied. A leaf that was frozen
    after the op ran is skipped unless it has a gradient destination.
    """
    current, backend = leaf._grad, leaf._backend
    extra = leaf.__dict__
    destination: GradientDestination | None = extra.get(DESTINATION)
    if not leaf._track and destination is None:
        return
    if grad.__class__ is not backend.array_type:
        if isinstance(grad, Value):
            _accumulate_tensor(leaf, current, grad, create_graph)
            if destination is not None:
                destination.arrived()
            return
        grad = backend.as_array(grad)
    raw = leaf.raw
    if grad.shape != raw.shape:
        raise GradError(
            f"a gradient of shape {list(grad.shape)} reached a tensor of shape {list(raw.shape)}: "
            "the rule of an op is wrong; please report it with the op's name."
        )
    kind = raw.dtype if "_grad_dtype" not in extra else _kind_of_grad(leaf, grad)
    if grad.dtype is not kind:
        grad = grad.astype(kind)
        fresh = True
    if current is None:
        taken = None if destination is None else destination.take(grad)
        if taken is not None:
            grad = taken
        elif raw.ndim > 3 and grad.strides != raw.strides:
            grad = _in_memory_format(raw, grad, fresh)
        elif not fresh:
            grad = grad.copy("K" if grad.strides == raw.strides else "C")
        # Set without the property, whose checks (0.7 us a leaf) the lines above have made.
        leaf._grad = Value.make(grad, backend)
    elif current._track:
        leaf.grad = current + Value.make(grad, backend)
    else:
        current._settle()
        current.raw += grad
        counter = current._version_counter
        if counter is not None:
            counter[0] += 1
    if destination is not None:
        destination.arrived()


def _in_memory_format(raw: Array, grad: Array, fresh: bool) -> Array:
    """Copy ``grad`` into the memory format of ``raw``, such as channels_last."""
    if raw.flags.c_contiguous and grad.flags.c_contiguous:  # strides may differ in axes of size 1
        return grad if fresh else grad.copy()
    order = sorted(range(raw.ndim), key=lambda axis: -raw.strides[axis])
    back = sorted(range(raw.ndim), key=order.__getitem__)
    return grad.transpose(order).copy().transpose(back)


def _kind_of_grad(leaf: Value, grad: Array) -> NumpyDType:
    """The NumPy dtype of ``leaf``'s gradient: the leaf's own unless ``grad_dtype`` is set."""
    requested = leaf.__dict__.get("_grad_dtype", leaf.dtype)
    return grad.dtype if requested is None else requested.numpy


def _accumulate_tensor(leaf: Value, current: Value | None, grad: Value, create_graph: bool) -> None:
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.gradient_read(leaf)
    previous, MODE.enabled = MODE.enabled, create_graph
    try:
        kind = _kind_of_grad(leaf, grad.raw)
        if grad.raw.dtype != kind:
            grad = table.cast(grad, dtype=kind)
        if current is None:
            leaf.grad = _copy_of(leaf, grad, create_graph)
        elif create_graph:
            leaf.grad = current + grad
        else:
            current.add_(grad)
    finally:
        MODE.enabled = previous


def _copy_of(leaf: Value, grad: Value, create_graph: bool) -> Value:
    """A copy of ``grad``, as two leaves may receive the same tensor, or views of one."""
    own: Value = grad if create_graph else Value.make(grad.raw, grad._backend)
    if not create_graph or leaf._node is not None:
        copy: Value = own.clone()
        return copy
    empty = leaf._backend.empty(
        grad.raw.shape, grad.raw.dtype, leaf.device
    )  # PyTorch's graph shows a copy here
    copied: Value = Value.make(empty, leaf._backend).copy_(own)
    return copied
