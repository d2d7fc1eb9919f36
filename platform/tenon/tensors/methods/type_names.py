"""torch's names of tensor types, as ``torch.FloatTensor``, and the dtypes that ``tensor.type(...)`` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon import dtypes
from tenon.engine.value import Value
from tenon.errors import ArgumentError

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike

TYPE_NAMES = {
    "float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor", "int64": "LongTensor",
    "int32": "IntTensor", "int16": "ShortTensor", "int8": "CharTensor", "uint8": "ByteTensor",
    "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor", "complex128": "ComplexDoubleTensor", "uint16": "UInt16Tensor",
    "uint32": "UInt32Tensor",
    "uint64": "UInt64Tensor",
}  # fmt: skip


def dtype_and_device(kind: object) -> tuple[DTypeLike, str | None]:
    """Return the dtype and the device type of a tensor type or its name, as ``"torch.cuda.LongTensor"``; for
    a dtype, itself and None."""
    if isinstance(kind, str):
        by_name = {f"torch.{v}": dtypes.BY_NAME[k] for k, v in TYPE_NAMES.items()}
        by_name["torch.Tensor"] = dtypes.get_default_dtype()
        plain = kind.replace("torch.cuda.", "torch.")
        if plain not in by_name:
            raise ArgumentError(f"invalid type: {kind!r}; known: {', '.join(by_name)}")
        return by_name[plain], "cpu" if plain == kind else "cuda"
    if isinstance(kind, type) and issubclass(kind, Value):
        return dtypes.get_default_dtype(), "cpu"
    dtype = getattr(kind, "dtype", kind)
    if not isinstance(dtype, (dtypes.dtype, type)):
        raise TypeError(f"dtype must be a type, str, or dtype object, not {type(kind).__name__}")
    return dtype, getattr(kind, "device_type", None)
