"""Argument parsing as in PyTorch: one number for all axes, negative axes, legacy reductions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

from tenon.dtypes import as_dtype
from tenon.engine.operands import wrong_type
from tenon.errors import (
    GradError,
    ModuleTypeError,
    ModuleValueError,
    ShapeError,
    TenonWarning,
    UnsupportedDTypeError,
)
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.autograd.grad_mode import is_grad_enabled, no_grad
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.dtypes import dtype

#: Kernel sizes, strides and the like: one integer for every spatial axis, or a list or tuple of one per
#: axis.
PerAxis: TypeAlias = int | list[int] | tuple[int, ...]


def per_axis(value: PerAxis, rank: int, name: str) -> tuple[int, ...]:
    """Return ``value`` as ``rank`` integers; a single number applies to every axis."""
    if type(value) is tuple and len(value) == rank:  # layers store tuples: 0.2 instead of 0.7 us
        for v in value:
            if v.__class__ is not int:
                break
        else:
            return value
    if isinstance(value, (list, tuple)):
        values = integers(value, name)
        if len(values) == rank:
            return values
        if len(values) == 1:
            return values * rank
        raise ShapeError(
            f"expected {name} to be a single integer value or a list of {rank} values to match the"
            f" convolution dimensions, but got {name}={list(values)}"
        )
    return integers((value,), name) * rank


def integers(values: Sequence[SupportsIndex], name: str) -> tuple[int, ...]:
    """Return ``values`` as Python integers; fractions raise instead of being truncated."""
    try:
        return tuple(index(v) for v in values)
    except TypeError as error:
        kinds = ", ".join(type(v).__name__ for v in values)
        raise ModuleTypeError(
            f"expected {name} to be an int or a tuple of ints, but got {list(values)} of types {kinds}. "
            "Round with int() first."
        ) from error


def check_kernel(sizes: Sequence[int]) -> None:
    """Raise for an empty kernel."""
    if sizes and min(sizes) <= 0:
        raise ShapeError(f"kernel size should be greater than zero, but got {' x '.join(map(str, sizes))}")


def batched(x: Tensor, rank: int, name: str) -> tuple[Tensor, bool]:
    """Return ``x`` with a batch axis, and whether one was added."""
    if not isinstance(x, Tensor):
        raise wrong_type(name, "input", 1, x)
    if x.raw.ndim == rank + 2:
        return x, False
    if x.raw.ndim == rank + 1:
        return x.unsqueeze(0), True
    raise ShapeError(
        f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but got input of size: "
        f"{list(x.raw.shape)}"
    )


def refuse_integers(x: Tensor, name: str) -> None:
    """Raise UnsupportedDTypeError unless ``x`` holds floating point or complex numbers."""
    if x.raw.dtype.kind in "biu":
        raise UnsupportedDTypeError(f'"{name}" not implemented for {x.dtype}. Convert with .float() first.')


def refuse_short_integers(x: Tensor, name: str) -> None:
    """Raise UnsupportedDTypeError if ``x`` holds booleans or integers whose sums wrap around: not int64."""
    if x.raw.dtype.name != "int64":
        refuse_integers(x, name)


def in_dtype(x: Tensor, dtype: dtype | None) -> Tensor:
    """Cast ``x`` to ``dtype``; unchanged for None."""
    return x if dtype is None else x.to(as_dtype(dtype))


def axis_of(x: Tensor, dim: int | None, name: str) -> int:
    """Return ``dim`` as a non-negative axis; for None PyTorch's implicit choice, with its warning."""
    if dim is None:
        warnings.warn(
            f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as"
            " an argument.",
            TenonWarning,
            stacklevel=3,
        )
        dim = 0 if x.raw.ndim in (0, 1, 3) else 1
    return normalize_axis(index(dim), x.raw.ndim)


def reduction_of(
    size_average: bool | None,
    reduce: bool | None,
    reduction: str,
    refusal: str = "is not a valid value for reduction",
) -> str:
    """Return the reduction that ``reduction`` and the two legacy flags select: "none", "mean" or "sum".

    ``refusal`` ends the error message for any other; PyTorch's wording differs between functions.
    """
    if size_average is not None or reduce is not None:
        averages = size_average is None or size_average
        reduction = "none" if reduce is not None and not reduce else "mean" if averages else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
            TenonWarning,
            stacklevel=3,
        )
    if reduction not in ("none", "mean", "sum"):
        raise ModuleValueError(f"{reduction} {refusal}; use 'none', 'mean' or 'sum'.")
    return reduction


def without_gradient(function: str, **tensors: Tensor | None) -> None:
    """Raise GradError, with PyTorch's message, if one of ``tensors`` requires a gradient that ``function``
    does not have."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad and is_grad_enabled():
            raise GradError(
                f"The function '{function}' is not differentiable with respect to argument '{name}'. This"
                f" input cannot have requires_grad True. Pass {name}.detach()."
            )


def clamped_from_below(x: Tensor, minimum: float) -> Tensor:
    """Clamp ``x`` to at least ``minimum``; the gradient passes unchanged (straight-through)."""
    result: Tensor = x.clone()
    with no_grad():
        result.clamp_(min=minimum)
    return result
