"""torch.autograd.graph: nodes, edges, and hooks over several tensors or over what is saved."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenon.autograd.context import FunctionCtx
from tenon.engine import tape
from tenon.engine.backward_end import PASS, queue_callback
from tenon.engine.grad_mode import UNCOUNTED
from tenon.engine.value import Value
from tenon.errors import GradError, MutationError
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.autograd.nodes import AccumulateGrad, GradientEdge, accumulator_of
from tenon.tensors.autograd.saved_tensor_hooks import SavedTensorsHooks, disable_saved_tensors_hooks

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

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
    """Base class of ``grad_fn`` and of a custom Function's ``ctx``, for ``isinstance`` as in PyTorch."""


def increment_version(tensor: Any) -> None:
    """Increment the version counter of ``tensor`` (or several) after a change that autograd did not see."""
    for each in (tensor,) if isinstance(tensor, Value) else tensor:
        if each._version_counter is not UNCOUNTED:
            each._counter()[0] += 1


class _unsafe_preserve_version_counter:
    """Restore the version counters of ``tensors`` at the end of the block, hiding in-place changes in it."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Value) else tuple(tensors)
        self.versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        """Nothing to do: the constructor has read the versions."""

    def __exit__(self, *exc: object) -> None:
        for tensor, version in zip(self.tensors, self.versions, strict=True):
            tensor._counter()[0] = version


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the edge that ``tensor``'s gradient flows along; a leaf's node is its ``AccumulateGrad``."""
    if not tensor.requires_grad:
        raise GradError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    node = tensor.grad_fn
    return GradientEdge(accumulator_of(tensor) if node is None else node, tensor.output_nr)


class saved_tensors_hooks(SavedTensorsHooks):
    """While active, every value that the tape saves goes through ``pack_hook``, and back through
    ``unpack_hook``."""


class save_on_cpu(SavedTensorsHooks):
    """While active, the tape keeps what it saves on the CPU, and brings it back for backward."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class _Copy:
    """A copy of a saved value, with the version at which it was saved."""

    __slots__ = ("__weakref__", "context", "counter", "tensor", "then")

    def __init__(self, value: Any, context: Any) -> None:
        self.tensor, self.context, self.counter = value.clone(), context, value._counter()
        self.then = self.counter[0]


class _CopiesSaved:
    """The context that ``allow_mutation_on_saved_tensors`` yields: values saved by graphs still alive."""

    def __init__(self) -> None:
        #: By memory, shape and version of the value.
        self.tid_to_weakhandle: weakref.WeakValueDictionary[Any, _Copy] = weakref.WeakValueDictionary()

    @property
    def cloned(self) -> dict[Any, Any]:
        """The copies whose originals were modified since they were saved."""
        kept = self.tid_to_weakhandle.items()
        return {key: c.tensor for key, c in kept if c.counter[0] != c.then}

    def pack(self, value: Tensor) -> _Copy:
        """Copy ``value``, once for all nodes that save it."""
        counter, raw = value._counter(), value.raw
        key = id(counter), counter[0], value.data_ptr(), tuple(raw.shape), tuple(raw.strides)
        found = self.tid_to_weakhandle.get(key)
        if found is None:
            found = self.tid_to_weakhandle[key] = _Copy(value, self)
        return found


class allow_mutation_on_saved_tensors(SavedTensorsHooks):
    """Allow in-place modification of saved tensors within the block: the tape copies each as it is saved.

    torch copies when a value is modified; so here this costs the memory of all that is saved. The backward
    pass has to run inside.
    """

    _active = threading.local()

    def __init__(self) -> None:
        self.copies = _CopiesSaved()
        super().__init__(self.copies.pack, self._unpack)

    def _unpack(self, kept: _Copy) -> Tensor:
        if getattr(self._active, "copies", None) is not kept.context:
            raise MutationError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the"
                " graph was originally recorded."
            )
        return kept.tensor

    def __enter__(self) -> Any:
        if getattr(self._active, "copies", None) is not None:
            raise GradError("allow_mutation_on_saved_tensors contexts cannot be nested.")
        super().__enter__()
        self._active.copies = self.copies
        return self.copies

    def __exit__(self, *exc: object) -> None:
        self._active.copies = None
        super().__exit__(*exc)
        self.copies.tid_to_weakhandle.clear()


class _Multi:
    """Collects the gradients for ``register_multi_grad_hook``, separately for each backward pass."""

    def __init__(self, count: int, fn: Callable[[Any], None]) -> None:
        self.count = count
        self.fn = fn
        self.passes: weakref.WeakKeyDictionary[Any, _Arrived] = weakref.WeakKeyDictionary()
        self.lock = threading.Lock()

    def at(self, index: int) -> Callable[[Any], None]:
        def hook(grad: Tensor) -> None:
            with self.lock:
                key = PASS.sweep or self
                arrived = self.passes.get(key)
                if arrived is None:
                    arrived = self.passes[key] = _Arrived(self)
                arrived.grads[index] = grad
                arrived.number += 1
            queue_callback(arrived.finish)
            if arrived.number == self.count:
                arrived.finish()

        return hook


class _Arrived:
    """The gradients that one backward pass computed for a ``_Multi``."""

    def __init__(self, owner: _Multi) -> None:
        self.fn = owner.fn
        self.grads: list[Any] = [None] * owner.count
        self.number = 0

    def finish(self) -> None:
        """Call the hook with the gradients collected, unless this pass has called it already."""
        if self.number:
            grads, self.grads, self.number = self.grads, [None] * len(self.grads), 0
            self.fn(grads)


class _Handles(RemovableHandle):
    """A handle that removes several hooks."""

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
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def first(grad: Any) -> None:
        key = PASS.sweep or PASS
        if key not in seen:
            seen.add(key)
            queue_callback(seen.clear) if key is PASS else None
            fn(grad)

    return _Handles([t.register_hook(first) for t in tensors])
