"""Creation functions that PyTorch has deprecated."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tenon.errors import ArgumentError, TenonWarning
from tenon.tensors.creation.factories import kind_of
from tenon.tensors.creation.ranges import arange

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.tensor import Tensor

__all__ = ["range"]


def range(
    start: float = 0,
    end: float | None = None,
    step: float = 1,
    *,
    out: Tensor | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Deprecated, use ``arange``. Return the numbers from ``start`` to ``end`` inclusive, in the default
    dtype."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release, as it includes the end, unlike"
        " Python's range. Use arange instead.",
        TenonWarning,
        stacklevel=2,
    )
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise ArgumentError("step must be nonzero")
    if (end - start) * step < 0:
        raise ArgumentError(
            f"upper bound and lower bound inconsistent with step sign: range({start}, {end}, {step})"
        )
    kind = kind_of(dtype, out)
    last = start + int((end - start) / step) * step
    return arange(
        start,
        last + (step / 2 if kind.is_floating_point else step),
        step,
        dtype=kind,
        device=device,
        requires_grad=requires_grad,
        out=out,
    )
