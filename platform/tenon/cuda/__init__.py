"""PyTorch's ``torch.cuda``: the CUDA devices, the current one, and statistics of their memory.

Importing this module loads no GPU library, and ``is_available`` never raises. Where CUDA cannot be used,
memory sizes are 0 and seeds are ignored, as in PyTorch; functions that need a device raise a DeviceError with
the reason and the remedy.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from tenon import random as host_random  # `random` is the submodule, once that is imported
from tenon.compat.legacy_storages import ON_CUDA
from tenon.device import Device, DeviceLike
from tenon.errors import DeviceError, OutOfMemoryError, TenonError
from tenon.kernels.backend import Availability, MemoryStats, backend_for, backend_named

__all__ = [
    "Event",
    "OutOfMemoryError",
    "availability",
    "current_device",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "synchronize",
]


#: The properties of a device by the names of the CUDA runtime: numbers, texts and tuples.
Properties: TypeAlias = Mapping[str, Any]


class Mark(Protocol):
    """A point in a device's work, whose time is known once the device has reached it."""

    def __int__(self) -> int:
        """Wait until the device has reached the point; return its time in nanoseconds."""

    def __sub__(self, other: Mark) -> float:
        """Return the nanoseconds between two points."""


class CudaBackend(Protocol):
    """The methods of a CUDA backend that this module calls, beside those of every ``Backend``."""

    def devices(self) -> Sequence[Device]:
        """Return the visible devices."""

    def current_device(self) -> int:
        """Return the index of the current device."""

    def set_device(self, index: int) -> None:
        """Change the current device."""

    def properties(self, index: int) -> Properties:
        """Return the properties of a device."""

    def synchronize(self, device: Device | None = None) -> None:
        """Wait for all work of a device."""

    def mark(self, device: Device | None = None) -> Mark:
        """Return a mark of the present point in a device's work."""

    def memory(self, device: Device | None = None) -> MemoryStats:
        """Return the numbers of bytes in use and at peak."""

    def reset_peak(self, device: Device | None = None) -> None:
        """Reset the peak to the bytes in use."""

    def reserved(self, device: Device | None = None) -> int:
        """Return the number of bytes that the allocator has reserved."""

    def mem_info(self, index: int) -> tuple[int, int]:
        """Return the numbers of free and of all bytes."""

    def release(self) -> None:
        """Return unused memory to the driver."""


def availability() -> Availability:
    """Return ``(ok, reason)``: whether CUDA can be used, and the library, or the reason why not."""
    try:
        return backend_named("cuda").is_available()
    except TenonError as error:
        return Availability(False, str(error))


def is_available() -> bool:
    """Return whether CUDA can be used; never raises."""
    return availability().ok


def is_initialized() -> bool:
    """Return whether a CUDA device has been used in this process."""
    try:
        return bool(getattr(backend_named("cuda"), "initialized", False))
    except TenonError:
        return False


def init() -> None:
    """Load the GPU library now instead of at the first use; DeviceError where CUDA cannot be used."""
    _backend().current_device()


def device_count() -> int:
    """Return the number of visible devices, 0 where CUDA cannot be used."""
    return len(backend_named("cuda").devices()) if is_available() else 0


def current_device() -> int:
    """Return the index of the current device, which is that of ``"cuda"`` without an index."""
    return int(_backend().current_device())


def set_device(device: DeviceLike) -> None:
    """Set the current device, that of ``"cuda"`` without an index; a negative index has no effect."""
    if not (isinstance(device, int) and device < 0):
        backend = _backend()
        backend.set_device(_index(backend, device))


class device:
    """Context manager that sets the current device; None has no effect."""

    def __init__(self, device: DeviceLike) -> None:
        self.device = device
        self._previous: int | None = None

    def __enter__(self) -> device:
        if self.device is not None and not (isinstance(self.device, int) and self.device < 0):
            backend = _backend()
            index = _index(backend, self.device)
            self._previous = int(backend.current_device())
            backend.set_device(index)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._previous is not None:
            _backend().set_device(self._previous)
            self._previous = None


def get_device_properties(device: DeviceLike = None) -> Properties:
    """Return the properties of a device (None: the current one) by the CUDA runtime's names, such as
    ``major`` and ``multiProcessorCount``."""
    backend = _backend()
    return backend.properties(_index(backend, device))


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of a device (None: the current one), as ``nvidia-smi`` prints it."""
    name = get_device_properties(device)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return the compute capability of a device (None: the current one): (9, 0) for Hopper."""
    properties = get_device_properties(device)
    return int(properties["major"]), int(properties["minor"])


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the current device multiplies bfloat16 in hardware; False where CUDA cannot be used."""
    return is_available() and get_device_capability() >= (8, 0)


def is_tf32_supported() -> bool:
    """Return whether the current device multiplies TF32 in hardware; False where CUDA cannot be used."""
    return is_available() and get_device_capability() >= (8, 0)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until a device has completed all its work."""
    backend = _backend()
    backend.synchronize(Device("cuda", _index(backend, device)))


def manual_seed(seed: int) -> None:
    """Seed the random numbers of CUDA tensors; ignored where CUDA cannot be used, as in PyTorch.

    The numbers of all devices are drawn on the host from one stream, so this is ``tenon.manual_seed``, and a
    seed yields the same numbers on every device.
    """
    if is_available():
        host_random.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the random numbers of all devices: the same as ``manual_seed``."""
    manual_seed(seed)


def seed() -> None:
    """Seed the numbers of CUDA tensors from the operating system; ignored where CUDA cannot be used."""
    if is_available():
        host_random.seed()


def seed_all() -> None:
    """Seed the random numbers of all devices from the operating system: the same as ``seed``."""
    seed()


def empty_cache() -> None:
    """Return reserved memory that is not in use to the driver; no effect before the first use of CUDA."""
    if is_initialized():
        _backend().release()


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes in use by tensors on a device; 0 before the first use of CUDA."""
    return _stats(device).used if is_initialized() else 0


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the peak of the bytes in use by tensors, since the start or ``reset_peak_memory_stats``."""
    return _stats(device).peak if is_initialized() else 0


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset the peak of ``max_memory_allocated``; DeviceError where CUDA cannot be used."""
    backend = _backend()
    backend.reset_peak(Device("cuda", _index(backend, device)))


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes reserved on a device, in use or not; 0 before the first use of CUDA."""
    if not is_initialized():
        return 0
    backend = _backend()
    return int(backend.reserved(Device("cuda", _index(backend, device))))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return the free and total bytes of a device, with the memory of all processes counted."""
    backend = _backend()
    free, total = backend.mem_info(_index(backend, device))
    return int(free), int(total)


class Event:
    """A point in a device's work (torch.cuda.Event), to wait for it or to measure the time between two."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise DeviceError("events between processes are not supported; use interprocess=False.")
        self.enable_timing = enable_timing
        self._mark: Mark | None = None

    def record(self, stream: None = None) -> None:
        """Record the present point in the current device's work."""
        self._mark = _backend().mark()

    def synchronize(self) -> None:
        """Wait until the device has reached the recorded point; returns at once before ``record``."""
        if self._mark is not None:
            int(self._mark)

    def elapsed_time(self, end_event: Event) -> float:
        """Wait for both events; return the milliseconds from this one to ``end_event``.

        DeviceError unless both were created with ``enable_timing=True`` and recorded.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise DeviceError("Both events must be created with argument 'enable_timing=True'.")
        if self._mark is None or end_event._mark is None:
            raise DeviceError(
                "Both events must be recorded before calculating elapsed time. Call record() on each."
            )
        return float(end_event._mark - self._mark) / 1e6


def _backend() -> CudaBackend:
    """Return the CUDA backend; DeviceError with the reason where it cannot be used."""
    backend: Any = backend_for(Device("cuda"))  # of a subclass, which a plugin defines
    return backend


def _index(backend: CudaBackend, value: DeviceLike) -> int:
    """Return the index of a device; DeviceError for one of another type and an index out of range."""
    if value is None:
        return int(backend.current_device())
    device = Device(value)
    if device.type != "cuda":
        raise DeviceError(f"Expected a cuda device, but got: {device}. Pass 'cuda:0' or an index.")
    index = int(backend.current_device()) if device.index is None else device.index
    count = len(backend.devices())
    if index >= count:
        raise DeviceError(f"invalid device ordinal: cuda:{index} requested, {count} cuda device(s) present.")
    return index


def _stats(device: DeviceLike) -> MemoryStats:
    backend = _backend()
    return backend.memory(Device("cuda", _index(backend, device)))


def __getattr__(name: str) -> Any:  # each name has its own type
    if name in ("amp", "random"):  # which need this module
        return importlib.import_module(f"tenon.cuda.{name}")
    if name == "_initialized":
        return is_initialized()
    if name.endswith("rng_state") or name.endswith("rng_state_all"):
        return getattr(importlib.import_module("tenon.cuda.random"), name)
    if name.endswith("Storage") and name in ON_CUDA:
        return ON_CUDA[name]
    if name.endswith("Tensor"):  # the functions need this module
        types = importlib.import_module("tenon.functions.tensor_types").ON_CUDA
        if name in types:
            return types[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
