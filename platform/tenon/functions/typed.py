"""``FloatTensor``, ``LongTensor`` and their kin: torch's old tensor types, one for each dtype on the CPU.

``LongTensor(2, 3)`` and ``LongTensor([1, 2])`` make a tensor, ``isinstance(t, LongTensor)`` asks for its
dtype, ``t.type(LongTensor)`` converts it. The tensors themselves are all of the one class ``Tensor``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tenon import dtypes
from tenon.core.create import legacy_tensor
from tenon.core.tensor import Tensor
from tenon.errors import ArgumentError

_NAMES = {
    "FloatTensor": dtypes.float32,
    "DoubleTensor": dtypes.float64,
    "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16,
    "ByteTensor": dtypes.uint8,
    "CharTensor": dtypes.int8,
    "ShortTensor": dtypes.int16,
    "IntTensor": dtypes.int32,
    "LongTensor": dtypes.int64,
    "BoolTensor": dtypes.bool,
}


class _TensorType(type):
    dtype: dtypes.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls.dtype and instance.device.type == "cpu"

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"


class _Typed(metaclass=_TensorType):
    """Makes tensors of one dtype on the CPU."""

    dtype: ClassVar[dtypes.dtype] = dtypes.float32

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return legacy_tensor(Tensor, args, kwargs, cls.dtype)


for _name, _dtype in _NAMES.items():
    globals()[_name] = _TensorType(
        _name, (_Typed,), {"dtype": _dtype, "__doc__": f"Tensors of {_dtype} on the CPU."}
    )


def set_default_tensor_type(t: Any, /) -> None:
    """torch's old ``set_default_dtype``: ``DoubleTensor`` or ``"torch.DoubleTensor"`` for float64."""
    name = t.rpartition(".")[2] if isinstance(t, str) else getattr(t, "__name__", repr(t))
    if name not in _NAMES:
        raise ArgumentError(f"invalid type object: {t!r} is none of {', '.join(_NAMES)}.")
    dtypes.set_default_dtype(_NAMES[name])


__all__ = [*_NAMES, "set_default_tensor_type"]
