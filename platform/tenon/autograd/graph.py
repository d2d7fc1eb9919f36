"""torch.autograd.graph: nodes, edges, and hooks over several tensors or over what is saved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tenon.autograd.context import FunctionCtx
from tenon.core import saving, tape
from tenon.core.backward_end import queue_callback
from tenon.core.edges import AccumulateGrad, GradientEdge, accumulator_of
from tenon.core.grad_mode import UNCOUNTED
from tenon.core.handle import RemovableHandle
from tenon.core.saving import disable_saved_tensors_hooks
from tenon.core.value import Value
from tenon.errors import GradError

__all__ = [
    "AccumulateGrad",
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class _NodeMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (tape.Node, AccumulateGrad, FunctionCtx))

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return subclass is cls or issubclass(subclass, (tape.Node, AccumulateGrad, FunctionCtx))


class Node(metaclass=_NodeMeta):
    """What ``grad_fn`` is, and a custom Function's ``ctx``: for ``isinstance``, as in torch."""


def increment_version(tensor: Any) -> None:
    """Count a change of the memory of ``tensor`` (or of several) that nobody else counted."""
    for each in (tensor,) if isinstance(tensor, Value) else tensor:
        if each._version_counter is not UNCOUNTED:
            each._counter()[0] += 1


class _unsafe_preserve_version_counter:
    """Inside, changes of ``tensors`` in place are not counted: at the end the versions are as they were."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Value) else tuple(tensors)
        self.versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        """The versions are known since the constructor ran."""

    def __exit__(self, *exc: object) -> None:
        for tensor, version in zip(self.tensors, self.versions, strict=True):
            tensor._counter()[0] = version


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The edge of ``tensor``'s gradient; a leaf's node is its ``AccumulateGrad``."""
    if not tensor.requires_grad:
        raise GradError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    node = tensor.grad_fn
    return GradientEdge(accumulator_of(tensor) if node is None else node, tensor.output_nr)


class saved_tensors_hooks(saving.SavedTensorsHooks):
    """While active, every value that the tape saves goes through ``pack_hook``, and back through
    ``unpack_hook``."""


class save_on_cpu(saving.SavedTensorsHooks):
    """While active, the tape keeps what it saves on the CPU, and brings it back for backward."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class allow_mutation_on_saved_tensors(saving.SavedTensorsHooks):
    """While active, values that the tape saves may be modified in place: it keeps a copy of each at once.

    torch copies when a value is modified; so here this costs the memory of all that is saved.
    """

    def __init__(self) -> None:
        super().__init__(lambda t: t.clone(), lambda packed: packed)


class _Multi:
    """Counts the gradients of one backward pass for ``register_multi_grad_hook``."""

    def __init__(self, count: int, fn: Callable[[Any], None]) -> None:
        self.count = count
        self.fn = fn
        self.grads: list[Any] = [None] * count
        self.arrived = 0
        self.lock = threading.Lock()

    def at(self, index: int) -> Callable[[Any], None]:
        def hook(grad: Any) -> None:
            with self.lock:
                self.grads[index] = grad
                self.arrived += 1
                complete = self.arrived == self.count
                queue_callback(self.finish)
            if complete:
                self.finish()

        return hook

    def finish(self) -> None:
        """Call the function with what came; nothing if it was called in this pass already."""
        if self.arrived:
            grads, self.grads, self.arrived = self.grads, [None] * self.count, 0
            self.fn(grads)


class _Handles(RemovableHandle):
    """Removes several hooks at once."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __getstate__(self) -> Any:
        return self.handles

    def __setstate__(self, state: Any) -> None:
        self.handles = state


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[[Any], None], *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` with the gradients of all ``tensors`` (None where none came), or with the first one
    (``mode="any"``)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "all":
        shared = _Multi(len(tensors), fn)
        return _Handles([t.register_hook(shared.at(i)) for i, t in enumerate(tensors)])
    seen: list[bool] = []

    def first(grad: Any) -> None:
        if not seen:
            seen.append(True)
            queue_callback(seen.clear)
            fn(grad)

    return _Handles([t.register_hook(first) for t in tensors])
