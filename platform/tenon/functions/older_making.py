"""Creation functions that PyTorch has deprecated."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tenon import dtypes
from tenon.errors import ArgumentError, TenonWarning
from tenon.tensors.creation.ranges import arange

if TYPE_CHECKING:
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["range"]


def range(
    start: float = 0,
    end: float | None = None,
    step: float = 1,
    *,
    out: Any = None,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Deprecated, for ``arange``: numbers from ``start`` up to and with ``end``, of the default dtype."""
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
    kind = dtype or (dtypes.get_default_dtype() if out is None else out.dtype)
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
