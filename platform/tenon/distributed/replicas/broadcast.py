"""Broadcast lists of tensors, such as the parameters of a model, in messages of limited size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.communication.communicator import Communicator
from tenon.engine.types import Array
from tenon.engine.watchers import WATCHERS
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

MESSAGE_BYTES = 25 << 20
"""The largest message that holds more than one tensor."""


def broadcast_tensors(
    tensors: Sequence[Tensor], communicator: Communicator, *, root: int = 0, name: str = "tensors"
) -> None:
    """Broadcast ``tensors`` from rank ``root``, packed into messages of at most 25 MB."""
    if communicator.size == 1:
        return
    # Read-only tensors are broadcast now: a compiled program cannot write them, and they do not change.
    writable = [tensor for tensor in tensors if staging.writable(tensor)]
    if writable and staging.recording():
        _record_broadcast(writable, communicator, root, name)
    else:
        _broadcast_in_messages(writable, communicator, root, name)
    if len(writable) < len(tensors):
        read_only = [tensor for tensor in tensors if not staging.writable(tensor)]
        _broadcast_in_messages(read_only, communicator, root, name)


def _broadcast_in_messages(
    tensors: Sequence[Tensor], communicator: Communicator, root: int, name: str
) -> None:
    packed: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if packed and size + tensor.raw.nbytes > MESSAGE_BYTES:
            _broadcast_packed(packed, communicator, root, name)
            packed, size = [], 0
        packed.append(tensor)
        size += tensor.raw.nbytes
    if packed:
        _broadcast_packed(packed, communicator, root, name)


def _record_broadcast(tensors: Sequence[Tensor], communicator: Communicator, root: int, name: str) -> None:
    """``broadcast_tensors`` as one step of a compiled function's program."""

    def broadcast_copies(*arrays: Array) -> list[Array]:
        copies = [Tensor._of(array.copy(), tensors[0]._backend) for array in arrays]
        broadcast_tensors(copies, communicator, root=root, name=name)
        return [tensor.raw for tensor in copies]

    with no_grad():
        values = WATCHERS.recorder.host_map(broadcast_copies, list(tensors))
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


def _broadcast_packed(tensors: Sequence[Tensor], communicator: Communicator, root: int, name: str) -> None:
    """Broadcast ``tensors`` as the bytes of one message."""
    hosts = [staging.to_host(tensor) for tensor in tensors]
    flats = [np.ascontiguousarray(host).reshape(-1).view(np.uint8) for host in hosts]
    message = np.concatenate(flats)
    communicator.broadcast(message, root, out=message, name=name)
    if communicator.rank == root:
        return
    start = 0
    for tensor, host, flat in zip(tensors, hosts, flats, strict=True):
        staging.write(tensor, message[start : start + flat.size].copy().view(host.dtype).reshape(host.shape))
        start += flat.size
