"""Determine the device of each storage in a file: ``map_location`` as PyTorch defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tenon.device import CPU, Device
from tenon.errors import CheckpointDeviceError, DeviceError
from tenon.kernels.backend import backend_for
from tenon.serialize.layout import LoadedStorage
from tenon.serialize.limits import cut, short
from tenon.tensors.tensor import Tensor

#: ``map_location(storage, location)``: gets a tensor of the storage's elements, returns it, moved or not, or
#: None. The caller's function may annotate it as any of PyTorch's storage classes.
MapFunction: TypeAlias = Callable[[Any, str], object]
#: The types of ``map_location``: a device or its name, ``{saved location: device}``, a function, or None.
MapLocation: TypeAlias = str | Device | Mapping[str, str | int | Device] | MapFunction | None


class CallerError(Exception):
    """Wraps an exception of the caller's ``map_location``, so that readers do not report a damaged file."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Placement:
    """The device of every storage, from the location tag it was saved with and ``map_location``."""

    def __init__(self, map_location: MapLocation, source: str) -> None:
        self.source = source
        self._function: MapFunction | None = None
        self._table: Mapping[str, str | int | Device] = {}
        self._fixed: Device | None = None
        self._known: dict[str, Device] = {}
        if isinstance(map_location, (str, Device)):
            self._fixed = self._usable(map_location, "map_location")
        elif isinstance(map_location, Mapping):
            self._table = map_location
        elif callable(map_location):
            self._function = map_location
        elif map_location is not None:
            raise TypeError(
                f"map_location is a {type(map_location).__name__}. Give a device ('cpu', 'cuda:0', "
                "tenon.device(...)), "
                "a dict from saved to requested devices, a function (storage, location) -> storage or None, "
                "or None."
            )

    @property
    def needs_data(self) -> bool:
        """Whether any storage needs its data; False if all are mapped to ``meta``."""
        return self._fixed is None or self._fixed.type != "meta"

    def device(self, location: str) -> Device:
        """The target device of a storage saved at ``location``, unless ``map_location`` is a function."""
        if self._fixed is not None:
            return self._fixed
        device = self._known.get(location)
        if device is None:
            requested = self._table.get(location, location)
            device = self._usable(requested, f"its tensors were saved on {short(location)}")
            self._known[location] = device
        return device

    def place(self, storage: LoadedStorage, location: str) -> LoadedStorage:
        """Set the device of ``storage``, which was saved at ``location``, and return it."""
        if self._function is not None:
            try:
                result = self._function(storage.tensor(), location)
            except Exception as error:
                raise CallerError(error) from error
            if isinstance(result, Tensor):
                storage.device = result.device
                return storage
            if result is not None:
                problem = TypeError(
                    f"map_location returned a {type(result).__name__} for a storage saved on"
                    f" {short(location)}. Return the storage, moved if you like (`storage.cuda()`), or None"
                    " for the default."
                )
                raise CallerError(problem)
        storage.device = self.device(location)
        return storage

    def _usable(self, requested: str | int | Device, reason: str) -> Device:
        """``requested`` as a device; ``CheckpointDeviceError`` if no backend here has it."""
        try:
            device = requested if isinstance(requested, Device) else Device(requested)
            if device.type == CPU.type:
                return CPU
            backend_for(device)
        except DeviceError as error:
            kind = str(requested).partition(":")[0].upper()
            raise CheckpointDeviceError(
                f"Attempting to deserialize object on a {kind:.80} device:"
                f" cannot load {self.source}: {reason}, but device {short(str(requested))} cannot be used "
                f"here ({cut(error)}). "
                "Pass map_location='cpu' to load it into host memory."
            ) from error
        return device
