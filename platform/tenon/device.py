"""Devices: where a tensor's data lives, by PyTorch's names (``cpu``, ``cuda:1``, ``meta``).

A device is only a name; ``kernels/backend.py`` finds the backend that serves its type.
"""

from __future__ import annotations

import re
import threading
from typing import Any, TypeAlias

from tenon.errors import DeviceError

_PATTERN = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)(?::(0|[1-9]\d*))?")
#: PyTorch's types, in its order; backends of plugins may add others.
TYPES = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
    "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class Device:
    """``Device("cuda:1")`` or ``Device("cuda", 1)``; also a context manager that sets the default device.

    >>> Device("cuda:1")
    device(type='cuda', index=1)
    """

    __slots__ = ("index", "type")

    def __new__(cls, *args: object, **kwargs: object) -> Device:
        """Return what an argument's ``__torch_function__`` does, if it is no tensor and has one."""
        for value in (*args, *kwargs.values()):
            override = getattr(value, "__torch_function__", None)
            if override is not None and not hasattr(value, "device"):
                result: Device = override(cls, (value.__class__,), args, kwargs)
                return result
        return super().__new__(cls)

    def __init__(self, type: str | int | Device, index: int | None = None) -> None:
        if isinstance(type, Device):
            index = type.index if index is None else index
            type = type.type
        elif isinstance(type, int):
            index = type
            type = "cuda"
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, int or device, not {type!r}")
        match = _PATTERN.fullmatch(type)
        if match is None:
            problem = f"Invalid device string: {type!r}." if type else "Device string must not be empty."
            raise DeviceError(f"{problem} Write a type and an optional index, as 'cpu' or 'cuda:1'.")
        if match.group(1) not in TYPES:
            _check_plugin(match.group(1))
        if match.group(2) is not None:
            if index is not None:
                raise DeviceError(
                    f"type (string) must not include an index because index was passed explicitly: {type}"
                )
            index = int(match.group(2))
        if index is not None and index < 0:
            raise DeviceError(
                f"Device index must not be negative, got {index} for device type {match.group(1)!r}."
            )
        self.type: str = match.group(1)
        self.index: int | None = index

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})"
            if self.index is None
            else f"device(type={self.type!r}, index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[type[Device], tuple[str] | tuple[str, int]]:
        return (Device, (self.type, self.index) if self.index is not None else (self.type,))

    def __enter__(self) -> Device:
        _default.previous = (_default.previous, _default.device)
        _default.device = self
        return self

    def __exit__(self, *exc: object) -> None:
        assert _default.previous is not None
        _default.previous, _default.device = _default.previous


#: A device, or a description of one: ``"cuda:1"``, the index of a CUDA device, or None for the default one.
DeviceLike: TypeAlias = Device | str | int | None


def _check_plugin(name: str) -> None:
    """Raise DeviceError unless a plugin has a backend of this name."""
    from tenon.kernels.backend import device_types  # finding plugins takes time, and scripts rarely have one

    types = device_types()
    if name not in types:
        raise DeviceError(
            f"Expected one of {', '.join(TYPES)} device type at start of device string: {name}; backends"
            f" here: {', '.join(types)}. Install the plugin that provides it, or see `tenon plugins`."
        )


class _Default(threading.local):
    """Of each thread, as in PyTorch: ranks as threads build models on the meta device at the same time."""

    device: Device | None = None
    #: The devices of the contexts around, the innermost first, in pairs.
    previous: tuple[Any, Device | None] | None = None  # a pair of the same kind


_default = _Default()
CPU = Device("cpu")


def get_default_device() -> Device:
    """The device that factory functions use when none is given."""
    return _default.device if _default.device is not None else CPU


def set_default_device(device: DeviceLike) -> None:
    """Set the device that factory functions of this thread use when none is given; None means the CPU."""
    _default.device = None if device is None else Device(device)


def as_device(value: DeviceLike) -> Device:
    """``value`` as a Device; None is the default device."""
    if value is None:
        return get_default_device()
    return value if isinstance(value, Device) else Device(value)
