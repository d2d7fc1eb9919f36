"""Convert between tensors and the host arrays that communicators send.

A CPU tensor's own memory is used wherever it is contiguous. Other devices are copied to the host and back;
``to_host`` waits for the device first, because MPI reads the buffer on the host's clock (mpi4py#60).
"""

from __future__ import annotations

import numpy as np

from tenon.engine.watchers import WATCHERS
from tenon.errors import RankTypeError
from tenon.tensors.tensor import Tensor


def check_tensor(tensor: object, function: str, argument: str = "tensor") -> Tensor:
    """Return ``tensor``; raise an error that names ``argument`` of ``function`` if it is not a tensor."""
    if not isinstance(tensor, Tensor):
        raise RankTypeError(
            f"Invalid function argument. Expected parameter `{argument}` of type torch.Tensor, but "
            f"{function} was given a {type(tensor).__name__}. Wrap it with tenon.tensor(...), or send plain "
            "values with all_gather_object."
        )
    return tensor


def refuse_recording(function: str) -> None:
    """Raise while a function is being compiled: ``function`` cannot be recorded."""
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.unsupported(f"tenon.distributed.{function}")


def recording() -> bool:
    """Whether ``tenon.compile`` records the calls of this thread."""
    return WATCHERS.recorder is not None and bool(WATCHERS.recorder.listening())


def to_host(tensor: Tensor) -> np.ndarray:
    """The tensor's values as a NumPy array, which shares the memory of a CPU tensor and may be written."""
    tensor._settle()
    array: np.ndarray = tensor._backend.to_host(tensor.raw)
    return array


def writable(tensor: Tensor) -> bool:
    """Whether the memory of ``tensor`` may be written; that of quantized weights may not (ADR 0032)."""
    return not isinstance(tensor.raw, np.ndarray) or bool(tensor.raw.flags.writeable)


def write(tensor: Tensor, array: np.ndarray) -> None:
    """Overwrite ``tensor`` with ``array``; autograd sees a changed version, but no operation.

    A tensor in read-only memory gets new memory, if ``array`` has other values.
    """
    host = to_host(tensor)
    if not writable(tensor):
        if host.tobytes() == array.tobytes():
            return
        replacement = array.reshape(host.shape).copy()
        replacement.setflags(write=False)
        tensor.data = Tensor._of(replacement, tensor._backend)
    elif isinstance(tensor.raw, np.ndarray):
        if array is not host:
            np.copyto(host, np.asarray(array).reshape(host.shape))
    else:
        tensor.raw[...] = tensor._backend.from_host(array.reshape(host.shape), tensor.device)
    tensor._counter()[0] += 1
