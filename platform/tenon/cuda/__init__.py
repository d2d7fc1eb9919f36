"""torch's ``torch.cuda``: which CUDA devices there are, which one is current, and what their memory holds.

Importing this module loads no GPU library, and ``is_available`` never fails. Where CUDA cannot be used,
memory is 0 and seeds are ignored, as in torch; everything that needs a device raises one DeviceError with the
reason and the remedy.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from tenon import random as host_random  # `random` is the submodule, once that is imported
from tenon.compat.legacy_storages import ON_CUDA
from tenon.device import Device, DeviceLike
from tenon.errors import DeviceError, OutOfMemoryError, TenonError
from tenon.kernels.backend import Availability, backend_for, backend_named

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


def availability() -> Availability:
    """``(ok, reason)``: whether CUDA can be used, and by what, or why not and what to install."""
    try:
        return backend_named("cuda").is_available()
    except TenonError as error:
        return Availability(False, str(error))


def is_available() -> bool:
    """Whether CUDA can be used; never raises."""
    return availability().ok


def is_initialized() -> bool:
    """Whether a CUDA device has been used in this process."""
    try:
        return bool(getattr(backend_named("cuda"), "initialized", False))
    except TenonError:
        return False


def init() -> None:
    """Load the GPU library now instead of at the first use; DeviceError where CUDA cannot be used."""
    _backend().current_device()


def device_count() -> int:
    """Number of visible devices, 0 where CUDA cannot be used."""
    return len(backend_named("cuda").devices()) if is_available() else 0


def current_device() -> int:
    """Index of the device that ``"cuda"`` without an index means."""
    return int(_backend().current_device())


def set_device(device: DeviceLike) -> None:
    """Make ``"cuda"`` without an index mean this device; a negative index changes nothing."""
    if not (isinstance(device, int) and device < 0):
        backend = _backend()
        backend.set_device(_index(backend, device))


class device:
    """Inside the ``with`` block, ``"cuda"`` without an index means this device; None changes nothing."""

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


def get_device_properties(device: DeviceLike = None) -> Mapping[str, Any]:
    """What the CUDA runtime says of a device, by its names (``major``, ``multiProcessorCount``, ...)."""
    backend = _backend()
    found: Mapping[str, Any] = backend.properties(_index(backend, device))
    return found


def get_device_name(device: DeviceLike = None) -> str:
    """Name of a device, as ``nvidia-smi`` shows it."""
    name = get_device_properties(device)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Compute capability of a device: (9, 0) for Hopper."""
    found = get_device_properties(device)
    return int(found["major"]), int(found["minor"])


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device multiplies bfloat16 in hardware; False where CUDA cannot be used."""
    return is_available() and get_device_capability() >= (8, 0)


def is_tf32_supported() -> bool:
    """Whether the current device has products of 19 bits; False where CUDA cannot be used."""
    return is_available() and get_device_capability() >= (8, 0)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until a device has done everything it was told."""
    backend = _backend()
    backend.synchronize(Device("cuda", _index(backend, device)))


def manual_seed(seed: int) -> None:
    """Seed the numbers of CUDA tensors; ignored where CUDA cannot be used, as in torch.

    They are drawn on the host from the same stream as all others (a seed gives the same numbers on every
    device), so this is ``tenon.manual_seed``.
    """
    if is_available():
        host_random.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """As ``manual_seed``: all devices share one stream."""
    manual_seed(seed)


def seed() -> None:
    """Seed the numbers of CUDA tensors with a fresh seed; ignored where CUDA cannot be used."""
    if is_available():
        host_random.seed()


def seed_all() -> None:
    """As ``seed``: all devices share one stream."""
    seed()


def empty_cache() -> None:
    """Give memory that is held but not used back to the driver; nothing to do before the first use."""
    if is_initialized():
        _backend().release()


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors use on a device; 0 before the first use."""
    return _stats(device).used if is_initialized() else 0


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors used at most, since the start or ``reset_peak_memory_stats``; 0 if never."""
    return _stats(device).peak if is_initialized() else 0


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Begin to watch the highest use anew; DeviceError where CUDA cannot be used."""
    backend = _backend()
    backend.reset_peak(Device("cuda", _index(backend, device)))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes held on a device, in use or not; 0 before the first use."""
    if not is_initialized():
        return 0
    backend = _backend()
    return int(backend.reserved(Device("cuda", _index(backend, device))))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Free and total bytes of a device, of all processes together."""
    backend = _backend()
    free, total = backend.mem_info(_index(backend, device))
    return int(free), int(total)


class Event:
    """A point in a device's work: ``record`` it, wait for it, measure the time to another one."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise DeviceError("events between processes are not supported; use interprocess=False.")
        self.enable_timing = enable_timing
        self._mark: Any = None

    def record(self, stream: None = None) -> None:
        """Note this point in the current device's work."""
        self._mark = _backend().mark()

    def synchronize(self) -> None:
        """Wait until the device has come to this point; nothing to wait for before ``record``."""
        if self._mark is not None:
            int(self._mark)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to ``end_event``, once both have happened."""
        if not (self.enable_timing and end_event.enable_timing):
            raise DeviceError("Both events must be created with argument 'enable_timing=True'.")
        if self._mark is None or end_event._mark is None:
            raise DeviceError(
                "Both events must be recorded before calculating elapsed time. Call record() on each."
            )
        return float(end_event._mark - self._mark) / 1e6


def _backend() -> Any:
    """The CUDA backend; DeviceError with the reason where it cannot be used."""
    return backend_for(Device("cuda"))


def _index(backend: Any, value: DeviceLike) -> int:
    """The index of a device; DeviceError for none of CUDA's."""
    if value is None:
        return int(backend.current_device())
    found = Device(value)
    if found.type != "cuda":
        raise DeviceError(f"Expected a cuda device, but got: {found}. Give 'cuda:0' or an index.")
    index = int(backend.current_device()) if found.index is None else found.index
    count = len(backend.devices())
    if index >= count:
        raise DeviceError(f"invalid device ordinal: cuda:{index} asked for, {count} cuda device(s) present.")
    return index


def _stats(device: DeviceLike) -> Any:
    backend = _backend()
    return backend.memory(Device("cuda", _index(backend, device)))


def __getattr__(name: str) -> Any:
    if name in ("amp", "random"):  # which need this module
        return importlib.import_module(f"tenon.cuda.{name}")
    if name == "_initialized":
        return is_initialized()
    if name.endswith("rng_state") or name.endswith("rng_state_all"):
        return getattr(importlib.import_module("tenon.cuda.random"), name)
    if name.endswith("Storage") and name in ON_CUDA:
        return ON_CUDA[name]
    if name.endswith("Tensor"):  # the functions need this module
        types = importlib.import_module("tenon.functions.typed").ON_CUDA
        if name in types:
            return types[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
