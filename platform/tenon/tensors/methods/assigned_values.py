"""Values that are written into a tensor: numbers that fit its dtype, tensors, and other data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tenon.dtypes import FROM_NUMPY, bfloat16, scalar_name
from tenon.engine.aval import Aval
from tenon.engine.interceptor import SLOT
from tenon.engine.op import table as f
from tenon.engine.operands import type_name
from tenon.engine.value import Value
from tenon.errors import DTypeError, ShapeError
from tenon.kernels.promotion import fitted, holds, need_64_bits, need_fit
from tenon.kernels.shapes import broadcast_shapes
from tenon.tensors.index_parsing import Key, result_shape

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


def as_value(x: Tensor, value: Any) -> Tensor | Number:  # any data that NumPy makes an array of
    """Return ``value`` as a Python number, or as a tensor on ``x``'s device."""
    if isinstance(value, (int, float, complex, np.generic)):
        value = value.item() if isinstance(value, np.generic) else value
        kind = x.raw.dtype
        need_64_bits(value)
        if kind.kind in "iu" or isinstance(value, complex) or holds(kind, value):
            return fitted(value, kind)
        return math.copysign(math.inf, value)  # as in PyTorch, whose fill_() refuses the number
    array = np.asarray(value)
    if array.dtype.kind in "OUSMmV" and array.dtype != bfloat16.numpy:
        raise TypeError(f"can't assign a {type_name(value)} to a {x.type()}")
    return Value.make(x._backend.from_host(array, x.device), x._backend)


def like_of(x: Tensor, value: Value | Number) -> Tensor:
    """Return ``value`` as a tensor of ``x``'s dtype and backend."""
    if not isinstance(value, Value):
        return f.new_full(x.detach(), shape=(), value=fitted(value, x.raw.dtype), dtype=x.raw.dtype)
    if value.raw.dtype == x.raw.dtype:
        return cast("Tensor", value)
    if not value.raw.ndim and SLOT.top is None and not isinstance(value.raw, Aval):
        need_fit(value.item(), x.raw.dtype)
    return f.cast(value, dtype=x.raw.dtype)


def mismatch(x: Tensor, value: Value, layout: Key, indices: Sequence[Value]) -> Exception:
    """Create the error for assigning ``value``, of another dtype: ShapeError if its shape differs too."""
    shape = result_shape(x.raw.shape, layout, indices)
    try:
        fits = broadcast_shapes(shape, tuple(value.raw.shape)) == shape
    except ShapeError:
        fits = False
    if not fits:
        return ShapeError(
            f"shape mismatch: value tensor of shape {list(value.raw.shape)} cannot be broadcast to indexing"
            f" result of shape {list(shape)}"
        )
    own, other = scalar_name(FROM_NUMPY[x.raw.dtype]), scalar_name(FROM_NUMPY[value.raw.dtype])
    return DTypeError(
        f"Index put requires the source and destination dtypes match, got {own} for the destination and"
        f" {other} for the source. Cast the source with .to(dtype)."
    )
