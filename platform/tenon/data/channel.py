"""Transport of batches from worker processes: arrays in anonymous shared memory, the rest through a pipe.

The memory is a ``memfd``: it has no name that could leak, and is freed with the last array that uses it,
however the processes exit. On systems without ``memfd_create`` (other than Linux) arrays use the pipe.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import pickle
import socket
import sys
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

#: Minimum bytes of arrays for shared memory, whose two system calls do not pay off below.
LARGE = 1 << 16
_ALIGN = 64
#: From Python 3.13 on, a mapping need not hold a file descriptor open.
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class _Pickler(pickle.Pickler):
    """Pickle tensors as out-of-band buffers (pickle protocol 5)."""

    def reducer_override(self, value: object) -> Any:  # what ``__reduce__`` may return, or NotImplemented
        """Reduce tensors to buffer, dtype and shape; leave other objects to the default."""
        if not isinstance(value, Tensor):
            return NotImplemented
        detached = value.detach()
        raw = np.ascontiguousarray(detached.cpu().raw)
        name = str(detached.dtype).removeprefix("torch.")
        return _tensor, (raw.reshape(-1).view(np.uint8), name, tuple(detached.shape))


def _tensor(data: np.ndarray, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return create.wrap(data.view(getattr(dtypes, dtype).numpy).reshape(shape), "cpu")


def _socket(connection: Connection) -> socket.socket:
    """Return the connection's socket, to pass descriptors without ``multiprocessing.reduction``."""
    sock = socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(None)
    return sock


def send(connection: Connection, message: object, share: bool = True) -> None:
    """Send ``message`` from a worker; with ``share``, large arrays in shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(message)
    views = [buffer.raw() for buffer in buffers]
    ranges, size = [], 0
    for view in views:
        ranges.append((size, view.nbytes))
        size += -(-view.nbytes // _ALIGN) * _ALIGN
    shared = share and size >= LARGE and hasattr(os, "memfd_create")
    inline = [] if shared else [bytes(view) for view in views]
    connection.send_bytes(pickle.dumps((stream.getvalue(), ranges, size if shared else 0, inline)))
    if not shared:
        return
    handle = os.memfd_create("tenon-batch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(handle, size)
        with mmap.mmap(handle, size) as memory:
            for (begin, length), view in zip(ranges, views, strict=True):
                memory[begin : begin + length] = view
        with _socket(connection) as sock:
            socket.send_fds(sock, [b"\0"], [handle])
    finally:
        os.close(handle)


def receive(connection: Connection) -> Any:  # what the worker sent
    """Receive the next message of a worker; its arrays own their memory and are writable."""
    stream, ranges, size, inline = pickle.loads(connection.recv_bytes())
    if not size:
        return pickle.loads(stream, buffers=[bytearray(part) for part in inline])
    with _socket(connection) as sock:
        _, handles, flags, _ = socket.recv_fds(sock, 1, 1)
    if not handles and flags & socket.MSG_CTRUNC:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    if not handles:
        raise EOFError("the worker exited before it sent the memory of a batch")
    (handle,) = handles
    try:
        memory = memoryview(mmap.mmap(handle, size, **_UNTRACKED))
    finally:
        os.close(handle)
    return pickle.loads(stream, buffers=[memory[begin : begin + length] for begin, length in ranges])
