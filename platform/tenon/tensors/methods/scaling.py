"""Products with the numbers ``alpha``, ``beta`` and ``value`` of ``add``, ``addmm`` and ``addcmul``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.dtypes import INTEGER, dtype
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.errors import DTypeError
from tenon.kernels.promotion import need_fit, result_type

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


def alpha_times(alpha: Number, x: Tensor, y: Any) -> Any:  # a tensor if ``y`` is one, else a number
    """Compute ``alpha * y``; DTypeError if ``alpha`` is a float and both tensors are of integers."""
    if isinstance(alpha, float) and all(is_integral(v) for v in (x, y)):
        raise not_whole("alpha", alpha)
    kind = result_type(x, y)
    if kind.category == INTEGER:
        need_fit(alpha, kind.numpy)
    return scaled(widened_to(kind, y), alpha)


def not_whole(argument: str, factor: Number) -> DTypeError:
    """The error for a ``factor`` of integer tensors that is not an integer."""
    return DTypeError(
        f"For integral input tensors, argument {argument} must not be a floating point number, got {factor}."
        " Convert the tensors with .float()."
    )


def widened_to(kind: dtype, value: Any) -> Any:  # a tensor, or another operand
    """Return ``value``, if it is a tensor of a shorter integer dtype than ``kind``, as ``kind``: products of
    ``value`` with a number would wrap around."""
    if not isinstance(value, Value) or value.raw.dtype.kind not in "iu" or value.raw.dtype == kind.numpy:
        return value
    return f.cast(value, dtype=kind.numpy)


def is_integral(value: object) -> bool:
    """Whether ``value`` is an integer or boolean, or a tensor of these."""
    return value.raw.dtype.kind in "iub" if isinstance(value, Value) else isinstance(value, int)


def scaled(value: Any, alpha: Any) -> Any:  # numbers of any type, as Python multiplies them
    """Return ``alpha * value`` for a tensor or number; ``value`` itself if ``alpha`` is 1."""
    if alpha.__class__ in (int, float) and alpha == 1:
        return value
    return f.mul(value, alpha) if isinstance(value, Value) else value * alpha
