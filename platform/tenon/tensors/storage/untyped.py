"""``UntypedStorage``: the memory of tensors as bytes, as ``untyped_storage()`` returns it.

The storage of a tensor is the memory of the array at the end of the ``base`` references: the same for all
tensors that share it. It never grows: ``resize_`` beyond it allocates new memory, and tensors that shared the
old memory keep it. (PyTorch's storages grow for all tensors that share them.)
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.dtypes import dtype
from tenon.engine.aval import Aval
from tenon.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    IndexRangeError,
    NoDataError,
    UnsupportedError,
    ViewError,
)
from tenon.tensors.storage.shared_methods import Moves, new_bytes
from tenon.tensors.storage.sources import buffer_bytes, file_bytes, memory_owner, shared_bytes, swap_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tenon.compat.typed_storage import TypedStorage
    from tenon.device import Device, DeviceLike
    from tenon.engine.types import Array, ArrayNamespace
    from tenon.tensors.types import Memo


def address(raw: Array) -> int:
    """The address of the first element of an array; 0 if it has no memory."""
    if hasattr(raw, "__cuda_array_interface__"):
        return int(raw.data.ptr)
    return int(raw.__array_interface__["data"][0]) if hasattr(raw, "__array_interface__") else 0


def memory_of(raw: Array) -> tuple[Array, int]:
    """Return the storage of ``raw`` as a vector of its dtype, and the offset of its first element."""
    if isinstance(raw, Aval):
        return Aval((raw.size,), raw.dtype), 0
    owner = raw
    while hasattr(getattr(owner, "base", None), "__array_interface__"):
        owner = owner.base
    if not hasattr(owner, "transpose"):
        raise UnsupportedError(
            f"the memory of {raw!r} is on several ranks: resize_(), as_strided() and the like are for tensors"
            " that are whole. Use full_tensor(), or to_local() for this rank's part."
        )
    axes = sorted(range(owner.ndim), key=lambda axis: -owner.strides[axis])
    ordered = owner.transpose(axes)
    if not ordered.flags.c_contiguous:
        raise ViewError(
            f"the memory of this tensor belongs to an array with gaps (shape {list(owner.shape)}, strides "
            f"{list(owner.strides)}), which has no flat view. clone() the tensor first."
        )
    flat = ordered.reshape(-1)
    if flat.dtype != raw.dtype:
        count = flat.nbytes // raw.dtype.itemsize * raw.dtype.itemsize
        flat = flat.view(np.uint8)[:count].view(raw.dtype)
    return flat, (address(raw) - address(flat)) // raw.dtype.itemsize


def strided(xp: ArrayNamespace, x: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """View the memory of ``x`` from its first element on with another shape and strides (in bytes).

    For contiguous arrays NumPy's constructor does the same as ``as_strided`` in 0.9 instead of 11 us.
    """
    if xp is np and x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def is_shared(raw: Array) -> bool:
    """Whether forked processes share the memory of ``raw``: mapped memory, and always a GPU's."""
    return isinstance(memory_owner(raw), mmap.mmap) or hasattr(raw, "__cuda_array_interface__")


class UntypedStorage(Moves):
    """The bytes that tensors share; ``UntypedStorage(n)`` allocates ``n`` of them.

    Two storages are equal if they are the same memory.
    """

    def __init__(self, size: int | Sequence[int] = 0, *, device: DeviceLike = "cpu") -> None:
        device = "cpu" if device is None else device
        if isinstance(size, (int, np.integer)):
            self._bytes: Array = new_bytes(int(size), device)
            return
        numbers = np.array(_integers(size), np.int64).astype(np.uint8)
        self._bytes = new_bytes(numbers.size, device)
        if isinstance(self._bytes, np.ndarray):
            self._bytes[...] = numbers
        elif not isinstance(self._bytes, Aval):
            self._bytes = UntypedStorage.over(numbers)._bytes_on(device)

    @classmethod
    def of(cls, raw: Array) -> UntypedStorage:
        """The storage of an array."""
        memory = memory_of(raw)[0]
        if isinstance(memory, Aval):
            return cls.over(Aval((memory.nbytes,), np.dtype(np.uint8)))
        return cls.over(memory.view(np.uint8))

    @classmethod
    def over(cls, data: Array) -> UntypedStorage:
        """Wrap a vector of bytes, without the rest of the memory that it may be a part of."""
        result = cls.__new__(cls)
        result._bytes = data
        return result

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0
    ) -> UntypedStorage:
        """Map the first bytes of a file; with ``shared`` writes change the file."""
        return cls.over(file_bytes(filename, shared, nbytes))

    @classmethod
    def from_buffer(
        cls,
        buffer: Buffer,
        byte_order: str | None = None,
        count: int = -1,
        offset: int = 0,
        dtype: dtype | None = None,
    ) -> UntypedStorage:
        """Copy the numbers of an object with a buffer, such as ``bytes``.

        >>> from tenon import dtypes
        >>> UntypedStorage.from_buffer(bytes([1, 2]), "big", dtype=dtypes.int16).array(dtypes.int16).tolist()
        [258]
        """
        return cls.over(buffer_bytes(buffer, byte_order, count, offset, dtype))

    @classmethod
    def _new_shared(cls, size: int, *, device: DeviceLike = "cpu") -> UntypedStorage:
        """Allocate zeros that processes forked from now on share."""
        return cls.over(shared_bytes(size)) if str(device) == "cpu" else cls(size, device=device)

    def data_ptr(self) -> int:
        """Return the memory address of the first byte."""
        return address(self._bytes)

    def nbytes(self) -> int:
        """Return the number of bytes."""
        return int(self._bytes.nbytes)

    size = __len__ = nbytes

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    @property
    def _cdata(self) -> int:
        """A number that is equal for storages of the same memory only."""
        return (self.data_ptr() if len(self) else 0) or id(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (self._cdata, len(self)) == (other._cdata, len(other))

    def __hash__(self) -> int:
        return hash(self._cdata)

    def untyped(self) -> UntypedStorage:
        """Return the storage."""
        return self

    def type(self) -> str:
        """PyTorch's name of the class."""
        return "torch.storage.UntypedStorage"

    def is_shared(self) -> bool:
        """Whether forked processes share the bytes."""
        return is_shared(self._bytes)

    def share_memory_(self) -> UntypedStorage:
        """Raise unless the memory is shared already: tensors would keep the old memory."""
        if isinstance(self._bytes, Aval):
            raise DeviceError("_share_fd_: only available on CPU")
        if not self.is_shared():
            raise UnsupportedError(
                "a storage cannot move to shared memory, since its tensors would still use the old memory."
                " Call tensor.share_memory_(), or create the storage by UntypedStorage._new_shared(nbytes)."
            )
        return self

    def pin_memory(self, device: DeviceLike = None) -> UntypedStorage:
        """Return the storage: pinned memory is internal to the CUDA backend."""
        return self

    def to(self, *, device: Device | str | int, non_blocking: bool = False) -> UntypedStorage:
        """Copy to a device; the storage itself if it is there."""
        moved = self._bytes_on(device)
        return self if moved is self._bytes else UntypedStorage.over(moved)

    def cpu(self) -> UntypedStorage:
        """Copy to the CPU; the storage itself if it is there."""
        return self.to(device="cpu")

    def cuda(self, device: DeviceLike = None, non_blocking: bool = False) -> UntypedStorage:
        """Copy to a CUDA device; the storage itself if it is there."""
        return self.to(device="cuda" if device is None else device)

    def element_size(self) -> int:
        """Return 1, the number of bytes of an element."""
        return 1

    def byteswap(self, dtype: dtype) -> None:
        """Reverse the bytes of every number of ``dtype`` in place."""
        swap_bytes(self._with_data(), dtype)

    def tolist(self) -> list[int]:
        """Return the bytes as a list of integers."""
        return [int(b) for b in self._with_data()]

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, index: int | slice) -> Any:  # an int, or a storage for a slice
        data = self._with_data()
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise ArgumentError(
                    f"Trying to slice with a step of {index.step}, but only a step of 1 is supported"
                )
            return UntypedStorage.over(data[index])
        self._check(index)
        return int(data[index])

    def __setitem__(self, index: int | slice, value: object) -> None:
        if not isinstance(index, slice):
            self._check(index)
        self._with_data()[index] = value

    def _check(self, index: object) -> None:
        """Raise unless ``index`` is an integer in range."""
        if not isinstance(index, (int, np.integer)):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        if not -len(self) <= index < len(self):
            raise IndexRangeError(f"index {index} out of range for storage of size {len(self)}")

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte to ``value``."""
        if not isinstance(self._bytes, Aval):
            self._bytes[...] = value
        return self

    def copy_(
        self, source: UntypedStorage | TypedStorage, non_blocking: bool | None = None
    ) -> UntypedStorage:
        """Copy the bytes of ``source``, of the same size, into this storage."""
        other = source.untyped()
        if len(other) != len(self):
            raise ArgumentError(
                f"size does not match, self was {len(self)} bytes but src was {len(other)} bytes"
            )
        if not isinstance(self._bytes, Aval):
            if isinstance(other._bytes, Aval):
                raise NoDataError("Cannot copy out of meta tensor; no data!")
            self._bytes[...] = other.to(device=self.device)._bytes
        return self

    def clone(self) -> UntypedStorage:
        """Return a copy of the storage in new memory."""
        return UntypedStorage.over(self._bytes.copy())

    __copy__ = clone

    def __deepcopy__(self, memo: Memo) -> UntypedStorage:
        # One copy for all tensors that share the memory, whose storage objects are created on demand.
        copied: UntypedStorage | None = self.copies(memo).get(self._cdata)
        if copied is None:
            copied = self.copies(memo)[self._cdata] = self.clone()
        return copied

    @staticmethod
    def copies(memo: Memo) -> dict[int, UntypedStorage]:
        """The copies of storages that a call of ``copy.deepcopy`` has made, by ``_cdata``."""
        result: dict[int, UntypedStorage] = memo.setdefault("torch", {})
        return result

    def resize_(self, size: int) -> None:
        """Raise unless ``size`` is the present size: tensors that share the memory would not be resized."""
        if isinstance(self._bytes, Aval):
            self._bytes = Aval((size,), self._bytes.dtype)
        elif size != len(self):
            raise UnsupportedError(
                f"a storage of {len(self)} bytes cannot be resized to {size}: tensors that share it would"
                " still use the old memory. Use tensor.resize_, which allocates new memory."
            )

    def array(self, kind: dtype) -> Array:
        """View the bytes as a vector of dtype ``kind``; remaining bytes are left out."""
        count = len(self) // kind.numpy.itemsize
        if isinstance(self._bytes, Aval):
            return Aval((count,), kind.numpy)
        return self._bytes[: count * kind.numpy.itemsize].view(kind.numpy)

    def _as_values(self) -> Array:
        return self._bytes

    def __repr__(self) -> str:
        about = f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"
        if isinstance(self._bytes, Aval):
            return f"...\n{about}"
        return " " + "\n ".join(map(str, self)) + f"\n{about}"


def _integers(numbers: object) -> list[int]:
    """Return a sequence or vector of integers as a list; DTypeError for anything else."""
    if not isinstance(numbers, Sequence) and not (isinstance(numbers, np.ndarray) and numbers.ndim == 1):
        raise DTypeError(
            f"torch.UntypedStorage(): Expected a sequence type, but got {type(numbers).__name__}"
        )
    for item in numbers:
        if not isinstance(item, (int, np.integer)):
            raise DTypeError(
                "torch.UntypedStorage(): tried to construct a storage from a sequence"
                f" ({type(numbers).__name__}), but one of the items was of type {type(item).__name__} instead"
                " of int"
            )
    return [int(item) for item in numbers]
