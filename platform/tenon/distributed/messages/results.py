"""The results of torch.distributed's collectives, written into tensors at once or on ``wait``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.communication.calls import Work
from tenon.distributed.communication.futures import Future
from tenon.engine.interceptor import SLOT
from tenon.engine.op import table
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor


class TensorWork(Work):
    """The handle of a collective that writes its result into a tensor on ``wait``."""

    __slots__ = ("_output", "_pending", "_tensor")

    def __init__(self, tensor: Tensor | None, pending: Work, output: Tensor | None = None) -> None:
        super().__init__(np.empty(0))
        self._tensor, self._pending = tensor, pending
        self._output = tensor if output is None else output

    def wait(self, timeout: object = None) -> Any:  # bool, as in torch; an array in the base class
        """Block until the collective has completed and write its result into the tensor; returns True."""
        result = self._pending.wait()
        if self._tensor is not None:
            staging.write(self._tensor, result)
            self._tensor = None
        return True

    def result(self) -> list[Tensor]:
        """Wait, and return the output tensors."""
        self.wait()
        return [] if self._output is None else [self._output]

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._pending.is_completed()

    def get_future(self) -> Future[list[Tensor]]:
        """A future of ``[tensor]``, for ``then``; waits for the collective first."""
        future: Future[list[Tensor]] = Future()
        future.set_result(self.result())
        return future

    def is_success(self) -> bool:
        """Whether the collective has completed; a failed one raises in ``wait``."""
        return self.is_completed()


def stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors as rows of a new tensor."""
    stacked: Tensor = table.stack(*tensors, axis=0)
    return stacked


def run(collective: Callable[..., Tensor], tensor: Tensor, **attrs: object) -> Tensor:
    """The result of ``collective``, an op, without a gradient."""
    with no_grad():
        return collective(tensor, **attrs)


def put(
    target: Tensor, collective: Callable[..., Tensor], source: Tensor, async_op: bool, **attrs: object
) -> Work | None:
    """Overwrite ``target`` by the result of ``collective``, an op; return a handle if ``async_op``."""
    copy_into(target, run(collective, source, **attrs))
    return done(async_op, target)


def copy_into(target: Tensor, value: Tensor) -> None:
    """Overwrite ``target`` by ``value``, of as many elements."""
    with no_grad():
        if SLOT.watched():
            target.copy_(value.reshape(tuple(target.shape)))
        else:
            staging.write(target, staging.to_host(value))


def write_rows(targets: Sequence[Tensor], rows: Tensor) -> None:
    """Overwrite ``targets[i]`` by ``rows[i]``."""
    for index, target in enumerate(targets):
        copy_into(target, rows[index])


def rows_of(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``tensor`` reshaped to ``shape``, without a gradient."""
    with no_grad():
        rows: Tensor = table.reshape(tensor.detach(), shape=shape)
    return rows


def writable_array(host: np.ndarray) -> np.ndarray | None:
    """``host`` if a result can be written into it; None for read-only memory and broadcast views."""
    return host if host.flags.writeable and 0 not in host.strides else None


def target_of(tensor: Tensor, source: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The memory of ``tensor`` in ``shape`` if the result of a collective of ``source`` can be written there.

    None for memory that is not the host's or not contiguous, is read-only or overlaps ``source``, and for
    another dtype.
    """
    tensor._settle()
    raw = tensor.raw
    if (
        not isinstance(raw, np.ndarray)
        or raw.dtype != source.dtype
        or not (raw.flags.c_contiguous and raw.flags.writeable)
        or np.may_share_memory(raw, source)
    ):
        return None
    return raw.reshape(shape)


def store(tensor: Tensor, work: Work, async_op: bool, written: np.ndarray | None = None) -> Work | None:
    """Write the result of ``work`` into ``tensor``; a handle if ``async_op``.

    ``written`` is the memory of ``tensor`` if the result is there already.
    """
    result = work.wait()
    staging.write(tensor, result if written is None else staging.to_host(tensor))
    return done(async_op, tensor)


def done(async_op: bool, output: Tensor | None = None) -> Work | None:
    """A handle of a completed collective whose result is in ``output``; None unless ``async_op``."""
    return TensorWork(None, Work(np.empty(0)), output) if async_op else None
