"""The memory behind tensors as numbers: ``tensor.storage()``, and torch's old ``FloatStorage`` and its kin.

``FloatStorage(3)`` and ``FloatStorage([1, 2])`` make memory; ``isinstance(s, FloatStorage)`` asks for its
dtype.
All such objects are of the one class ``TypedStorage``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from tenon import dtypes
from tenon.core.storage import UntypedStorage
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.errors import ArgumentError, IndexRangeError

_NAMES = {
    "DoubleStorage": dtypes.float64,
    "FloatStorage": dtypes.float32,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
    "ComplexFloatStorage": dtypes.complex64,
    "ComplexDoubleStorage": dtypes.complex128,
}
_NAME_OF = {kind: name for name, kind in _NAMES.items()}


class TypedStorage:
    """The memory behind a tensor as numbers of its dtype: what the older ``tensor.storage()`` returns.

    ``TypedStorage(n)`` and ``TypedStorage([...])`` are new memory, ``wrap_storage`` shows given bytes.

    >>> TypedStorage([1, 2], dtype=dtypes.float32).tolist()
    [1.0, 2.0]
    """

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: dtype | None = None, device: Any = None
    ) -> None:
        if wrap_storage is not None:
            if args or device is not None or dtype is None or not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(
                    "TypedStorage: wrap_storage is an UntypedStorage, given with dtype and without a size or "
                    f"device; got {type(wrap_storage).__name__}, dtype={dtype}, device={device}, {args}."
                )
            self._untyped_storage, self.dtype = wrap_storage, dtype
            return
        if len(args) > 1:
            raise TypeError(f"TypedStorage: expected one size or sequence of numbers, got {args}.")
        self.dtype = dtype or dtypes.get_default_dtype()
        given = args[0] if args else 0
        if isinstance(given, int):
            self._untyped_storage = UntypedStorage(
                given * self.dtype.itemsize, device="cpu" if device is None else device
            )
            return
        numbers = np.asarray(list(given)).astype(self.dtype.numpy)
        self._untyped_storage = UntypedStorage(numbers.nbytes, device="cpu" if device is None else device)
        self._numbers[:] = numbers

    @classmethod
    def of(cls, raw: Any) -> TypedStorage:
        """The memory behind an array."""
        return cls(wrap_storage=UntypedStorage.of(raw), dtype=FROM_NUMPY[raw.dtype])

    @property
    def _numbers(self) -> Any:
        return self._untyped_storage.array(self.dtype)

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped_storage

    @property
    def device(self) -> Any:
        """Where the numbers lie."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the numbers lie on an NVIDIA GPU."""
        return self._untyped_storage.is_cuda

    def data_ptr(self) -> int:
        """Address of the first number."""
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._untyped_storage.nbytes()

    def is_shared(self) -> bool:
        """Whether forked processes share the numbers."""
        return self._untyped_storage.is_shared()

    def element_size(self) -> int:
        """Bytes of one number."""
        return int(self.dtype.itemsize)

    def pickle_storage_type(self) -> str:
        """The name that torch has for such memory, as ``FloatStorage``."""
        if self.dtype not in _NAME_OF:
            raise KeyError(f"dtype {self.dtype} is not recognized: torch has no named storage for it.")
        return _NAME_OF[self.dtype]

    def type(self) -> str:
        """Its full name, as ``torch.FloatStorage``."""
        return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"

    def size(self) -> int:
        """How many numbers."""
        return int(self._numbers.size)

    __len__ = _size = size

    def tolist(self) -> list[Any]:
        """The numbers."""
        return [v.item() for v in self._numbers]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, place: int) -> Any:
        return self._numbers[self._place(place)].item()

    def __setitem__(self, place: Any, value: Any) -> None:
        self._numbers[place if isinstance(place, slice) else self._place(place)] = value

    def _place(self, place: Any) -> int:
        if isinstance(place, slice):
            raise ArgumentError(
                "slices are only supported in UntypedStorage.__getitem__; use untyped(), or slice a tensor."
            )
        if not isinstance(place, int):
            raise ArgumentError(f"can't index a {type(self)} with {type(place)}")
        if not -len(self) <= place < len(self):
            raise IndexRangeError(f"index {place} out of range for storage of size {len(self)}")
        return place

    def fill_(self, value: Any) -> TypedStorage:
        """Every number set to ``value``."""
        self._numbers[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        """The bytes of a storage as large written here."""
        self._untyped_storage.copy_(source.untyped())
        return self

    def clone(self) -> TypedStorage:
        """A copy."""
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        memo[id(self)] = copied = self.clone()
        return copied

    def __repr__(self) -> str:
        rows = "\n".join(f" {number}" for number in self)
        about = f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        return f"{rows}\n{about}" if rows else about


class _StorageType(type):
    dtype: dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype == cls.dtype and not instance.is_cuda

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


class _Typed(metaclass=_StorageType):
    """Makes memory for numbers of one dtype on the CPU."""

    dtype: ClassVar[dtypes.dtype] = dtypes.float32

    def __new__(cls, *args: Any, wrap_storage: Any = None) -> Any:
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype)


for _name, _dtype in _NAMES.items():
    globals()[_name] = _StorageType(
        _name, (_Typed,), {"dtype": _dtype, "__doc__": f"Memory of {_dtype} on the CPU."}
    )

__all__ = [*_NAMES, "TypedStorage"]
