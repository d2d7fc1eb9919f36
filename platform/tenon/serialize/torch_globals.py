"""The table of globals that a PyTorch checkpoint may name, and what each means here.

The functions in it are called with arguments from a file, annotated as ``object``: they raise
``CheckpointError`` if the types are wrong.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeVar, overload

import numpy as np

from tenon import dtypes
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import CheckpointError
from tenon.nn.parameter import Buffer, Parameter
from tenon.serialize import modules
from tenon.serialize.layout import LoadedStorage, meta_tensor, rebuild
from tenon.serialize.limits import MAX_AXES, Allowance, check_key, short
from tenon.serialize.pickle_reader import Constructor, Unsupported
from tenon.serialize.pickle_writer import STORAGE_CLASSES
from tenon.serialize.safe_globals import marked
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

T = TypeVar("T")
S = TypeVar("S")

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
    """A storage class of PyTorch: its element type; bytes with ``typed=False`` for ``UntypedStorage``."""

    __slots__ = ("dtype", "typed")

    def __init__(self, kind: dtype, *, typed: bool = True) -> None:
        self.dtype = kind
        self.typed = typed


def torch_globals(layers: bool = False, allowance: Allowance | None = None) -> dict[str, object]:
    """Full name -> a Constructor, a value, or Unsupported; with ``layers``, also all layers of ``tenon.nn``.

    Layers that the caller has marked as safe are always included. What constructors copy is subtracted from
    ``allowance``, by default that of an empty file.
    """
    given = allowance or Allowance(0)
    table: dict[str, object] = {f"torch.{kind.name}": kind for kind in dtypes.ALL}
    table |= modules.known() if layers else marked()
    for name in _FOREIGN_DTYPES:
        table[f"torch.{name}"] = Unsupported(f"a torch.{name} tensor", _NO_DTYPE)
    for kind, storage in STORAGE_CLASSES.items():
        for module in ("torch", "torch.cuda", "torch.storage"):
            table[f"{module}.{storage}"] = StorageClass(dtypes.BY_NAME[kind])
    table["torch.storage.UntypedStorage"] = table["torch.UntypedStorage"] = StorageClass(
        dtypes.uint8, typed=False
    )
    for name, (description, reason) in _UNSUPPORTED.items():
        table[name] = Unsupported(description, reason)
    for name, build in _CONSTRUCTORS.items():
        table[name] = Constructor(name, build)
    for name, copy in _COPYING.items():
        table[name] = Constructor(name, functools.partial(copy, given))
    return table


def _tensor(storage: object, offset: object, size: object, stride: object) -> Tensor:
    """``torch._utils._rebuild_tensor``."""
    if not isinstance(storage, LoadedStorage):
        raise CheckpointError(f"a tensor is built from a {type(storage).__name__} instead of a storage")
    return _view(storage, storage.dtype, offset, size, stride)


def _tensor_v2(
    allowance: Allowance,
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object,
    hooks: object = None,
    metadata: object = None,
) -> Tensor:
    """``torch._utils._rebuild_tensor_v2``."""
    tensor = _with_metadata(allowance, _tensor(storage, offset, size, stride), metadata)
    return tensor.requires_grad_(True) if requires_grad is True else tensor


def _tensor_v3(
    allowance: Allowance,
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object,
    hooks: object,
    kind: object,
    metadata: object = None,
) -> Tensor:
    """``torch._utils._rebuild_tensor_v3``, whose storage is bytes."""
    if not isinstance(storage, LoadedStorage) or not isinstance(kind, dtype):
        raise CheckpointError("a tensor is built from something other than a storage and a dtype")
    tensor = _with_metadata(allowance, _view(storage, kind, offset, size, stride), metadata)
    return tensor.requires_grad_(True) if requires_grad is True else tensor


def _view(storage: LoadedStorage, kind: dtype, offset: object, size: object, stride: object) -> Tensor:
    """A view of ``storage``; ``offset`` and ``stride`` are in elements. ``rebuild`` checks the numbers."""
    if not isinstance(offset, int):
        raise CheckpointError(f"a tensor begins at element {short(offset)} of its storage")
    return rebuild(storage, kind, offset * kind.itemsize, _integers(size), _integers(stride))


def _integers(value: object) -> tuple[int, ...]:
    """A shape or strides; ``rebuild`` checks their items."""
    if not isinstance(value, (tuple, list)) or len(value) > MAX_AXES:
        raise CheckpointError(f"{short(value)} where a shape or strides belong")
    return tuple(value)


def _with_metadata(allowance: Allowance, tensor: Tensor, metadata: object) -> Tensor:
    """``tensor`` with PyTorch's lazy conjugation and negation, flags in ``metadata``, applied to a copy."""
    if not metadata:
        return tensor
    if not isinstance(metadata, Mapping):
        raise CheckpointError(f"the flags of a tensor are a {type(metadata).__name__}")
    unknown = [name for name in metadata if name not in ("conj", "neg")]
    if unknown:
        raise CheckpointError(f"a tensor carries unknown flags {short(unknown)}")
    allowance.take(math.prod(tensor.shape) * tensor.dtype.itemsize)
    raw = tensor.raw
    if metadata.get("conj"):
        raw = tensor._backend.as_array(raw.conj()) if hasattr(raw, "conj") else raw
    if metadata.get("neg"):
        raw = -raw if hasattr(raw, "__neg__") else raw
    return Tensor._of(raw, tensor._backend)


def _parameter(
    data: object = None, requires_grad: object = True, hooks: object = None, state: object = None
) -> Parameter:
    """``torch._utils._rebuild_parameter``, and the class ``Parameter``."""
    if data is None or not isinstance(data, Tensor):
        raise CheckpointError(f"a parameter is built from a {type(data).__name__} instead of a tensor")
    return Parameter(data, requires_grad is True)


def _parameter_with_state(
    allowance: Allowance, data: object, requires_grad: object, hooks: object, state: object
) -> Tensor:
    """``torch._utils._rebuild_parameter_with_state``."""
    return _with_attributes(allowance, _parameter(data, requires_grad), state)


def _from_type(allowance: Allowance, build: object, kind: object, args: object, state: object) -> Tensor:
    """``torch._tensor._rebuild_from_type_v2``: a tensor with attributes."""
    if not isinstance(build, Constructor) or not isinstance(kind, Constructor):
        raise CheckpointError("a tensor is rebuilt by something that is not a constructor")
    tensor = build(*_exactly(args, tuple, list))
    if not isinstance(tensor, Tensor):
        raise CheckpointError(f"a {type(tensor).__name__} where a tensor belongs")
    if kind.build is _parameter and not isinstance(tensor, Parameter):
        tensor = Parameter(tensor, tensor.requires_grad)
    return _with_attributes(allowance, tensor, state)


def _with_attributes(allowance: Allowance, tensor: Tensor, state: object) -> Tensor:
    """``tensor`` with the attributes in ``state``; raises if one would hide an attribute of ``Tensor``."""
    if type(state) is tuple and len(state) == 2:  # instance attributes, slots
        if state[1]:
            raise CheckpointError(f"a tensor carries slots {short(state[1])}, which tensors here do not have")
        state = state[0]
    allowance.take_copy(state)
    attributes: dict[object, object] = dict(_exactly(state, dict, OrderedDict)) if state else {}
    if attributes.get("_is_buffer") is True:
        del attributes["_is_buffer"]
        tensor = Buffer(tensor, persistent=attributes.pop("persistent", True) is not False)
    for name, value in attributes.items():
        if type(name) is not str or name.startswith("_") or hasattr(type(tensor), name):
            raise CheckpointError(
                f"a tensor carries the attribute {short(name)}, which would hide part of Tensor"
            )
        setattr(tensor, name, value)
    return tensor


def _meta(kind: object, size: object, stride: object, requires_grad: object) -> Tensor:
    """``torch._utils._rebuild_meta_tensor_no_storage``."""
    if not isinstance(kind, dtype):
        raise CheckpointError("a meta tensor without a dtype")
    return meta_tensor(kind, _integers(size), requires_grad is True)


def _from_cpu_tensor(
    allowance: Allowance, data: object, kind: object, device: object, requires_grad: object
) -> Tensor:
    """``torch._utils._rebuild_device_tensor_from_cpu_tensor``: a tensor of a device without storages."""
    if not isinstance(data, Tensor) or not isinstance(kind, dtype):
        raise CheckpointError("a device tensor is built from something other than a tensor and a dtype")
    allowance.take(math.prod(data.shape) * max(kind.itemsize, data.dtype.itemsize))
    raw = np.asarray(data._backend.to_host(data.raw)).astype(kind.numpy)
    return Tensor._of(raw, data._backend).requires_grad_(requires_grad is True)


def _size(items: object = ()) -> Size:
    numbers = _integers(items)
    if any(type(n) is not int for n in numbers):
        raise CheckpointError(f"a torch.Size of {short(items)}")
    return Size(numbers)


def _device(kind: object, index: object = None) -> Device:
    if type(kind) is not str or not (type(index) is int or index is None):
        raise CheckpointError(f"a device {short(kind)} with index {short(index)}")
    return Device(kind, index)


def _layout(name: object) -> str:
    if name != "torch.strided":
        raise CheckpointError(
            f"it holds a tensor of layout {name[:80] if type(name) is str else short(name)}, and {_NO_SPARSE}"
        )
    return "torch.strided"


def _encode(allowance: Allowance, text: object, encoding: object = "latin1") -> bytes:
    """``_codecs.encode``, by which protocol 2 writes bytes."""
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise CheckpointError(f"bytes are written in encoding {short(encoding)} instead of latin1")
    allowance.take_copy(text)
    return text.encode("latin1")


def _bytearray(allowance: Allowance, value: object = b"", encoding: object = "latin1") -> bytearray:
    allowance.take_copy(value)
    return bytearray(_encode(allowance, value, encoding) if type(value) is str else _exactly(value, bytes))


def _bytes(value: object = b"") -> bytes:
    return bytes(_exactly(value, bytes))


def _complex(real: object, imaginary: object = 0.0) -> complex:
    return complex(_exactly(real, float, int), _exactly(imaginary, float, int))


def _set(allowance: Allowance, items: object = ()) -> set[object]:
    members = _exactly(items, list, tuple)
    allowance.take_copy(members)
    for item in members:
        check_key(item, allowance)
    return set(members)


def _ordered_dict(allowance: Allowance, items: object = ()) -> OrderedDict[object, object]:
    pairs = _exactly(items, list, tuple)
    allowance.take_copy(pairs)
    if not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
        raise CheckpointError("an OrderedDict is built from something other than pairs")
    for key, _ in pairs:
        check_key(key, allowance)
    return OrderedDict(map(tuple, pairs))


def _counter(allowance: Allowance, items: object = None) -> Counter[object]:
    allowance.take_copy(items)
    return Counter() if items is None else Counter(_exactly(items, dict))


@overload
def _exactly(value: object, kind: type[T], /) -> T: ...


@overload
def _exactly(value: object, kind: type[T], other: type[S], /) -> T | S: ...


def _exactly(value: object, *kinds: type) -> object:
    """Return ``value``; raise ``CheckpointError`` unless its type is one of ``kinds``."""
    if type(value) not in kinds:
        raise CheckpointError(f"a {type(value).__name__} where a {kinds[0].__name__} belongs")
    return value


_CONSTRUCTORS: dict[str, Callable[..., object]] = {
    "builtins.complex": _complex,
    "__builtin__.complex": _complex,
    "builtins.bytes": _bytes,
    "__builtin__.bytes": _bytes,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "torch.Tensor": _tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch.nn.parameter.Parameter": _parameter,
    "torch.nn.Parameter": _parameter,
}

#: Functions that copy what they are given, within the allowance that is their first argument.
_COPYING: dict[str, Callable[..., object]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "builtins.set": _set,
    "__builtin__.set": _set,
    "builtins.bytearray": _bytearray,
    "__builtin__.bytearray": _bytearray,
    "_codecs.encode": _encode,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _from_cpu_tensor,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.tensor._rebuild_from_type_v2": _from_type,
}
