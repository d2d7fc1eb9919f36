"""torch's names of tensor types, as ``torch.FloatTensor``, and what dtype ``tensor.type(...)`` means."""

from __future__ import annotations

from typing import Any

from tenon import dtypes
from tenon.engine.value import Value
from tenon.errors import ArgumentError

TYPE_NAMES = {
    "float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor",
    "bfloat16": "BFloat16Tensor", "int64": "LongTensor",
    "int32": "IntTensor", "int16": "ShortTensor", "int8": "CharTensor", "uint8": "ByteTensor",
    "bool": "BoolTensor",
    "complex64": "ComplexFloatTensor", "complex128": "ComplexDoubleTensor", "uint16": "UInt16Tensor",
    "uint32": "UInt32Tensor",
    "uint64": "UInt64Tensor",
}  # fmt: skip


def meant(given: Any) -> tuple[Any, str | None]:
    """The dtype and kind of device of a type or its name, as ``"torch.cuda.LongTensor"``, or of a dtype."""
    if isinstance(given, str):
        by_name = {f"torch.{v}": dtypes.BY_NAME[k] for k, v in TYPE_NAMES.items()}
        by_name["torch.Tensor"] = dtypes.get_default_dtype()
        plain = given.replace("torch.cuda.", "torch.")
        if plain not in by_name:
            raise ArgumentError(f"invalid type: {given!r}; known: {', '.join(by_name)}")
        return by_name[plain], "cpu" if plain == given else "cuda"
    if isinstance(given, type) and issubclass(given, Value):
        return dtypes.get_default_dtype(), "cpu"
    found = getattr(given, "dtype", given)
    if not isinstance(found, (dtypes.dtype, type)):
        raise TypeError(f"dtype must be a type, str, or dtype object, not {type(given).__name__}")
    return found, getattr(given, "device_type", None)
