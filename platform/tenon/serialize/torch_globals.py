"""What the globals in PyTorch's checkpoints stand for here: the complete list of what a file may name.

The table is made per file, as the tensors that it builds go where ``Placement`` says.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import CheckpointError
from tenon.nn.parameter import Buffer, Parameter
from tenon.serialize import modules
from tenon.serialize.layout import LoadedStorage, meta_tensor, rebuild
from tenon.serialize.pickle_reader import Constructor, Unsupported, check_key
from tenon.serialize.pickle_writer import STORAGE_CLASSES
from tenon.serialize.safe_globals import marked
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

_NO_SPARSE = "tenon has no sparse tensors. Convert it with .to_dense() where the file was made"
_NO_QUANTIZED = "tenon reads no quantized tensors. Convert it with .dequantize() where the file was made"
_NO_DTYPE = "tenon has no such dtype. Convert the tensor where the file was made, for example with .float()"

_UNSUPPORTED = {
    "torch._utils._rebuild_sparse_tensor": ("a sparse tensor", _NO_SPARSE),
    "torch._utils._rebuild_sparse_csr_tensor": ("a sparse tensor", _NO_SPARSE),
    "torch._utils._rebuild_qtensor": ("a quantized tensor", _NO_QUANTIZED),
    "torch._utils._rebuild_nested_tensor": ("a nested tensor", "tenon has no nested tensors"),
    "torch.QInt8Storage": ("a quantized tensor", _NO_QUANTIZED),
    "torch.QInt32Storage": ("a quantized tensor", _NO_QUANTIZED),
    "torch.QUInt8Storage": ("a quantized tensor", _NO_QUANTIZED),
}

_FOREIGN_DTYPES = (
    "complex32", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2", "qint8", "quint8", "qint32",
)  # fmt: skip


class StorageClass:
    """A storage class of PyTorch: only the element type that it stands for, which may be unknown yet."""

    __slots__ = ("dtype", "typed")

    def __init__(self, kind: dtype, *, typed: bool = True) -> None:
        self.dtype = kind
        self.typed = typed


def torch_globals(layers: bool = False) -> dict[str, Any]:
    """Full name -> a Constructor, a value, or Unsupported; with ``layers`` those of ``tenon.nn`` too.

    Layers that the caller has marked as safe are always in it.
    """
    table: dict[str, Any] = {f"torch.{kind.name}": kind for kind in dtypes.ALL}
    table |= modules.known() if layers else marked()
    for name in _FOREIGN_DTYPES:
        table[f"torch.{name}"] = Unsupported(f"a torch.{name} tensor", _NO_DTYPE)
    for kind, storage in STORAGE_CLASSES.items():
        for module in ("torch", "torch.cuda", "torch.storage"):
            table[f"{module}.{storage}"] = StorageClass(dtypes.BY_NAME[kind])
    table["torch.storage.UntypedStorage"] = table["torch.UntypedStorage"] = StorageClass(
        dtypes.uint8, typed=False
    )
    for name, (what, reason) in _UNSUPPORTED.items():
        table[name] = Unsupported(what, reason)
    for name, build in _CONSTRUCTORS.items():
        table[name] = Constructor(name, build)
    return table


def _tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Any:
    if not isinstance(storage, LoadedStorage):
        raise CheckpointError(f"a tensor is built from a {type(storage).__name__} instead of a storage")
    return rebuild(storage, storage.dtype, offset * storage.dtype.itemsize, tuple(size), tuple(stride))


def _tensor_v2(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any = None,
    metadata: Any = None,
) -> Any:
    tensor = _with_metadata(_tensor(storage, offset, size, stride), metadata)
    return tensor.requires_grad_(True) if requires_grad is True else tensor


def _tensor_v3(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    kind: Any,
    metadata: Any = None,
) -> Any:
    if not isinstance(storage, LoadedStorage) or not isinstance(kind, dtype):
        raise CheckpointError("a tensor is built from something else than a storage and a dtype")
    tensor = _with_metadata(
        rebuild(storage, kind, offset * kind.itemsize, tuple(size), tuple(stride)), metadata
    )
    return tensor.requires_grad_(True) if requires_grad is True else tensor


def _with_metadata(tensor: Any, metadata: Any) -> Any:
    """Resolve PyTorch's lazy conjugate and negative views; the values then have memory of their own."""
    if not metadata:
        return tensor
    unknown = sorted(set(metadata) - {"conj", "neg"})
    if unknown:
        raise CheckpointError(f"a tensor carries unknown flags {unknown}")
    raw = tensor.raw
    if metadata.get("conj"):
        raw = tensor._backend.as_array(raw.conj()) if hasattr(raw, "conj") else raw
    if metadata.get("neg"):
        raw = -raw if hasattr(raw, "__neg__") else raw
    return Tensor._of(raw, tensor._backend)


def _parameter(data: Any = None, requires_grad: Any = True, hooks: Any = None, state: Any = None) -> Any:
    if data is None or not isinstance(data, Tensor):
        raise CheckpointError(f"a parameter is built from a {type(data).__name__} instead of a tensor")
    return Parameter(data, requires_grad is True)


def _parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    return _with_attributes(_parameter(data, requires_grad), state)


def _from_type(build: Any, kind: Any, args: Any, state: Any) -> Any:
    if not isinstance(build, Constructor) or not isinstance(kind, Constructor):
        raise CheckpointError("a tensor is rebuilt by something that is no constructor")
    tensor = build(*args)
    if kind.build is _parameter and not isinstance(tensor, Parameter):
        tensor = Parameter(tensor, tensor.requires_grad)
    return _with_attributes(tensor, state)


def _with_attributes(tensor: Any, state: Any) -> Any:
    """Give a tensor the attributes its owner had set, unless one would hide part of ``Tensor``."""
    if type(state) is tuple and len(state) == 2:  # instance attributes, slots
        if state[1]:
            raise CheckpointError(f"a tensor carries slots {sorted(state[1])}, which tenon's has not")
        state = state[0]
    if state and state.get("_is_buffer") is True:
        state = {name: value for name, value in state.items() if name != "_is_buffer"}
        tensor = Buffer(tensor, persistent=state.pop("persistent", True) is not False)
    for name, value in (state or {}).items():
        if type(name) is not str or name.startswith("_") or hasattr(type(tensor), name):
            raise CheckpointError(f"a tensor carries the attribute {name!r}, which would hide part of Tensor")
        setattr(tensor, name, value)
    return tensor


def _meta(kind: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    if not isinstance(kind, dtype):
        raise CheckpointError("a meta tensor without a dtype")
    return meta_tensor(kind, tuple(size), requires_grad is True)


def _from_cpu_tensor(data: Any, kind: Any, device: Any, requires_grad: Any) -> Any:
    if not isinstance(data, Tensor) or not isinstance(kind, dtype):
        raise CheckpointError("a device tensor is built from something else than a tensor and a dtype")
    raw = np.asarray(data._backend.to_host(data.raw)).astype(kind.numpy)
    return Tensor._of(raw, data._backend).requires_grad_(requires_grad is True)


def _size(items: Any = ()) -> Size:
    if any(type(n) is not int for n in items):
        raise CheckpointError(f"a torch.Size of {items!r}")
    return Size(items)


def _device(kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise CheckpointError(f"a device {kind!r} with index {index!r}")
    return Device(kind, index)


def _layout(name: Any) -> str:
    if name != "torch.strided":
        raise CheckpointError(f"it holds a tensor of layout {name}, and {_NO_SPARSE}")
    return "torch.strided"


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise CheckpointError(f"bytes are spelt in encoding {encoding!r} instead of latin1")
    return text.encode("latin1")


def _bytearray(value: Any = b"", encoding: Any = "latin1") -> bytearray:
    return bytearray(_encode(value, encoding) if type(value) is str else _exactly(value, bytes))


def _bytes(value: Any = b"") -> bytes:
    return bytes(_exactly(value, bytes))


def _complex(real: Any, imaginary: Any = 0.0) -> complex:
    return complex(_exactly(real, float, int), _exactly(imaginary, float, int))


def _set(items: Any = ()) -> set[Any]:
    for item in _exactly(items, list, tuple):
        check_key(item)
    return set(items)


def _ordered_dict(items: Any = ()) -> OrderedDict[Any, Any]:
    pairs = [tuple(pair) for pair in _exactly(items, list, tuple)]
    for key, _ in pairs:
        check_key(key)
    return OrderedDict(pairs)


def _counter(items: Any = None) -> Counter[Any]:
    return Counter(_exactly(items, dict, type(None)))


def _exactly(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise CheckpointError(f"a {type(value).__name__} where a {kinds[0].__name__} belongs")
    return value


_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "builtins.set": _set,
    "__builtin__.set": _set,
    "builtins.complex": _complex,
    "__builtin__.complex": _complex,
    "builtins.bytearray": _bytearray,
    "__builtin__.bytearray": _bytearray,
    "builtins.bytes": _bytes,
    "__builtin__.bytes": _bytes,
    "_codecs.encode": _encode,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "torch.Tensor": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _from_cpu_tensor,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.tensor._rebuild_from_type_v2": _from_type,
    "torch.nn.parameter.Parameter": _parameter,
    "torch.nn.Parameter": _parameter,
}
