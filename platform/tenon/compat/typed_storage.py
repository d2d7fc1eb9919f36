"""``TypedStorage``: the memory of tensors as numbers of one dtype, as ``tensor.storage()`` returns it.

``FloatStorage`` and the other classes of ``compat/legacy_storages.py`` create objects of this class.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tenon import dtypes
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.engine.aval import Aval
from tenon.errors import ArgumentError, DTypeError, IndexRangeError
from tenon.tensors.storage.shared_methods import Moves, check_number
from tenon.tensors.storage.untyped import UntypedStorage

if TYPE_CHECKING:
    from tenon.device import Device, DeviceLike
    from tenon.engine.types import Array

#: dtype -> PyTorch's name of its storage class, if it has one.
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
    """The memory of a tensor as numbers of its dtype, as the deprecated ``tensor.storage()`` returns it.

    ``TypedStorage(n)`` and ``TypedStorage([...])`` allocate memory; ``wrap_storage`` is an existing storage.

    >>> TypedStorage([1, 2], dtype=dtypes.float32).tolist()
    [1.0, 2.0]
    """

    dtype: dtypes.dtype
    _untyped_storage: UntypedStorage

    def __init__(
        self,
        *args: Any,  # a size, a sequence or a storage
        wrap_storage: UntypedStorage | None = None,
        dtype: dtypes.dtype | None = None,
        device: DeviceLike = None,
    ) -> None:
        if wrap_storage is not None:
            _check_wrapping(args, wrap_storage, dtype, device)
            self._untyped_storage = wrap_storage
            assert dtype is not None  # as just checked
            self.dtype = dtype
            return
        check_contents("TypedStorage.__init__", args, _TYPED)
        self.dtype = dtype or dtypes.get_default_dtype()
        target, contents = "cpu" if device is None else device, args[0] if args else 0
        if isinstance(contents, (int, np.integer)):
            self._untyped_storage = UntypedStorage(int(contents) * self.dtype.itemsize, device=target)
            return
        check_number(contents)
        numbers = np.asarray(list(contents)).astype(number_dtype(self.dtype).numpy)
        self._untyped_storage = UntypedStorage.over(numbers.view(np.uint8)).to(device=target)

    @classmethod
    def of(cls, raw: Array) -> TypedStorage:
        """Return the storage of an array."""
        return TypedStorage(wrap_storage=UntypedStorage.of(raw), dtype=FROM_NUMPY[raw.dtype])

    @classmethod
    def from_buffer(
        cls,
        *args: Any,  # as UntypedStorage.from_buffer's
        dtype: dtypes.dtype | None = None,
        device: DeviceLike = None,
        **kwargs: Any,  # likewise
    ) -> TypedStorage:
        """Copy the numbers of an object with a buffer; see ``UntypedStorage.from_buffer``."""
        if device is not None and str(device) != "cpu":
            raise ArgumentError(f"TypedStorage.from_buffer: Not available for device {device}")
        kind = dtype or dtypes.get_default_dtype()
        kwargs["dtype"] = number_dtype(kind)
        result = UntypedStorage.from_buffer(*args, **kwargs)
        return TypedStorage(wrap_storage=result, dtype=kind)

    @classmethod
    def from_file(cls, filename: str | os.PathLike[str], shared: bool = False, size: int = 0) -> TypedStorage:
        """Raise ArgumentError: only classes with a dtype, as ``FloatStorage``, can read a file."""
        raise ArgumentError("from_file can only be called on derived classes, such as FloatStorage.")

    def _wrapped(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    @property
    def _bytes(self) -> Array:
        return self._untyped_storage._bytes

    @property
    def _numbers(self) -> Array:
        self._with_data()
        return self._untyped_storage.array(number_dtype(self.dtype))

    def _as_values(self) -> Array:
        return self._untyped_storage.array(number_dtype(self.dtype))

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    @property
    def _dtype(self) -> dtypes.dtype:
        return self.dtype

    def untyped(self) -> UntypedStorage:
        """Return the same memory as bytes."""
        return self._untyped_storage

    def data_ptr(self) -> int:
        """Return the address of the first number."""
        return self._untyped_storage.data_ptr()

    def nbytes(self) -> int:
        """Return the number of bytes."""
        return self._untyped_storage.nbytes()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def is_shared(self) -> bool:
        """Whether forked processes share the numbers."""
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        """Return the storage if its memory is shared; else an error, see ``UntypedStorage.share_memory_``."""
        self._untyped_storage.share_memory_()
        return self

    def _new_shared(self, size: int, *, device: DeviceLike = "cpu") -> TypedStorage:
        """Allocate ``size`` zeros of this dtype that processes forked from now on share."""
        return self._wrapped(UntypedStorage._new_shared(size * self.dtype.itemsize, device=device or "cpu"))

    def pin_memory(self, device: DeviceLike = None) -> TypedStorage:
        """Return the storage: pinned memory is internal to the CUDA backend."""
        return self

    def to(self, *, device: Device | str | int, non_blocking: bool = False) -> TypedStorage:
        """Return a copy on ``device``; the same memory if it is there already."""
        return self._wrapped(self._untyped_storage.to(device=device))

    def cpu(self) -> TypedStorage:
        """Return a copy on the CPU; the same memory if it is there already."""
        return self.to(device="cpu")

    def cuda(self, device: DeviceLike = None, non_blocking: bool = False) -> TypedStorage:
        """Return a copy on a CUDA device; the same memory if it is there already."""
        return self.to(device="cuda" if device is None else device)

    def element_size(self) -> int:
        """Return the number of bytes of one number."""
        return int(self.dtype.itemsize)

    def pickle_storage_type(self) -> str:
        """Return PyTorch's name of this dtype's storage class, such as ``FloatStorage``."""
        if self.dtype not in STORAGE_NAMES:
            raise KeyError(f"dtype {self.dtype} is not recognized: PyTorch has no named storage for it.")
        return STORAGE_NAMES[self.dtype]

    def type(self) -> str:
        """Return PyTorch's full name of this dtype's storage class, such as ``torch.FloatStorage``."""
        if self.dtype not in STORAGE_NAMES or isinstance(self._bytes, Aval):
            return "torch.storage.TypedStorage"
        return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"

    def size(self) -> int:
        """Return the number of elements."""
        return self.nbytes() // int(self.dtype.itemsize)

    __len__ = _size = size

    def tolist(self) -> list[Any]:  # bool, int, float or complex, as the dtype
        """Return the elements as Python numbers."""
        return [v.item() for v in self._numbers]

    def __iter__(self) -> Iterator[bool | int | float | complex]:
        return iter(self.tolist())

    def __getitem__(self, index: int) -> bool | int | float | complex:
        numbers = self._numbers
        if isinstance(index, slice):
            raise ArgumentError(
                "slices are only supported in UntypedStorage.__getitem__; use untyped(), or slice a tensor."
            )
        return numbers[self._checked(index)].item()

    def __setitem__(self, index: int | slice, value: object) -> None:
        if isinstance(value, Moves):
            raise ArgumentError(f"cannot set item with value type {type(value)}; use copy_.")
        key = index if isinstance(index, slice) else self._checked(index)
        if not isinstance(self._bytes, Aval):
            self._numbers[key] = value

    def _checked(self, index: object) -> int:
        """Return ``index``; an error unless it is an integer in range."""
        if not isinstance(index, int):
            raise ArgumentError(f"can't index a {type(self)} with {type(index)}")
        if not -len(self) <= index < len(self):
            raise IndexRangeError(f"index {index} out of range for storage of size {len(self)}")
        return index

    def fill_(self, value: complex) -> TypedStorage:
        """Set every element to ``value``."""
        self[:] = value
        return self

    def copy_(self, source: TypedStorage | UntypedStorage, non_blocking: bool | None = None) -> TypedStorage:
        """Copy the bytes of ``source``, of the same number of bytes, into this storage."""
        self._untyped_storage.copy_(source)
        return self

    def resize_(self, size: int) -> None:
        """Raise unless ``size`` is the present size; see ``UntypedStorage.resize_``."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def clone(self) -> TypedStorage:
        """Return a copy."""
        return self._wrapped(self._untyped_storage.clone())

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, object]) -> TypedStorage:
        return self._wrapped(copy.deepcopy(self._untyped_storage, memo))

    def __repr__(self) -> str:
        summary = (
            f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        )
        if isinstance(self._bytes, Aval):
            return f"...\n{summary}"
        rows = "\n".join(f" {number}" for number in self)
        return f"{rows}\n{summary}" if rows else summary


#: The variable parts of the signatures that error messages list for ``TypedStorage``.
_TYPED = (
    "(*, torch.device device, torch.dtype dtype)", ", *, torch.device device, torch.dtype dtype",
    ", torch.dtype dtype",
)  # fmt: skip
#: The same for ``FloatStorage`` and the like, which have a dtype and device.
NAMED_FORMS = ("no arguments", "", "")


def number_dtype(kind: dtype) -> dtype:
    """Return the dtype in which storages of ``kind`` are read: ``kind``, or integers if it is quantized."""
    return _QUANTIZED.get(kind, kind)


def refuse_arguments(
    error: type[Exception], caller: str, forms: tuple[str, str, str], problem: str
) -> NoReturn:
    """Raise ``error`` with ``problem`` and the signatures of ``caller``."""
    first, more, wrapped = forms
    raise error(_FORMS.format(caller, first, more, more, wrapped) + problem)


def check_contents(caller: str, args: tuple[object, ...], forms: tuple[str, str, str]) -> None:
    """Raise unless ``args`` is one size, one sequence or empty."""
    if len(args) > 1:
        refuse_arguments(ArgumentError, caller, forms, "Too many positional arguments")
    if args and not isinstance(args[0], (int, np.integer, Sequence, np.ndarray)):
        problem = f"Argument type not recognized: {type(args[0])}"
        refuse_arguments(DTypeError, caller, forms, problem)


def _check_wrapping(args: tuple[object, ...], wrap_storage: object, kind: object, device: DeviceLike) -> None:
    """Raise unless ``wrap_storage`` and ``kind`` are the only arguments, and of the right types."""
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


def check_wrapped(
    caller: str, args: tuple[object, ...], wrapped: object, forms: tuple[str, str, str]
) -> None:
    """Raise unless ``wrapped`` is an untyped storage and there are no positional arguments."""
    if args:
        problem = "No positional arguments should be given when using 'wrap_storage'"
        refuse_arguments(ArgumentError, caller, forms, problem)
    if not isinstance(wrapped, UntypedStorage):
        problem = f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrapped)}"
        refuse_arguments(DTypeError, caller, forms, problem)


__all__ = ["STORAGE_NAMES", "TypedStorage"]
