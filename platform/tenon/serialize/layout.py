"""Memory layout of tensors, for saving and loading: the interface between file formats and ``Tensor``.

Saving: ``StorageTable`` inspects all tensors of one save, then maps each to the *storage*, a contiguous range
of memory (``extents.py``), that it is a view of.
Loading: ``LoadedStorage`` is such a range read from a file; ``rebuild`` makes a tensor that views it.

Next: ``torch_zip.py`` (storages as PyTorch writes them), ``tensors.py`` (packed tensors).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tenon.compat.typed_storage import TypedStorage
from tenon.device import CPU, Device
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.engine.aval import Aval, contiguous_strides
from tenon.engine.types import Array
from tenon.errors import CheckpointError, DTypeError
from tenon.kernels.backend import Backend, backend_for
from tenon.nn.parameter import Parameter
from tenon.serialize.extents import (
    Extent,
    Storage,
    address_of,
    bytes_of,
    extent_of,
    merged,
    storage_at,
)
from tenon.serialize.limits import check_axes, short
from tenon.tensors.storage.untyped import UntypedStorage
from tenon.tensors.tensor import Tensor

#: A tensor, or a storage by itself.
TensorOrStorage: TypeAlias = Tensor | TypedStorage | UntypedStorage


@dataclass(frozen=True, slots=True)
class Described:
    """Metadata of a tensor for files: strides and offset in elements; ``storage`` is None on ``meta``."""

    storage: Storage | None
    dtype: dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    location: str
    requires_grad: bool
    is_parameter: bool


class StorageTable:
    """The storages of the tensors of one save, shared or separate."""

    def __init__(self, tensors: Iterable[TensorOrStorage]) -> None:
        self._described: dict[int, Described] = {}
        self._kept_alive: list[object] = []  # tensors, so that no id is used twice
        extents: dict[str, list[Extent]] = {}
        pending: list[tuple[int, Array, str]] = []
        for each in tensors:
            if id(each) in self._described:
                continue
            tensor = each if isinstance(each, Tensor) else _as_tensor(each)
            self._kept_alive += (each, tensor)
            self._described[id(each)] = _separate(tensor)
            extent = extent_of(tensor)
            if extent is None:
                continue
            location = location_of(tensor)
            extents.setdefault(location, []).append(extent)
            pending.append((id(each), tensor.raw, location))
        storages = {location: merged(ranges, location) for location, ranges in extents.items()}
        for key, raw, location in pending:
            self._assign(key, raw, storages[location])

    def describe(self, tensor: TensorOrStorage) -> Described:
        """The layout of ``tensor``, which must be one of those that this table was built from."""
        return self._described[id(tensor)]

    def _assign(self, key: int, raw: Array, storages: list[Storage]) -> None:
        """Describe the tensor of id ``key`` as a view of its storage among ``storages``, if it can be one."""
        address = address_of(raw)
        storage = storage_at(storages, address)
        separate = self._described[key]
        itemsize = separate.dtype.itemsize
        strides = _element_strides(raw)
        reach = sum((n - 1) * s for n, s in zip(separate.shape, strides, strict=True)) + 1
        if (address - storage.low) % itemsize or address - storage.low + reach * itemsize > storage.nbytes:
            return  # unaligned in a shared buffer, or in memory of two owners: saved separately
        if storage.dtype is None and not storage.key:
            storage.dtype, storage.key = separate.dtype, "seen"
        elif storage.dtype is not separate.dtype:
            storage.dtype = None
        if storage.nbytes % itemsize:
            storage.dtype, storage.key = None, "seen"
        self._described[key] = Described(
            storage,
            separate.dtype,
            (address - storage.low) // itemsize,
            separate.shape,
            strides,
            separate.location,
            separate.requires_grad,
            separate.is_parameter,
        )


def _as_tensor(storage: TypedStorage | UntypedStorage) -> Tensor:
    """A 1-D tensor of all elements of a typed storage, or of all bytes of an untyped one."""
    kind = storage.dtype if isinstance(storage, TypedStorage) else FROM_NUMPY[np.dtype(np.uint8)]
    return Tensor._of(storage.untyped().array(kind), backend_for(storage.device))


def location_of(tensor: Tensor) -> str:
    """The location tag of a tensor, as PyTorch writes it: ``cpu``, ``cuda:0``, ``meta``."""
    device = tensor.device
    return "cuda:0" if device.type == "cuda" and device.index is None else str(device)


def packed(tensor: Tensor) -> np.ndarray:
    """The tensor's values as a C-contiguous host array in native byte order, copied only if necessary."""
    host = tensor._backend.to_host(tensor.raw)
    if not host.dtype.isnative:
        host = host.astype(host.dtype.newbyteorder("="))
    return np.ascontiguousarray(host).reshape(host.shape)


def dtype_of(raw: Array) -> dtype:
    """The tenon dtype of an array in any byte order."""
    kind = FROM_NUMPY.get(raw.dtype) or FROM_NUMPY.get(raw.dtype.newbyteorder("="))
    if kind is None:
        raise DTypeError(f"cannot save an array of type {raw.dtype}. Convert it to a tenon dtype first.")
    return kind


def _separate(tensor: Tensor) -> Described:
    """Describe a tensor in a contiguous storage of its own, or without a storage on ``meta``."""
    raw = tensor.raw
    kind = dtype_of(raw)
    shape = tuple(int(n) for n in raw.shape)
    meta = isinstance(raw, Aval)
    nbytes = math.prod(shape) * kind.itemsize
    location = location_of(tensor)
    storage = None if meta else Storage(location, nbytes, kind, lambda: bytes_of(packed(tensor)))
    return Described(
        storage,
        kind,
        0,
        shape,
        contiguous_strides(shape),
        location,
        bool(tensor.requires_grad),
        isinstance(tensor, Parameter),
    )


def _element_strides(raw: Array) -> tuple[int, ...]:
    """The strides in elements; axes of size 1 get the stride of a contiguous array."""
    itemsize, plain = raw.dtype.itemsize, contiguous_strides(raw.shape)
    return tuple(
        p if n <= 1 else s // itemsize for n, s, p in zip(raw.shape, raw.strides, plain, strict=True)
    )


class LoadedStorage:
    """A storage read from a file: its bytes, their dtype, and the target device."""

    __slots__ = ("_placed", "_typed", "array", "device", "dtype", "nbytes")

    def __init__(self, array: np.ndarray | None, nbytes: int, kind: dtype, device: Device) -> None:
        self.array = array  # None on meta
        self.nbytes = nbytes
        self.dtype = kind
        self.device = device
        self._placed: dict[dtype, Array] = {}
        self._typed: TypedStorage | Tensor | None = None

    def alone(self) -> TypedStorage | Tensor:
        """The storage as a ``TypedStorage``, the same object at each call; a tensor on ``meta``."""
        if self._typed is None and self.array is None:
            self._typed = self.tensor()
        if self._typed is None:
            on_cpu, raw = self.device.type == CPU.type, self.array
            memory = UntypedStorage.over(raw) if on_cpu else UntypedStorage.of(self.on_device(self.dtype))
            self._typed = TypedStorage(wrap_storage=memory, dtype=self.dtype)
        return self._typed

    def tensor(self) -> Tensor:
        """All elements, as a 1-d tensor."""
        return rebuild(self, self.dtype, 0, (self.nbytes // self.dtype.itemsize,), (1,))

    def on_device(self, kind: dtype) -> Array:
        """The backend's 1-d array of all elements as ``kind``, copied to the device once."""
        if kind not in self._placed:
            assert self.array is not None
            elements = self.array[: self.nbytes // kind.itemsize * kind.itemsize].view(kind.numpy)
            self._placed[kind] = backend_for(self.device).from_host(elements, self.device)
        return self._placed[kind]


def rebuild(
    storage: LoadedStorage,
    kind: dtype,
    start: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
) -> Tensor:
    """A tensor that views ``storage`` from byte ``start``; all views of a storage share its memory.

    Raises ``CheckpointError`` if the numbers, which may be from a file, are not those of such a view.
    """
    _check(storage, kind, start, shape, stride)
    backend = backend_for(storage.device)
    raw: Array
    if storage.array is None:
        raw = Aval(shape, kind.numpy)
    elif storage.device.type == CPU.type:
        raw = _view(storage.array, kind, start, shape, stride)
    else:
        raw = _view_on_device(storage, backend, kind, start, shape, stride)
    tensor: Tensor = Tensor._of(raw, backend)
    if requires_grad:
        tensor.requires_grad_(True)
    return tensor


def meta_tensor(kind: dtype, shape: tuple[int, ...], requires_grad: bool = False) -> Tensor:
    """A contiguous tensor on ``meta``."""
    check_axes(shape)
    storage = LoadedStorage(None, math.prod(shape) * kind.itemsize, kind, Device("meta"))
    return rebuild(storage, kind, 0, shape, contiguous_strides(shape), requires_grad)


def _view(
    memory: np.ndarray, kind: dtype, start: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> np.ndarray:
    """The view of ``memory``, bytes, as NumPy's buffer protocol does not support bfloat16."""
    itemsize = kind.itemsize
    if 0 in shape:
        return np.empty(shape, kind.numpy)
    try:
        return np.ndarray(shape, kind.numpy, memory, start, tuple(s * itemsize for s in stride))
    except (ValueError, OverflowError) as error:
        raise CheckpointError(
            f"a tensor of shape {short(list(shape))} and stride {short(list(stride))} cannot exist: {error}"
        ) from error


def _view_on_device(
    storage: LoadedStorage,
    backend: Backend,
    kind: dtype,
    start: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
) -> Array:
    """The view of a storage on another device than the CPU; a copy where the backend has no such views."""
    assert storage.array is not None
    count, (offset, remainder) = math.prod(shape), divmod(start, kind.itemsize)
    if count and not remainder and _is_contiguous(shape, stride) and backend.xp is not None:
        return storage.on_device(kind)[offset : offset + count].reshape(shape)
    as_strided = getattr(getattr(getattr(backend.xp, "lib", None), "stride_tricks", None), "as_strided", None)
    if count and not remainder and as_strided is not None:
        return as_strided(storage.on_device(kind)[offset:], shape, tuple(s * kind.itemsize for s in stride))
    host = _view(storage.array, kind, start, shape, stride)
    return backend.from_host(np.ascontiguousarray(host).reshape(shape), storage.device)


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    return all(n == 1 or s == p for n, s, p in zip(shape, stride, contiguous_strides(shape), strict=True))


def _check(
    storage: LoadedStorage, kind: dtype, start: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    """Raise ``CheckpointError`` for impossible numbers, and for a tensor that exceeds its storage."""
    if type(start) is not int or start < 0 or len(shape) != len(stride):
        raise CheckpointError(
            f"a tensor is described by impossible numbers: first byte {short(start)}, shape {short(shape)},"
            f" stride {short(stride)}"
        )
    check_axes(shape, stride)
    last = sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if 0 not in shape and start + (last + 1) * kind.itemsize > storage.nbytes:
        raise CheckpointError(
            f"a {kind} tensor of shape {list(shape)} and stride {list(stride)} from byte {start} reaches"
            f" beyond its storage of {storage.nbytes} bytes"
        )
