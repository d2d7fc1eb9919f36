"""PyTorch's module ``torch.types``: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from tenon.compat.qscheme import qscheme as _qscheme
from tenon.compat.typed_storage import TypedStorage
from tenon.device import Device as _DeviceClass
from tenon.device import Device as _device
from tenon.dtypes import dtype as _dtype
from tenon.tensors.layout import layout as _layout
from tenon.tensors.size import Size
from tenon.tensors.storage.untyped import UntypedStorage
from tenon.tensors.tensor import Tensor

Number: TypeAlias = int | float | bool
Device: TypeAlias = _DeviceClass | str | int | None
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrOptionalTensors: TypeAlias = Tensor | Sequence[Tensor | None]
#: Also a ``GradientEdge`` or a sequence of them: a class of ``tenon.autograd``, which is not loaded for this.
_TensorOrTensorsOrGradEdge: TypeAlias = Any
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage: TypeAlias = UntypedStorage | TypedStorage
#: In PyTorch these include symbolic numbers, which do not exist here.
IntLikeType: TypeAlias = int
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool

__all__ = [
    "BoolLikeType",
    "Device",
    "FileLike",
    "FloatLikeType",
    "IntLikeType",
    "Number",
    "Storage",
    "_TensorOrOptionalTensors",
    "_TensorOrTensors",
    "_bool",
    "_complex",
    "_device",
    "_dtype",
    "_float",
    "_int",
    "_layout",
    "_qscheme",
    "_size",
]
