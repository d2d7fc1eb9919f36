"""The CUDA backend: the shared reference forwards over CuPy, and kernels where CuPy differs from NumPy.

CuPy is imported when a CUDA device is first used or queried. Every kernel runs on the
device that holds its arrays, whichever device is current. Numbers are drawn on the host and copied: a seed
gives the same ones on every device.

Next: ``namespace.py`` (CuPy as the forwards expect it), ``library.py`` (why not), ``memory.py``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.errors import BackendUnavailableError, DeviceError, DTypeError, OutOfMemoryError
from tenon.extend import (
    Array,
    ArrayNamespace,
    Availability,
    Backend,
    Device,
    Kernel,
    KernelTable,
    Kind,
    MemoryStats,
    Op,
    Operand,
)
from tenon_cuda import library
from tenon_cuda.kernels import kernel_table
from tenon_cuda.marks import Clock, Mark
from tenon_cuda.memory import Watch
from tenon_cuda.namespace import Namespace


class CudaBackend(Backend):
    """Backend of ``device="cuda"``."""

    name = "cuda"

    #: The module that imports CuPy and makes its linear algebra raise errors; tests set an object like it.
    source: Any = library
    memory_watch: Watch

    def __init__(self) -> None:
        super().__init__()
        self._clocks: dict[int, Clock] = {}

    @functools.cached_property
    def library(self) -> library.Cupy:
        """CuPy; its first use imports it and installs the allocator that records peaks."""
        available = self.is_available()
        if not available:
            raise BackendUnavailableError(f"device type {self.name!r} cannot be used: {available.reason}")
        cupy = self.source.imported()
        self.memory_watch = Watch(cupy)
        self.memory_watch.install()
        return cupy

    @functools.cached_property
    def xp(self) -> ArrayNamespace:
        """The array namespace of the shared forwards."""
        return Namespace(self.library, self.source.linalg_errors)

    @functools.cached_property
    def array_type(self) -> type:  # type: ignore[override]
        """``cupy.ndarray``."""
        ndarray: type = self.library.ndarray
        return ndarray

    @functools.cached_property
    def _devices(self) -> tuple[Device, ...]:
        # Counting leaves ``library`` unloaded, so that tenon.cuda.is_initialized stays False.
        count = self.source.imported().cuda.runtime.getDeviceCount()
        return tuple(Device(self.name, i) for i in range(count))

    def is_available(self) -> Availability:
        """Whether CuPy, a driver and a device are present; the reason names the one that is missing."""
        availability: Availability = self.source.examine()
        return availability

    def devices(self) -> Sequence[Device]:
        """The visible devices; none where CUDA cannot be used."""
        return self._devices if self.is_available() else ()

    def prefers_bfloat16(self, op: Op) -> bool:
        """True for matrix products; convolutions gather windows first."""
        return op.kind is Kind.CONTRACT

    def kernel_table(self) -> KernelTable:
        """The kernels that replace reference forwards."""
        return kernel_table()

    def bind(self, op: Op) -> Kernel:
        """The kernel of ``op``, which runs on the device that holds its arrays."""
        kernel = super().bind(op)
        return (
            self._on_device_of_arrays(op.name, kernel)
            if len(self._devices) > 1
            else self._on_only_device(op.name, kernel)
        )

    def _on_only_device(self, name: str, kernel: Kernel) -> Kernel:
        """Wrap ``kernel`` to raise OutOfMemoryError; for a machine with one device."""

        def run(*args: Operand, **attrs: object) -> Operand:
            try:
                return kernel(*args, **attrs)
            except MemoryError as error:
                raise self._out_of_memory(name, error) from error

        return run

    def _on_device_of_arrays(self, name: str, kernel: Kernel) -> Kernel:
        """Wrap ``kernel`` to run on the device that holds its arrays; DeviceError if they are on several."""
        array_type: object = self.array_type
        cuda = self.library.cuda

        def run(*args: Operand, **attrs: object) -> Operand:
            arrays = [a for a in args if a.__class__ is array_type]
            devices = {a.data.device_id for a in arrays}
            if len(devices) > 1:
                devices_of_arrays = ", ".join(f"{list(a.shape)} on {self.device_of(a)}" for a in arrays)
                raise DeviceError(
                    "Expected all tensors to be on the same device, but found at least two devices! "
                    f"{name} got {devices_of_arrays}. Move them with .to(device)."
                )
            try:
                if not devices or (device := devices.pop()) == cuda.runtime.getDevice():
                    return kernel(*args, **attrs)
                with cuda.Device(device):
                    return kernel(*args, **attrs)
            except MemoryError as error:
                raise self._out_of_memory(name, error) from error

        return run

    @contextlib.contextmanager
    def _current(self, device: Device | None, operation: str) -> Iterator[int]:
        """Make ``device`` current and yield its index; None, or one without an index, is the current device.

        A full device raises OutOfMemoryError, which names ``operation``.
        """
        cuda = self.library.cuda
        current = cuda.runtime.getDevice()
        index = current if device is None or device.index is None else device.index
        try:
            with contextlib.nullcontext() if index == current else cuda.Device(index):
                yield index
        except MemoryError as error:
            raise self._out_of_memory(operation, error) from error

    def _out_of_memory(self, operation: str, error: MemoryError) -> OutOfMemoryError:
        index = self.library.cuda.runtime.getDevice()
        stats, reserved = self.memory_watch.stats(index), self.memory_watch.reserved()
        return OutOfMemoryError(
            f"{operation}: {self.name}:{index} is full: {error} Tensors use {stats.used:,} bytes, "
            f"{reserved:,} are reserved, the device has {stats.total:,}. Use smaller batches, free tensors "
            "you no longer need, or look for other processes on the device."
        )

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Device) -> Array:
        """An uninitialised array."""
        self._check_dtype(dtype)
        with self._current(device, "empty"):
            return self.library.empty(shape, dtype)

    def from_host(self, array: np.ndarray, device: Device | None = None) -> Array:
        """A copy of ``array`` on ``device``; CuPy stages it through pinned memory."""
        self._check_dtype(array.dtype)
        with self._current(device, "copy from the host"):
            return self.library.asarray(array)

    def to_host(self, array: Array) -> np.ndarray:
        """A copy of ``array`` as a NumPy array, once everything before it has run."""
        with self._current(self.device_of(array), "copy to the host"):
            host: np.ndarray = self.library.asnumpy(array)
            return host

    def _check_dtype(self, dtype: np.dtype) -> None:
        if dtype.kind == "V" and np.lib.NumpyVersion(np.__version__) < "2.1.2":
            raise DTypeError(
                f"CuPy supports {dtype} only with NumPy 2.1.2 or newer; this is {np.__version__}. Update it."
            )

    def as_array(self, value: Operand) -> Array:
        """A kernel's result as CuPy's array."""
        return self.library.asarray(value)

    def shares_memory(self, a: Array, b: Array) -> bool:
        """Whether the two arrays' address ranges overlap."""
        return bool(a.size and b.size and self.library.may_share_memory(a, b))

    def device_of(self, array: Array) -> Device:
        """The device that holds ``array``, with its index."""
        device: Device = self._devices[array.data.device_id]
        return device

    def synchronize(self, device: Device | None = None) -> None:
        """Wait until everything queued on the device has run."""
        with self._current(device, "synchronize") as index:
            self.library.cuda.Device(index).synchronize()

    def mark(self, device: Device | None = None) -> Mark:
        """An event in the device's current stream; ``int(mark)`` waits for it."""
        with self._current(device, "mark") as index:
            if index not in self._clocks:
                self._clocks[index] = Clock(self.library)
            return Mark(self._clocks[index])

    def memory(self, device: Device | None = None) -> MemoryStats:
        """Bytes that tensors use, their peak, and the device's total."""
        with self._current(device, "memory") as index:
            return self.memory_watch.stats(index)

    # Called by tenon.cuda only.

    @property
    def initialized(self) -> bool:
        """Whether CuPy has been loaded for use."""
        return "library" in self.__dict__

    def mem_info(self, index: int) -> tuple[int, int]:
        """Free and total bytes of a device."""
        free, total = self.library.cuda.Device(index).mem_info
        return int(free), int(total)

    def current_device(self) -> int:
        """Index of the current device."""
        return int(self.library.cuda.runtime.getDevice())

    def set_device(self, index: int) -> None:
        """Make a device current for this thread."""
        self.library.cuda.Device(index).use()

    def properties(self, index: int) -> Mapping[str, object]:
        """The properties of a device by CUDA's names: name, compute capability (major, minor), memory ..."""
        properties: Mapping[str, object] = self.library.cuda.runtime.getDeviceProperties(index)
        return properties

    def reserved(self, device: Device | None = None) -> int:
        """Bytes held by the pool."""
        with self._current(device, "memory"):
            return self.memory_watch.reserved()

    def release(self) -> None:
        """Return unused memory of all devices to the driver."""
        for device in self._devices:
            with self._current(device, "empty_cache"):
                self.memory_watch.release()

    def reset_peak(self, device: Device | None = None) -> None:
        """Reset the peak of memory use to what is in use now."""
        with self._current(device, "memory") as index:
            self.memory_watch.reset(index)
