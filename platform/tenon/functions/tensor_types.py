"""Legacy tensor types such as ``FloatTensor`` and ``LongTensor``, for the CPU, and those of ``torch.cuda``.

``LongTensor(2, 3)`` and ``LongTensor([1, 2])`` create a tensor, ``isinstance(t, LongTensor)`` tests its
dtype and device, ``t.type(LongTensor)`` converts it. The tensors are all of class ``Tensor``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tenon import dtypes
from tenon.device import Device, set_default_device
from tenon.errors import ArgumentError, DeviceError
from tenon.kernels.backend import backend_for
from tenon.tensors.creation.create import legacy_tensor
from tenon.tensors.tensor import Tensor

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
    device_type: str

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype == cls.dtype
            and instance.device.type == cls.device_type
        )

    def __repr__(cls) -> str:
        return f"<class 'torch.{'cuda.' if cls.device_type == 'cuda' else ''}{cls.__name__}'>"


class _Typed(metaclass=_TensorType):
    """A legacy tensor type: creates tensors of one dtype on one kind of device."""

    dtype: ClassVar[dtypes.dtype] = dtypes.float32
    device_type: ClassVar[str] = "cpu"

    def __init_subclass__(cls) -> None:
        for base in cls.__bases__:
            if base is not _Typed:
                raise TypeError(
                    f"type 'torch.{base.__name__}' is not an acceptable base type; derive from torch.Tensor."
                )

    def __new__(cls, *args: object, **kwargs: Any) -> Tensor:  # type: ignore[misc]  # not of this class
        if cls.device_type == "cuda" and not (args and isinstance(args[0], Tensor)):
            kwargs = {"device": "cuda", **kwargs}
        return legacy_tensor(Tensor, args, kwargs, cls.dtype)


def _tensor_type(name: str, kind: dtypes.dtype, device: str) -> _TensorType:
    doc = f"Tensors of {kind} on {'an NVIDIA GPU' if device == 'cuda' else 'the CPU'}."
    return _TensorType(name, (_Typed,), {"dtype": kind, "device_type": device, "__doc__": doc})


for _name, _dtype in _NAMES.items():
    globals()[_name] = _tensor_type(_name, _dtype, "cpu")

#: Name -> tensor type of ``torch.cuda``.
ON_CUDA = {_name: _tensor_type(_name, _dtype, "cuda") for _name, _dtype in _NAMES.items()}


class _Default:
    on_cuda = False


def set_default_tensor_type(t: object, /) -> None:
    """Set the default dtype by a tensor type: ``DoubleTensor`` or ``"torch.DoubleTensor"`` for float64.

    A type of ``torch.cuda`` also makes the GPU the default device, until a type of the CPU is set.
    """
    named = repr(t)[8:-2] if isinstance(t, _TensorType) else str(t)  # <class 'torch.cuda.FloatTensor'>
    module, _, name = named.rpartition(".")
    if module not in ("", "torch", "torch.cuda") or name not in _NAMES:
        raise ArgumentError(f"invalid type object: {t!r} is not one of {', '.join(_NAMES)}.")
    if module == "torch.cuda":
        _check_cuda(named)
    dtypes.set_default_dtype(_NAMES[name])
    if _Default.on_cuda or module == "torch.cuda":
        _Default.on_cuda = module == "torch.cuda"
        set_default_device("cuda" if _Default.on_cuda else None)


def _check_cuda(name: str) -> None:
    try:
        backend_for(Device("cuda"))
    except DeviceError as error:
        raise TypeError(f"type {name} not available: {error}") from error


__all__ = [*_NAMES, "set_default_tensor_type"]
