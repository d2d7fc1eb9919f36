"""``x.view(dtype)``: reinterpret the bytes of a tensor as another dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.dtypes import FROM_NUMPY, dtype, scalar_name
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ViewError

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def view_dtype(x: Tensor, kind: dtype) -> Tensor:
    """View ``x`` as dtype ``kind``; the last axis shrinks or grows with the item size."""
    _check(x, kind)
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.unsupported("reading the bytes of a tensor as another dtype (view(dtype))")
    t: Tensor = Value.make(x.raw.view(kind.numpy), x._backend)
    t._version_counter = x._counter()
    return t


def _check(x: Tensor, kind: dtype) -> None:
    """Raise ViewError unless strides, sizes and offset are compatible with the other item size."""
    own, other = x.raw.dtype.itemsize, kind.itemsize
    if own == other:
        return
    what = f"to view {scalar_name(FROM_NUMPY[x.raw.dtype])} as {scalar_name(kind)} (different element sizes)"
    if not x.raw.ndim:
        raise ViewError(f"self.dim() cannot be 0 {what}")
    steps = x.stride()
    if steps[-1] != 1:
        raise ViewError(f"self.stride(-1) must be 1 {what}, but got {steps[-1]}")
    if other < own:
        return
    ratio = other // own
    if x.raw.shape[-1] % ratio:
        raise ViewError(f"self.size(-1) must be divisible by {ratio} {what}, but got {x.raw.shape[-1]}")
    if x.storage_offset() % ratio:
        raise ViewError(
            f"self.storage_offset() must be divisible by {ratio} {what}, but got {x.storage_offset()}"
        )
    for axis, step in enumerate(steps[:-1]):
        if step % ratio:
            raise ViewError(f"self.stride({axis}) must be divisible by {ratio} {what}, but got {step}")
