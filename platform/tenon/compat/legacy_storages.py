"""PyTorch's legacy storage classes: ``FloatStorage(3)`` and ``FloatStorage([1, 2])`` allocate memory on the
CPU, the classes of ``torch.cuda`` on the GPU; ``isinstance(s, FloatStorage)`` checks dtype and device.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, NoReturn

from tenon import dtypes
from tenon.compat.typed_storage import (
    NAMED_FORMS,
    STORAGE_NAMES,
    TypedStorage,
    check_contents,
    check_wrapped,
    refuse_arguments,
)
from tenon.errors import ArgumentError, DeviceError
from tenon.tensors.storage.untyped import UntypedStorage


class _LegacyStorageMeta(type):
    """The class of the legacy storage classes, which have no instances of their own."""

    dtype: dtypes.dtype
    device_type: str

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            type(instance) is TypedStorage
            and instance.dtype == cls.dtype
            and instance.device.type == cls.device_type
        )

    def __repr__(cls) -> str:
        return f"<class 'torch.{'cuda.' if cls.device_type == 'cuda' else ''}{cls.__name__}'>"


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """Allocates memory for numbers of one dtype on one type of device."""

    dtype: ClassVar[dtypes.dtype] = dtypes.float32  # type: ignore[misc]
    device_type: ClassVar[str] = "cpu"

    def __new__(
        cls,
        *args: object,
        wrap_storage: UntypedStorage | None = None,
        dtype: object = None,
        device: object = None,
    ) -> Any:  # a TypedStorage, as torch.FloatStorage(3) is one: no instance of ``cls``
        if cls is _LegacyStorage:
            raise ArgumentError("Only child classes of _LegacyStorage can be instantiated, as FloatStorage.")
        caller = f"{cls}.__new__"
        for name, value in (("device", device), ("dtype", dtype)):
            if value is not None:
                problem = f"Keyword argument '{name}' cannot be specified"
                refuse_arguments(ArgumentError, caller, NAMED_FORMS, problem)
        if wrap_storage is None:
            check_contents(caller, args, NAMED_FORMS)
            return TypedStorage(*args, dtype=cls.dtype, device=cls.device_type)
        check_wrapped(caller, args, wrap_storage, NAMED_FORMS)
        device_type = wrap_storage.device.type
        if device_type != cls.device_type:
            problem = f"Device of 'wrap_storage' must be {cls.device_type}, but got {device_type}"
            refuse_arguments(ArgumentError, caller, NAMED_FORMS, problem)
        return TypedStorage(wrap_storage=wrap_storage, dtype=cls.dtype)

    @classmethod
    def from_buffer(
        cls,
        *args: Any,  # as UntypedStorage.from_buffer's
        dtype: object = None,
        device: object = None,
        **kwargs: Any,  # likewise
    ) -> TypedStorage:
        """Copy the numbers of an object with a buffer; see ``UntypedStorage.from_buffer``."""
        if cls.device_type != "cpu":
            raise DeviceError(
                "from_buffer: Not available for CUDA storage; create it on the CPU and move it."
            )
        for name, value in (("dtype", dtype), ("device", device)):
            if value is not None:
                raise ArgumentError(
                    f"from_buffer: '{name}' can only be specified in UntypedStorage.from_buffer and"
                    " TypedStorage.from_buffer"
                )
        return TypedStorage.from_buffer(*args, dtype=cls.dtype, **kwargs)

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, size: int = 0) -> TypedStorage:
        """Map the first ``size`` numbers of a file; with ``shared`` changes are written to the file."""
        mapped = UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize)
        return cls(wrap_storage=mapped)

    @classmethod
    def _new_shared(cls, size: int) -> TypedStorage:  # type: ignore[override]
        result: TypedStorage = cls(wrap_storage=UntypedStorage._new_shared(size * cls.dtype.itemsize))
        return result


def _refuse_file(cls: type, /, *args: object, **kwargs: object) -> NoReturn:
    raise DeviceError("Not available for CUDA storage: its memory has no file that processes could share.")


def _storage_type(name: str, kind: dtypes.dtype, device: str) -> Any:  # a subclass of _LegacyStorage
    doc = f"Memory of {kind} on {'an NVIDIA GPU' if device == 'cuda' else 'the CPU'}."
    content: dict[str, object] = {"dtype": kind, "device_type": device, "__doc__": doc}
    if device == "cuda":
        content["__module__"] = "torch.cuda"  # by which scripts distinguish the two kinds
        content |= dict.fromkeys(("_new_with_weak_ptr", "_new_shared_filename"), classmethod(_refuse_file))
    return _LegacyStorageMeta(name, (_LegacyStorage,), content)


for _kind, _name in STORAGE_NAMES.items():
    globals()[_name] = _storage_type(_name, _kind, "cpu")

#: The classes of ``torch.cuda``, by name.
ON_CUDA: dict[str, type[TypedStorage]] = {
    _name: _storage_type(_name, _kind, "cuda") for _kind, _name in STORAGE_NAMES.items() if _name[0] != "Q"
}

_storage_classes: set[type] = {
    UntypedStorage, TypedStorage, *ON_CUDA.values(), *(globals()[name] for name in STORAGE_NAMES.values())
}  # fmt: skip


def storage_class(kind: dtypes.dtype, device: str) -> type[TypedStorage] | None:
    """Return the storage class for a dtype on a type of device; None if PyTorch has none."""
    return {"cpu": globals(), "cuda": ON_CUDA}.get(device, {}).get(STORAGE_NAMES.get(kind, ""))


__all__ = list(STORAGE_NAMES.values())
