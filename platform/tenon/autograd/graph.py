"""torch.autograd.graph: nodes, edges, and hooks over several tensors or over what is saved."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tenon.autograd.function_context import FunctionCtx
from tenon.engine import tape
from tenon.engine.grad_mode import UNCOUNTED
from tenon.engine.running_pass import PASS, queue_callback
from tenon.engine.sweep import Sweep
from tenon.errors import GradError, MutationError
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.autograd.nodes import AccumulateGrad, GradientEdge, accumulator_of
from tenon.tensors.autograd.saved_tensor_hooks import SavedTensorsHooks, disable_saved_tensors_hooks
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


#: The counter's id, version, address, shape and strides of a saved tensor.
CopyKey: TypeAlias = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


class _NodeMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (tape.Node, AccumulateGrad, FunctionCtx))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, (tape.Node, AccumulateGrad, FunctionCtx))


class Node(metaclass=_NodeMeta):
    """Base class of ``grad_fn`` and of a custom Function's ``ctx``, for ``isinstance`` as in PyTorch."""


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Increment the version counter of ``tensor`` (or several) after a change that no op recorded."""
    for each in (tensor,) if isinstance(tensor, Tensor) else tensor:
        if each._version_counter is not UNCOUNTED:
            each._counter()[0] += 1


class _unsafe_preserve_version_counter:
    """Restore the version counters of ``tensors`` at the end of the block, hiding in-place changes in it."""

    def __init__(self, tensors: Tensor | Iterable[Tensor]) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        """Do nothing: the constructor has read the versions."""

    def __exit__(self, *exc: object) -> None:
        for tensor, version in zip(self.tensors, self.versions, strict=True):
            tensor._counter()[0] = version


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the ``GradientEdge`` of a tensor: its node and its index among that node's outputs.

    The node of a leaf is its ``AccumulateGrad``. GradError unless the tensor requires grad.
    """
    if not tensor.requires_grad:
        raise GradError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    node = tensor.grad_fn
    return GradientEdge(accumulator_of(tensor) if node is None else node, tensor.output_nr)


class saved_tensors_hooks(SavedTensorsHooks):
    """While active, ops save ``pack_hook(tensor)`` for each tensor, and backward calls ``unpack_hook`` on it.

    TypeError if ``unpack_hook`` returns anything but a tensor.
    """


class save_on_cpu(SavedTensorsHooks):
    """While active, saved tensors are copied to the CPU, and back to their device for backward.

    ``pin_memory`` and ``device_type`` have no effect.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: (t.device, t.cpu()), lambda packed: packed[1].to(packed[0]))


class _Copy:
    """A copy of a saved value, with the version at which it was saved."""

    __slots__ = ("__weakref__", "context", "counter", "tensor", "then")

    def __init__(self, value: Tensor, context: _CopiesSaved) -> None:
        self.tensor, self.context, self.counter = value.clone(), context, value._counter()
        self.then = self.counter[0]


class _CopiesSaved:
    """The context that ``allow_mutation_on_saved_tensors`` yields: values saved by graphs still alive."""

    def __init__(self) -> None:
        #: By memory, shape and version of the saved tensor.
        self.tid_to_weakhandle: weakref.WeakValueDictionary[CopyKey, _Copy] = weakref.WeakValueDictionary()

    @property
    def cloned(self) -> dict[CopyKey, Tensor]:
        """The copies whose originals were modified since they were saved."""
        copies = self.tid_to_weakhandle.items()
        return {key: c.tensor for key, c in copies if c.counter[0] != c.then}

    def pack(self, value: Tensor) -> _Copy:
        """Copy ``value``, once for all nodes that save it."""
        counter, raw = value._counter(), value.raw
        key = id(counter), counter[0], value.data_ptr(), tuple(raw.shape), tuple(raw.strides)
        copy = self.tid_to_weakhandle.get(key)
        if copy is None:
            copy = self.tid_to_weakhandle[key] = _Copy(value, self)
        return copy


class allow_mutation_on_saved_tensors(SavedTensorsHooks):
    """Allow in-place modification of saved tensors within the block: the tape copies each as it is saved.

    PyTorch copies only when a tensor is modified; here the copies take as much memory as all saved tensors.
    The backward pass has to run within the block.
    """

    _active = threading.local()

    def __init__(self) -> None:
        self.copies = _CopiesSaved()
        super().__init__(self.copies.pack, self._unpack)

    def _unpack(self, copy: _Copy) -> Tensor:
        if getattr(self._active, "copies", None) is not copy.context:
            raise MutationError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the"
                " graph was originally recorded."
            )
        return copy.tensor

    def __enter__(self) -> _CopiesSaved:  # type: ignore[override]
        if getattr(self._active, "copies", None) is not None:
            raise GradError("allow_mutation_on_saved_tensors contexts cannot be nested.")
        super().__enter__()
        self._active.copies = self.copies
        return self.copies

    def __exit__(self, *exc: object) -> None:
        self._active.copies = None
        super().__exit__(*exc)
        self.copies.tid_to_weakhandle.clear()


class _MultiHook:
    """Collects the gradients for ``register_multi_grad_hook``, separately for each backward pass."""

    def __init__(self, count: int, fn: Callable[[list[Tensor | None]], None]) -> None:
        self.count = count
        self.fn = fn
        self.passes: weakref.WeakKeyDictionary[Sweep | _MultiHook, _Arrived] = weakref.WeakKeyDictionary()
        self.lock = threading.Lock()

    def at(self, index: int) -> Callable[[Tensor], None]:
        """Return the hook for the tensor number ``index``."""

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
    """The gradients that one backward pass computed for a ``_MultiHook``."""

    def __init__(self, owner: _MultiHook) -> None:
        self.fn = owner.fn
        self.grads: list[Tensor | None] = [None] * owner.count
        self.number = 0

    def finish(self) -> None:
        """Call the hook with the gradients collected, unless this pass has called it already."""
        if self.number:
            grads, self.grads, self.number = self.grads, [None] * len(self.grads), 0
            self.fn(grads)


class _Handles(RemovableHandle):
    """A handle that removes several hooks."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __getstate__(self) -> Any:  # handles, where the base class has dictionaries
        return self.handles

    def __setstate__(self, state: Any) -> None:  # as ``__getstate__`` returns it
        self.handles = state


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Any], None],  # of a list of gradients, or with "any" of one
    *,
    mode: str = "all",
) -> RemovableHandle:
    """Call ``fn`` with the list of gradients of ``tensors`` once per backward pass, None where there is none.

    With ``mode="any"``, call it with the first gradient that is computed.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "all":
        shared = _MultiHook(len(tensors), fn)
        return _Handles([t.register_hook(shared.at(i)) for i, t in enumerate(tensors)])
    seen: weakref.WeakSet[object] = weakref.WeakSet()

    def first(grad: Tensor) -> None:
        key = PASS.sweep or PASS
        if key not in seen:
            seen.add(key)
            queue_callback(seen.clear) if key is PASS else None
            fn(grad)

    return _Handles([t.register_hook(first) for t in tensors])
