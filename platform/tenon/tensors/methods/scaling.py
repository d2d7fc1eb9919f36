"""Products with the numbers ``alpha``, ``beta`` and ``value`` of ``add``, ``addmm`` and ``addcmul``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.dtypes import INTEGER, dtype
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.errors import DTypeError
from tenon.kernels.promotion import need_fit, result_type
from tenon.kernels.rounding import is_short

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


_FLOAT32 = np.dtype(np.float32)


def rounded_once(compute: Callable[..., Tensor], *operands: Any) -> Tensor:  # tensors, or numbers
    """Return ``compute(*operands)``; where the result is in float16 or bfloat16, computed in float32 and
    rounded once.

    For methods of several ops that are one op in PyTorch: rounding each would lose the digits that remain
    when two of their terms nearly cancel.
    """
    if not any([isinstance(v, Value) and is_short(v.raw.dtype) for v in operands]):
        return compute(*operands)
    kind = result_type(*operands).numpy  # complex, if a number is
    if not is_short(kind):
        return compute(*operands)
    wide = [
        f.cast(v, dtype=_FLOAT32) if isinstance(v, Value) and is_short(v.raw.dtype) else v for v in operands
    ]
    result = compute(*wide)
    rounded = f.cast(result, dtype=kind)
    if rounded._node is not None and result._node is not None:
        rounded._node.title = result._node.name()
    return rounded


def alpha_times(alpha: Number, x: Tensor, y: Any) -> Any:  # a tensor if ``y`` is one, else a number
    """Compute ``alpha * y``; DTypeError if ``alpha`` is a float and both tensors are of integers."""
    if isinstance(alpha, float) and all(is_integral(v) for v in (x, y)):
        raise not_whole("alpha", alpha)
    kind = result_type(x, y)
    if kind.category == INTEGER:
        need_fit(alpha, kind.numpy)
    return scaled(widened_to(kind, y), alpha)


def check_alpha(alpha: Number, x: Any, y: Any) -> None:  # tensors, or numbers
    """Raise DTypeError unless ``alpha`` is of a kind that sums of ``x`` and ``y`` can be scaled by."""
    if isinstance(alpha, bool) and result_type(x, y).numpy.kind != "b":
        raise DTypeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, complex) and not _are_complex(x, y):
        raise DTypeError("For non-complex input tensors, argument alpha must not be a complex number.")


def need_real(value: Any, *tensors: Tensor) -> None:  # a number, or a tensor
    """Raise DTypeError if ``value`` is a complex number, unless one of the tensors is complex."""
    kinds = [each.raw.dtype.kind for each in tensors]  # each must be a tensor, not a number
    if isinstance(value, complex) and "c" not in kinds:
        raise DTypeError(f"value cannot be converted to type float without overflow: {value} is complex.")


def _are_complex(*operands: Any) -> bool:  # tensors, or numbers
    return any(v.raw.dtype.kind == "c" if isinstance(v, Value) else isinstance(v, complex) for v in operands)


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


def interpolated(start: Tensor, end: Tensor, weight: Tensor | Number) -> Tensor:
    """Return ``start + weight * (end - start)``, from the nearer end."""
    need_real(weight, start)
    gap = f.sub(end, start)
    near = not isinstance(weight, (int, float)) or not 0.5 <= abs(weight) < 2**53
    return f.add(start, f.mul(gap, weight)) if near else f.sub(end, f.mul(gap, 1 - weight))


def plus_product(x: Tensor, a: Tensor, b: Tensor, value: Number) -> Tensor:
    """Return ``x + value * a * b``."""
    need_real(value, x, a, b)
    kind = result_type(x, a, b)
    if kind.category == INTEGER and isinstance(value, int):
        need_fit(value, kind.numpy)
    return f.add(x, scaled(f.mul(widened_to(kind, a), widened_to(kind, b)), value))


def plus_quotient(x: Tensor, a: Tensor, b: Tensor, value: Number) -> Tensor:
    """Return ``x + value * a / b``."""
    need_real(value, x, a, b)
    return f.add(x, scaled(f.div(a, b), value))
