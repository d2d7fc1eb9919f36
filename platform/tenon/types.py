"""PyTorch's path ``types``: names for annotations."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias

from tenon.core.size import Size
from tenon.core.tensor import Tensor
from tenon.device import Device as _DeviceClass
from tenon.dtypes import dtype as _dtype

Number: TypeAlias = int | float | bool
Device: TypeAlias = _DeviceClass | str | int | None
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge: TypeAlias = Any
_int, _float, _bool = builtins.int, builtins.float, builtins.bool

__all__ = ["Device", "Number", "_TensorOrTensors", "_bool", "_dtype", "_float", "_int", "_size"]
