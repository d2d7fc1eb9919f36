"""Conversion of the arguments and results of the functions here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon
from tenon.errors import DTypeError
from tenon.extend import write_out

if TYPE_CHECKING:
    from tenon import Tensor


def floating(name: str, x: object) -> Tensor:
    """Return the tensor ``x`` as floats, integers in the default dtype; errors name the function ``name``."""
    if not isinstance(x, tenon.Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    if x.is_complex():
        raise DTypeError(f"{name}: complex numbers are not supported, got {x.dtype}")
    return x if x.is_floating_point() else x.to(tenon.get_default_dtype())


def write_result(out: Tensor | None, result: Tensor) -> Tensor:
    """Return ``result``, written into ``out`` if that is given."""
    return result if out is None else write_out(out, result)
