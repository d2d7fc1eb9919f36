"""The memory behind tensors: what ``untyped_storage()`` shows and ``as_strided`` reads.

An array knows whose memory it shows (``base``), so the memory of a tensor is that of its last owner: whole
for views, and the same for all tensors that share it. It never grows: ``resize_`` beyond it takes new memory,
and tensors that shared the old keep it. (torch's storages grow for all who share them.)
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tenon.core.backend import backend_named
from tenon.dtypes import dtype
from tenon.errors import ArgumentError, IndexRangeError, UnsupportedError, ViewError


def address(raw: Any) -> int:
    """Where the first element of an array lies; 0 for what has no memory."""
    if hasattr(raw, "__cuda_array_interface__"):
        return int(raw.data.ptr)
    return int(raw.__array_interface__["data"][0]) if hasattr(raw, "__array_interface__") else 0


def memory_of(raw: Any) -> tuple[Any, int]:
    """All elements of the memory that ``raw`` shows, as a vector of its dtype, and the place of its first."""
    owner = raw
    while hasattr(getattr(owner, "base", None), "__array_interface__"):
        owner = owner.base
    axes = sorted(range(owner.ndim), key=lambda axis: -owner.strides[axis])
    ordered = owner.transpose(axes)
    if not ordered.flags.c_contiguous:
        raise ViewError(
            f"the memory of this tensor belongs to an array with gaps (shape {list(owner.shape)}, strides "
            f"{list(owner.strides)}), of which there is no flat view. clone() the tensor first."
        )
    flat = ordered.reshape(-1)
    if flat.dtype != raw.dtype:
        whole = flat.nbytes // raw.dtype.itemsize * raw.dtype.itemsize
        flat = flat.view(np.uint8)[:whole].view(raw.dtype)
    return flat, (address(raw) - address(flat)) // raw.dtype.itemsize


def strided(xp: Any, x: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """The memory of ``x`` from its first element on, in other sizes and steps (of bytes); a view.

    NumPy's constructor does what ``as_strided`` does, for arrays without gaps (0.9 against 11 us).
    """
    if xp is np and x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return xp.lib.stride_tricks.as_strided(x, shape, strides)


def is_shared(raw: Any) -> bool:
    """Whether forked processes share the memory of ``raw``: a mapping's, and always a GPU's."""
    owner = raw
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, mmap.mmap) or hasattr(raw, "__cuda_array_interface__")


class UntypedStorage:
    """Bytes of memory that tensors share; ``UntypedStorage(n)`` are ``n`` new ones. Equal if the same."""

    def __init__(self, size: int | Sequence[int] = 0, *, device: Any = "cpu") -> None:
        if str(device) != "cpu":
            raise UnsupportedError(
                f"new storages are made on the CPU only, not on {device!r}; make a tensor there."
            )
        self._bytes: Any = np.zeros(size, np.uint8) if isinstance(size, int) else np.array(size, np.uint8)

    @classmethod
    def of(cls, raw: Any) -> UntypedStorage:
        """The memory behind an array."""
        return cls.over(memory_of(raw)[0].view(np.uint8))

    @classmethod
    def over(cls, data: Any) -> UntypedStorage:
        """The memory that a vector of bytes shows, and no more of what it is a part of."""
        made = cls.__new__(cls)
        made._bytes = data
        return made

    @property
    def device(self) -> Any:
        """Where the bytes lie."""
        kind = "cuda" if hasattr(self._bytes, "__cuda_array_interface__") else "cpu"
        return backend_named(kind).device_of(self._bytes)

    def data_ptr(self) -> int:
        """Address of the first byte."""
        return address(self._bytes)

    def nbytes(self) -> int:
        """Number of bytes."""
        return int(self._bytes.nbytes)

    size = __len__ = nbytes

    @property
    def _cdata(self) -> int:
        """A number that storages of the same memory share, and no others."""
        return self.data_ptr() if len(self) else id(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (self._cdata, len(self)) == (other._cdata, len(other))

    def __hash__(self) -> int:
        return hash(self._cdata)

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    @property
    def is_cuda(self) -> bool:
        """Whether the bytes lie on an NVIDIA GPU."""
        return bool(self.device.type == "cuda")

    def is_shared(self) -> bool:
        """Whether forked processes share the bytes."""
        return is_shared(self._bytes)

    def element_size(self) -> int:
        """1: a byte."""
        return 1

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return [int(b) for b in self._bytes]

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return UntypedStorage.over(self._bytes[place])
        self._check(place)
        return int(self._bytes[place])

    def __setitem__(self, place: Any, value: Any) -> None:
        if not isinstance(place, slice):
            self._check(place)
        self._bytes[place] = value

    def _check(self, place: int) -> None:
        if not -len(self) <= place < len(self):
            raise IndexRangeError(f"index {place} out of range for storage of size {len(self)}")

    def fill_(self, value: int) -> UntypedStorage:
        """Every byte set to ``value``."""
        self._bytes[...] = value
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """``source``'s bytes written here; as many as there are."""
        if len(source) != len(self):
            raise ArgumentError(f"a storage of {len(self)} bytes cannot take the {len(source)} of another.")
        self._bytes[...] = source._bytes
        return self

    def clone(self) -> UntypedStorage:
        """A copy."""
        return UntypedStorage.over(self._bytes.copy())

    def resize_(self, size: int) -> None:
        """Refused, but for the size that it has: memory never grows or shrinks under those who share it."""
        if size != len(self):
            raise UnsupportedError(
                f"a storage of {len(self)} bytes cannot become one of {size}: tensors that share it would not"
                " follow. Use tensor.resize_, which takes new memory, or make a new tensor."
            )

    def array(self, kind: dtype) -> Any:
        """The bytes as a vector of another dtype; a rest of less than one element is left out."""
        whole = len(self) // kind.numpy.itemsize * kind.numpy.itemsize
        return self._bytes[:whole].view(kind.numpy)

    def __repr__(self) -> str:
        return f"torch.storage.UntypedStorage(device={self.device}) of size {len(self)}"
