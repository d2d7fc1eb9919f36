"""Division towards zero, ``div(rounding_mode="trunc")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.kernels.rounding import is_short

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


def trunc_divide(x: Tensor, y: Tensor | Number) -> Tensor:
    """Return ``x / y``, rounded towards zero."""
    kinds = [v.raw.dtype.kind if isinstance(v, Value) else type(v).__name__[0] for v in (x, y)]
    if all(k in "iub" for k in kinds):
        return f.floor_divide(f.sub(x, f.fmod(x, y)), y)  # exact, also of -128 as int8
    number = not isinstance(y, Value) or not y.raw.ndim
    if isinstance(x, Value) and is_short(x.raw.dtype) and x.raw.ndim and number:
        return _of_short(x, y)
    return f.trunc(f.div(x, y))


def _of_short(x: Tensor, y: Tensor | Number) -> Tensor:
    """The quotient of 16-bit floats and one number, towards zero. As in PyTorch, float16 is divided in
    float32, bfloat16 by the number as bfloat16, and the quotient rounded before it is truncated."""
    own = x.raw.dtype
    if own == np.float16:
        return f.cast(f.trunc(f.div(f.cast(x, dtype=np.float32), y)), dtype=own)
    return f.trunc(f.div(x, f.cast(y, dtype=own) if isinstance(y, Value) else float(own.type(y))))
