"""The memory behind tensors as numbers: ``tensor.storage()``. ``FloatStorage`` and its kin make it
(``legacy_storages.py``), and all such objects are of the one class ``TypedStorage``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from tenon import dtypes
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.engine.aval import Aval
from tenon.errors import ArgumentError, DTypeError, IndexRangeError
from tenon.tensors.storage.moves import Moves, check_number
from tenon.tensors.storage.untyped import UntypedStorage

#: torch's name of the memory of each dtype that has one.
STORAGE_NAMES: dict[dtype, str] = {
    dtypes.float64: "DoubleStorage",
    dtypes.float32: "FloatStorage",
    dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage",
    dtypes.int64: "LongStorage",
    dtypes.int32: "IntStorage",
    dtypes.int16: "ShortStorage",
    dtypes.int8: "CharStorage",
    dtypes.uint8: "ByteStorage",
    dtypes.bool: "BoolStorage",
    dtypes.complex64: "ComplexFloatStorage",
    dtypes.complex128: "ComplexDoubleStorage",
    dtypes.NAMED["qint8"]: "QInt8Storage",
    dtypes.NAMED["qint32"]: "QInt32Storage",
    dtypes.NAMED["quint8"]: "QUInt8Storage",
    dtypes.NAMED["quint4x2"]: "QUInt4x2Storage",
    dtypes.NAMED["quint2x4"]: "QUInt2x4Storage",
}
_QUANTIZED = {
    dtypes.NAMED["qint8"]: dtypes.int8,
    dtypes.NAMED["qint32"]: dtypes.int32,
    **{dtypes.NAMED[name]: dtypes.uint8 for name in ("quint8", "quint4x2", "quint2x4")},
}
_FORMS = (
    "{} received an invalid combination of arguments. Expected one of:\n"
    " * {}\n * (int size{})\n * (Sequence data{})\n * (*, UntypedStorage wrap_storage{})\n"
)


class TypedStorage(Moves):
    """The memory behind a tensor as numbers of its dtype: what the older ``tensor.storage()`` returns.

    ``TypedStorage(n)`` and ``TypedStorage([...])`` are new memory, ``wrap_storage`` shows given bytes.

    >>> TypedStorage([1, 2], dtype=dtypes.float32).tolist()
    [1.0, 2.0]
    """

    dtype: dtypes.dtype
    _untyped_storage: UntypedStorage

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: dtypes.dtype | None = None, device: Any = None
    ) -> None:
        if wrap_storage is not None:
            _check_wrapping(args, wrap_storage, dtype, device)
            self._untyped_storage = wrap_storage
            assert dtype is not None  # as just checked
            self.dtype = dtype
            return
        check_contents("TypedStorage.__init__", args, _TYPED)
        self.dtype = dtype or dtypes.get_default_dtype()
        place, given = "cpu" if device is None else device, args[0] if args else 0
        if isinstance(given, (int, np.integer)):
            self._untyped_storage = UntypedStorage(int(given) * self.dtype.itemsize, device=place)
            return
        check_number(given)
        numbers = np.asarray(list(given)).astype(number_dtype(self.dtype).numpy)
        self._untyped_storage = UntypedStorage.over(numbers.view(np.uint8)).to(device=place)

    @classmethod
    def of(cls, raw: Any) -> TypedStorage:
        """The memory behind an array."""
        return TypedStorage(wrap_storage=UntypedStorage.of(raw), dtype=FROM_NUMPY[raw.dtype])

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> TypedStorage:
        """A copy of the numbers in an object with a buffer; see ``UntypedStorage.from_buffer``."""
        if device is not None and str(device) != "cpu":
            raise ArgumentError(f"TypedStorage.from_buffer: Not available for device {device}")
        kind = dtype or dtypes.get_default_dtype()
        kwargs["dtype"] = number_dtype(kind)
        result = UntypedStorage.from_buffer(*args, **kwargs)
        return TypedStorage(wrap_storage=result, dtype=kind)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """Refused: only ``FloatStorage`` and its kin know what numbers a file holds."""
        raise ArgumentError("from_file can only be called on derived classes, such as FloatStorage.")

    def _wrapped(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    @property
    def _bytes(self) -> Any:
        return self._untyped_storage._bytes

    @property
    def _numbers(self) -> Any:
        self._with_data()
        return self._untyped_storage.array(number_dtype(self.dtype))

    def _shown(self) -> Any:
        return self._untyped_storage.array(number_dtype(self.dtype))

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    @property
    def _dtype(self) -> dtypes.dtype:
        return self.dtype

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped_storage

    def data_ptr(self) -> int:
        """Address of the first number."""
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._untyped_storage.nbytes()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def is_shared(self) -> bool:
        """Whether forked processes share the numbers."""
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        """Itself if its memory is shared; refused otherwise, see ``UntypedStorage.share_memory_``."""
        self._untyped_storage.share_memory_()
        return self

    def _new_shared(self, size: int, *, device: Any = "cpu") -> TypedStorage:
        """``size`` zeros of the same dtype that processes forked from now on share."""
        return self._wrapped(UntypedStorage._new_shared(size * self.dtype.itemsize, device=device or "cpu"))

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """Itself: pinned memory belongs to the CUDA backend's own staging buffers."""
        return self

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """The numbers on a device."""
        return self._wrapped(self._untyped_storage.to(device=device))

    def cpu(self) -> TypedStorage:
        """The numbers on the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The numbers on a CUDA device."""
        return self.to(device="cuda" if device is None else device)

    def element_size(self) -> int:
        """Bytes of one number."""
        return int(self.dtype.itemsize)

    def pickle_storage_type(self) -> str:
        """The name that torch has for such memory, as ``FloatStorage``."""
        if self.dtype not in STORAGE_NAMES:
            raise KeyError(f"dtype {self.dtype} is not recognized: torch has no named storage for it.")
        return STORAGE_NAMES[self.dtype]

    def type(self) -> str:
        """Its full name, as ``torch.FloatStorage``."""
        if self.dtype not in STORAGE_NAMES or isinstance(self._bytes, Aval):
            return "torch.storage.TypedStorage"
        return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"

    def size(self) -> int:
        """How many numbers."""
        return self.nbytes() // int(self.dtype.itemsize)

    __len__ = _size = size

    def tolist(self) -> list[Any]:
        """The numbers."""
        return [v.item() for v in self._numbers]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, place: int) -> Any:
        numbers = self._numbers
        if isinstance(place, slice):
            raise ArgumentError(
                "slices are only supported in UntypedStorage.__getitem__; use untyped(), or slice a tensor."
            )
        return numbers[self._place(place)].item()

    def __setitem__(self, place: Any, value: Any) -> None:
        if isinstance(value, Moves):
            raise ArgumentError(f"cannot set item with value type {type(value)}; use copy_.")
        at = place if isinstance(place, slice) else self._place(place)
        if not isinstance(self._bytes, Aval):
            self._numbers[at] = value

    def _place(self, place: Any) -> int:
        if not isinstance(place, int):
            raise ArgumentError(f"can't index a {type(self)} with {type(place)}")
        if not -len(self) <= place < len(self):
            raise IndexRangeError(f"index {place} out of range for storage of size {len(self)}")
        return place

    def fill_(self, value: Any) -> TypedStorage:
        """Every number set to ``value``."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """The bytes of a storage as large written here."""
        self._untyped_storage.copy_(source)
        return self

    def resize_(self, size: int) -> None:
        """Refused, but for the size that it has; see ``UntypedStorage.resize_``."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def clone(self) -> TypedStorage:
        """A copy."""
        return self._wrapped(self._untyped_storage.clone())

    __copy__ = clone

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return self._wrapped(copy.deepcopy(self._untyped_storage, memo))

    def __repr__(self) -> str:
        about = f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        if isinstance(self._bytes, Aval):
            return f"...\n{about}"
        rows = "\n".join(f" {number}" for number in self)
        return f"{rows}\n{about}" if rows else about


_TYPED = (
    "(*, torch.device device, torch.dtype dtype)", ", *, torch.device device, torch.dtype dtype",
    ", torch.dtype dtype",
)  # fmt: skip
#: The same of ``FloatStorage`` and its kin, which know their dtype and device.
NAMED_FORMS = ("no arguments", "", "")


def number_dtype(kind: dtype) -> dtype:
    """The dtype that the memory of ``kind`` is read as: itself, or integers where it is quantized."""
    return _QUANTIZED.get(kind, kind)


def refuse_arguments(kind: Any, caller: str, forms: tuple[str, str, str], problem: str) -> NoReturn:
    """An error of class ``kind`` with all that ``caller`` can be given."""
    first, more, wrapped = forms
    raise kind(_FORMS.format(caller, first, more, more, wrapped) + problem)


def check_contents(caller: str, args: tuple[Any, ...], forms: tuple[str, str, str]) -> None:
    """One size, one sequence or nothing."""
    if len(args) > 1:
        refuse_arguments(ArgumentError, caller, forms, "Too many positional arguments")
    if args and not isinstance(args[0], (int, np.integer, Sequence, np.ndarray)):
        problem = f"Argument type not recognized: {type(args[0])}"
        refuse_arguments(DTypeError, caller, forms, problem)


def _check_wrapping(args: tuple[Any, ...], wrap_storage: Any, kind: Any, device: Any) -> None:
    caller = "TypedStorage.__init__"
    check_wrapped(caller, args, wrap_storage, _TYPED)
    if kind is None:
        refuse_arguments(ArgumentError, caller, _TYPED, "Argument 'dtype' must be specified")
    if not isinstance(kind, dtype):
        problem = f"Argument 'dtype' must be torch.dtype, not {type(kind)}"
        refuse_arguments(DTypeError, caller, _TYPED, problem)
    if device is not None:
        problem = "Argument 'device' should not be specified when 'wrap_storage' is given"
        refuse_arguments(ArgumentError, caller, _TYPED, problem)


def check_wrapped(caller: str, args: tuple[Any, ...], wrapped: Any, forms: tuple[str, str, str]) -> None:
    """An untyped storage, given alone."""
    if args:
        problem = "No positional arguments should be given when using 'wrap_storage'"
        refuse_arguments(ArgumentError, caller, forms, problem)
    if not isinstance(wrapped, UntypedStorage):
        problem = f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrapped)}"
        refuse_arguments(DTypeError, caller, forms, problem)


__all__ = ["STORAGE_NAMES", "TypedStorage"]
