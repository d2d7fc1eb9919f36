"""Methods that typed and untyped storages share: copies to other devices and dtypes, properties of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tenon import dtypes
from tenon.device import Device
from tenon.engine.aval import Aval
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, NoDataError
from tenon.kernels.backend import backend_for
from tenon.tensors.storage.sources import filename_of

if TYPE_CHECKING:
    from tenon.compat.typed_storage import TypedStorage
    from tenon.device import DeviceLike
    from tenon.engine.types import Array
    from tenon.kernels.backend import Backend
    from tenon.tensors.tensor import Tensor


class Moves:
    """Methods of storages; for classes with ``_bytes``."""

    #: A vector of uint8: the storage's memory.
    _bytes: Array
    is_sparse = is_sparse_csr = is_hpu = False

    @property
    def device(self) -> Device:
        """The device of the memory."""
        return _backend_of(self._bytes).device_of(self._bytes)

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on an NVIDIA GPU."""
        return bool(self.device.type == "cuda")

    @property
    def filename(self) -> str | None:
        """The mapped file of a storage from ``from_file(..., shared=True)``, else None."""
        return filename_of(self._bytes)

    def get_device(self) -> int | None:
        """Return the index of the CUDA device; None on the CPU."""
        return self.device.index

    def resizable(self) -> bool:
        """Return False: the memory of a storage has a fixed size."""
        return False

    def is_pinned(self, device: DeviceLike = None) -> bool:
        """Return False: only the CUDA backend's own transfer buffers are in pinned memory."""
        return False

    def _bytes_on(self, device: Device | str | int) -> Array:
        """Copy the bytes to ``device``; the same array if they are there."""
        target = device if isinstance(device, Device) else Device(device)
        if target.type == self.device.type and target.index in (None, self.device.index):
            return self._bytes
        return backend_for(target).from_host(_backend_of(self._bytes).to_host(self._bytes), target)

    def _to(self, dtype: dtypes.dtype) -> TypedStorage:
        """Copy the numbers to a new typed storage of another dtype."""
        if not isinstance(dtype, dtypes.dtype):
            raise TypeError(f"Argument 'dtype' must be torch.dtype, not {type(dtype)}")
        numbers: Tensor = Value.make(self._as_values(), _backend_of(self._bytes))
        return numbers.to(dtype, copy=True).storage()

    def _as_values(self) -> Array:
        raise NotImplementedError(f"{type(self).__name__} defines no _as_values(): its numbers as an array.")

    def _with_data(self) -> Array:
        """Return the bytes; NoDataError on the meta device."""
        if isinstance(self._bytes, Aval):
            raise NoDataError("Not available for 'meta' device type")
        return self._bytes


def new_bytes(count: int, device: Device | str | int) -> Array:
    """Allocate ``count`` zero bytes on ``device``."""
    target = device if isinstance(device, Device) else Device(device)
    if target.type not in ("cpu", "cuda", "meta"):
        raise ArgumentError(
            f"torch.UntypedStorage(): Storage device not recognized: {target.type}. Use cpu, cuda or meta."
        )
    if count < 0:
        raise ArgumentError(f"a storage cannot have {count} bytes; give a size of 0 or more.")
    if target.type == "meta":
        return Aval((count,), np.dtype(np.uint8))
    zeros = np.zeros(count, np.uint8)
    return zeros if target.type == "cpu" else backend_for(target).from_host(zeros, target)


def check_number(value: object) -> None:
    """Raise DTypeError for text, which NumPy would parse as numbers."""
    if isinstance(value, (str, bytes)):
        raise DTypeError(f"new(): invalid data type '{type(value).__name__}': a storage holds numbers.")


def _backend_of(raw: Array) -> Backend:
    if isinstance(raw, Aval):
        return backend_for(Device("meta"))
    return backend_for(Device("cuda" if hasattr(raw, "__cuda_array_interface__") else "cpu"))


def _cast(name: str, target: dtypes.dtype) -> Callable[[Moves], TypedStorage]:
    def method(self: Moves) -> TypedStorage:
        return self._to(target)

    method.__name__, method.__doc__ = name, f"Return a new storage with the numbers as ``{target}``."
    return method


for _name, _target in {
    "double": dtypes.float64, "float": dtypes.float32, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "long": dtypes.int64, "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8,
    "byte": dtypes.uint8, "bool": dtypes.bool,
    "complex_double": dtypes.complex128, "complex_float": dtypes.complex64,
}.items():  # fmt: skip
    setattr(Moves, _name, _cast(_name, _target))
