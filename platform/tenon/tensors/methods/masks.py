"""Methods that choose elements by a mask: ``masked_fill``, ``masked_select``, ``masked_scatter``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, ShapeError
from tenon.kernels.promotion import fitted
from tenon.kernels.shapes import broadcast_shapes
from tenon.tensors.methods.assigned_values import like_of
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


class Masks(Family):
    """Methods that read or write the elements where a mask is true."""

    __slots__ = ()

    @as_function()
    def masked_fill(self, mask: Tensor, value: Tensor | Number) -> Tensor:
        """Return a copy with ``value``, a number or 0-d tensor, where ``mask`` is true; ``mask`` is
        broadcast."""
        if mask.raw.dtype.kind != "b":
            raise DTypeError(
                f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype}"
            )
        if isinstance(value, Value) and value.raw.ndim:
            raise ShapeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.raw.ndim} dimension(s)."
            )
        value = like_of(self, value) if isinstance(value, Value) else fitted(value, self.raw.dtype)
        result = f.where(mask, value, self)
        return result if result.raw.dtype == self.raw.dtype else f.cast(result, dtype=self.raw.dtype)

    @as_function(memory="apart")
    def masked_select(self, mask: Tensor) -> Tensor:
        """Return the elements where ``mask`` is true as a vector; the two are broadcast."""
        if mask.raw.dtype.kind != "b":
            raise DTypeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
        shape = np.broadcast_shapes(tuple(self.raw.shape), tuple(mask.raw.shape))
        x, mask = f.expand(self, shape=shape), f.expand(mask, shape=shape)
        if len(shape) < 2 or WATCHERS.recorder is not None:
            return x[mask]
        return f.gather(x.reshape(-1), f.nonzero(mask.reshape(-1)).reshape(-1), axis=0)

    @as_function()
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """Return a copy in which the elements where ``mask`` is true are replaced, in order, by those of
        ``source``."""
        if source.raw.dtype != self.raw.dtype:
            names = (scalar_name(FROM_NUMPY[v.raw.dtype]) for v in (self, source))
            raise DTypeError(
                f"masked_scatter: expected self and source to have same dtypes but got {' and '.join(names)}"
            )
        shape = broadcast_shapes(tuple(self.raw.shape), tuple(mask.raw.shape))
        if shape != tuple(self.raw.shape):
            return f.expand(self, shape=shape).masked_scatter(mask, source)
        where = f.expand(mask, shape=shape)
        if not self.raw.ndim:
            if source.raw.size == 0 and bool(where.item()):
                raise ShapeError("masked_scatter: expected at least 1 source elements, got 0")
            return f.where(where, source.reshape(-1)[0] if source.raw.size else self, self)
        index = f.nonzero(where.reshape(-1)).reshape(-1)
        count = index.raw.shape[0]
        if count > source.raw.size:
            raise ShapeError(
                f"masked_scatter: expected at least {count} source elements, got {source.raw.size}"
            )
        flat = f.reshape(self, shape=(-1,))
        return f.reshape(f.scatter(flat, index, source.reshape(-1)[:count], axis=0), shape=shape)

    masked_fill_ = through_method("masked_fill")
    masked_scatter_ = through_method("masked_scatter")
