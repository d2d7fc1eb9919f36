"""Communication hooks, which replace the plain mean of a bucket of gradients.

As in torch, ``hook(state, bucket)`` returns the reduced gradients, as a tensor or a ``tenon.futures.Future``
of one. ``find`` looks up hooks by name ("bf16", "fp16", ...), including those that plugins declare with
``tenon_comm_hooks``. Buckets are on the host, whatever the parameters' device.

16-bit hooks halve the bytes between hosts. Inside a host they do not pay off: casting takes longer than the
transfer through shared memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon import dtypes
from tenon.distributed.communication import staging
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.futures import Future
from tenon.distributed.communication.world import get_communicator
from tenon.errors import CommunicatorError, PluginNotFoundError
from tenon.plugins import registry
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import from_numpy, wrap
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.replicas.buckets import Bucket
    from tenon.distributed.replicas.gradients import GradientSynchronizer

#: ``hook(state, bucket)``; each hook has its own type of state, and returns a tensor or a future of one.
Hook: TypeAlias = Callable[[Any, "GradBucket"], "Tensor | Future[Tensor]"]
#: A hook that always returns a future; it passes its state on to another hook.
FutureHook: TypeAlias = Callable[[Any, "GradBucket"], "Future[Tensor]"]


class GradBucket:
    """A bucket of this rank's gradients, as passed to a hook: torch's ``dist.GradBucket``."""

    def __init__(self, bucket: Bucket, index: int, is_last: bool) -> None:
        self._bucket = bucket
        self._index = index
        self._is_last = is_last
        self._buffer: Tensor = wrap(bucket.flat, "cpu")

    def index(self) -> int:
        """The index of the bucket in the order of reduction."""
        return self._index

    def is_last(self) -> bool:
        """Whether no other bucket follows in this backward pass."""
        return self._is_last

    def name(self) -> str:
        """The name that ranks compare: the parameters and their model."""
        return self._bucket.name

    def buffer(self) -> Tensor:
        """All gradients as one flat tensor; between parameters lie a few zeros, for alignment."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the buffer that nested hooks see, for example by the gradients in another dtype."""
        if buffer.numel() != self._buffer.numel():
            raise CommunicatorError(
                f"set_buffer: {buffer.numel()} elements in place of {self._buffer.numel()}."
                " Keep their number."
            )
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradient of each parameter, as views of the buffer."""
        return [
            self._buffer[slot.start : slot.stop].reshape(slot.parameter.shape) for slot in self._bucket.slots
        ]

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of ``gradients``."""
        return [slot.parameter for slot in self._bucket.slots]


class _Reduced:
    """The ``Reduction`` of a bucket by a hook, which has returned ``result``."""

    def __init__(self, result: object, flat: np.ndarray, hook: Hook) -> None:
        self._result, self._flat, self._hook = result, flat, hook

    def wait(self) -> np.ndarray:
        """The reduced gradients; raises ``CommunicatorError`` if the hook's result does not fit."""
        result = self._result.wait() if hasattr(self._result, "wait") else self._result
        if isinstance(result, (list, tuple)) and len(result) == 1:
            result = result[0]
        array = staging.to_host(result) if isinstance(result, Tensor) else result
        if not isinstance(array, np.ndarray) or array.size != self._flat.size:
            raise CommunicatorError(
                f"the communication hook {name_of(self._hook)} returned {result!r:.80} for a bucket of "
                f"{self._flat.size} elements. Return a tensor like bucket.buffer(), or a Future of one."
            )
        if array.ctypes.data == self._flat.ctypes.data and array.dtype == self._flat.dtype:
            return self._flat
        return array


def reduction(synchronizer: GradientSynchronizer, state: object, hook: Hook) -> Callable[[Bucket], _Reduced]:
    """The function by which ``synchronizer`` reduces each bucket with ``hook``."""

    def reduce(bucket: Bucket) -> _Reduced:
        index = next(i for i, other in enumerate(synchronizer.buckets) if other is bucket)
        passed = GradBucket(bucket, index, index == len(synchronizer.buckets) - 1)
        with no_grad():
            return _Reduced(hook(state, passed), bucket.flat, hook)

    return reduce


def find(hook: Hook | str) -> Hook:
    """Return ``hook`` after checking its signature, or look it up by name."""
    if isinstance(hook, str):
        target = NAMED.get(hook)
        if target is not None:
            module, _, attribute = target.partition(":")
            named: Hook = getattr(__import__(module, fromlist=[attribute]), attribute)
            return named
        try:
            hook = registry.resolve("comm_hooks", hook)
        except PluginNotFoundError as error:
            known = ", ".join(sorted({*NAMED, *registry.names("comm_hooks")}))
            raise PluginNotFoundError(f"{error} Built in: {known}.") from error
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    parameters = inspect.signature(hook).parameters
    if "bucket" in parameters and parameters["bucket"].annotation not in (
        inspect.Parameter.empty,
        GradBucket,
        "GradBucket",
        "dist.GradBucket",
    ):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    if inspect.signature(hook).return_annotation is int:
        raise ValueError(
            "Communication hook: return annotation should be torch.futures.Future[torch.Tensor]."
        )
    return hook


def name_of(hook: Hook) -> str:
    """The name of ``hook`` in error messages."""
    return str(getattr(hook, "__qualname__", hook))


def allreduce_hook(process_group: Communicator | None, bucket: GradBucket) -> Future[Tensor]:
    """Average over the ranks, as without a hook."""
    buffer = bucket.buffer()
    host = staging.to_host(buffer)
    group(process_group).all_reduce(host, "mean", out=host, name=bucket.name())
    return done(buffer)


def bf16_compress_hook(process_group: Communicator | None, bucket: GradBucket) -> Future[Tensor]:
    """Average in bfloat16: half the bytes, the range of float32, 8 bits of precision; sums are in float32."""
    return bf16_compress_wrapper(allreduce_hook)(process_group, bucket)


def fp16_compress_hook(process_group: Communicator | None, bucket: GradBucket) -> Future[Tensor]:
    """Average in float16: half the bytes, 11 bits of precision; gradients beyond 65504 become infinite."""
    return fp16_compress_wrapper(allreduce_hook)(process_group, bucket)


def bf16_compress_wrapper(hook: Hook) -> FutureHook:
    """Wrap ``hook`` to reduce in bfloat16; the result is converted back."""
    return _compressed(hook, dtypes.bfloat16)


def fp16_compress_wrapper(hook: Hook) -> FutureHook:
    """Wrap ``hook`` to reduce in float16; the result is converted back."""
    return _compressed(hook, dtypes.float16)


def _compressed(hook: Hook, dtype: dtypes.dtype) -> FutureHook:
    def compressed_hook(state: object, bucket: GradBucket) -> Future[Tensor]:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        result = hook(state, bucket)
        bucket.set_buffer(buffer)
        reduced = _Reduced(result, staging.to_host(buffer), hook).wait()
        buffer.copy_(from_numpy(reduced).reshape(buffer.shape))
        return done(buffer)

    return compressed_hook


def group(process_group: Communicator | None) -> Communicator:
    """``process_group``, or the group of all ranks if it is None."""
    return get_communicator() if process_group is None else process_group


def done(tensor: Tensor) -> Future[Tensor]:
    """A completed future of ``tensor``."""
    future: Future[Tensor] = Future()
    future.set_result(tensor)
    return future


NAMED = {
    "allreduce": "tenon.distributed.replicas.comm_hooks:allreduce_hook",
    "bf16": "tenon.distributed.replicas.comm_hooks:bf16_compress_hook",
    "fp16": "tenon.distributed.replicas.comm_hooks:fp16_compress_hook",
}
