"""What every function here does with its arguments."""

from __future__ import annotations

from typing import Any

import tenon
from tenon.errors import DTypeError
from tenon.extend import write_out


def floating(name: str, x: Any) -> Any:
    """``x`` as a tensor of floating numbers: whole numbers in the default dtype."""
    if not isinstance(x, tenon.Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    if x.is_complex():
        raise DTypeError(f"{name}: complex numbers are not supported, got {x.dtype}")
    return x if x.is_floating_point() else x.to(tenon.get_default_dtype())


def given(out: Any, made: Any) -> Any:
    """``made``, written into ``out`` if that is given."""
    return made if out is None else write_out(out, made)
