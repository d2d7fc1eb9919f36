"""Decide on which device each storage of a file goes: ``map_location`` as PyTorch defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenon.device import CPU, Device
from tenon.errors import CheckpointDeviceError, DeviceError
from tenon.kernels.backend import backend_for
from tenon.serialize.layout import LoadedStorage
from tenon.tensors.tensor import Tensor

#: What ``load`` accepts: a device or its name, ``{saved: wanted}``, ``f(storage, saved)``, or None.
MapLocation = str | Device | Mapping[str, Any] | Callable[[Any, str], Any] | None


class CallerError(Exception):
    """Wraps an exception of the caller's ``map_location``, so that readers do not report a damaged file."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Placement:
    """The device of every storage, from the location tag it was saved with and ``map_location``."""

    def __init__(self, map_location: MapLocation, source: str) -> None:
        self.source = source
        self._function: Callable[[Any, str], Any] | None = None
        self._table: Mapping[str, Any] = {}
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
                "a dict from saved to wanted devices, a function (storage, location) -> storage or None, "
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
        found = self._known.get(location)
        if found is None:
            wanted = self._table.get(location, location)
            found = self._known[location] = self._usable(wanted, f"its tensors were saved on {location!r}")
        return found

    def place(self, storage: LoadedStorage, location: str) -> LoadedStorage:
        """``storage`` with its device set."""
        if self._function is not None:
            try:
                answer = self._function(storage.tensor(), location)
            except Exception as error:
                raise CallerError(error) from error
            if isinstance(answer, Tensor):
                storage.device = answer.device
                return storage
            if answer is not None:
                wrong = TypeError(
                    f"map_location returned a {type(answer).__name__} for a storage saved on {location!r}. "
                    "Return the storage, moved if you like (`storage.cuda()`), or None for the default."
                )
                raise CallerError(wrong)
        storage.device = self.device(location)
        return storage

    def _usable(self, wanted: Any, why: str) -> Device:
        try:
            device = wanted if isinstance(wanted, Device) else Device(wanted)
            if device.type == CPU.type:
                return CPU
            backend_for(device)
        except DeviceError as error:
            raise CheckpointDeviceError(
                f"Attempting to deserialize object on a {str(wanted).partition(':')[0].upper()} device: "
                f"cannot load {self.source}: {why}, but device {str(wanted)!r} cannot be used here "
                f"({error}). "
                "Pass map_location='cpu' to load it into host memory."
            ) from error
        return device
