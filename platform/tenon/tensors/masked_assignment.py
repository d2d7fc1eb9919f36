"""``x[mask] = value`` while ops are recorded: its indices depend on the data, a masked copy does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.tensors.index_parsing import FULL
from tenon.tensors.inplace import inplace

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def fill_masked(x: Tensor, key: object, value: Any) -> bool:  # a tensor, or what converts to one
    """Assign without the mask's indices, if ``key`` has one mask and the value none of its axes; else False.

    ``value`` is a number, or a tensor that is broadcast to the axes behind the mask.
    """
    parts = key if isinstance(key, tuple) else (key,)
    masks = [i for i, part in enumerate(parts) if _is_mask(part)]
    plain = all(i in masks or part is Ellipsis or type(part) in (int, slice) for i, part in enumerate(parts))
    if len(masks) != 1 or not plain:
        return False
    mask: Any = parts[masks[0]]  # a tensor
    basic = (*parts[: masks[0]], *(FULL,) * mask.raw.ndim, *parts[masks[0] + 1 :])
    named = sum(type(part) in (int, slice) for part in basic)
    if named > x.raw.ndim:
        return False
    ellipses = [i for i, part in enumerate(basic) if part is Ellipsis]
    if not ellipses:
        basic = (*basic, Ellipsis)
    before = sum(type(part) is slice for part in parts[: masks[0]])
    if ellipses and ellipses[0] < masks[0]:
        before += x.raw.ndim - named
    target = x if basic == (*(FULL,) * mask.raw.ndim, Ellipsis) else f.index(x, key=basic)
    behind = target.raw.ndim - before - mask.raw.ndim
    if tuple(target.raw.shape[before : before + mask.raw.ndim]) != tuple(mask.raw.shape):
        return False
    if isinstance(value, Value):
        if value.raw.ndim and (value.raw.dtype != x.raw.dtype or value.raw.ndim > behind):
            return False
        if value._backend is not x._backend:
            return False
    elif not isinstance(value, bool | int | float) and not (
        type(value) is complex and x.raw.dtype.kind == "c"
    ):
        return False
    where = f.reshape(mask, shape=(*mask.raw.shape, *(1,) * behind)) if behind else mask
    new = f.where(where, value, target)
    inplace(f.copy, target, new if new.raw.dtype == x.raw.dtype else f.cast(new, dtype=x.raw.dtype))
    return True


def _is_mask(part: object) -> bool:
    return isinstance(part, Value) and part.raw.dtype.kind == "b" and part.raw.ndim > 0
