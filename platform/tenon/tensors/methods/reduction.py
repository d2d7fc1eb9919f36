"""Reductions over axes: ``sum``, ``mean``, ``max``, ``argmax``, ``norm``, and ``softmax``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.engine.op import table as f
from tenon.engine.operands import flag, need_flags
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError, ShapeError
from tenon.kernels.shapes import normalize_axes, normalize_axis
from tenon.tensors.methods.arithmetic import need_order
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.named_results import named_result
from tenon.tensors.precision import runs_in
from tenon.tensors.public_functions import public
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.engine.types import Attrs
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Axes


def _axes(x: Value, dim: Axes) -> tuple[int, ...]:
    return normalize_axes(dim, x.raw.ndim)


#: All axes of a tensor, by rank.
_EVERY = tuple(tuple(range(rank)) for rank in range(65))


def accumulating(x: Tensor, dtype: dtypes.dtype | None) -> Tensor:
    """Convert ``x`` to ``dtype``, or integers and booleans to int64, in which PyTorch sums them."""
    if dtype is not None:
        return f.cast(x, dtype=dtype.numpy) if x.raw.dtype != dtype.numpy else x
    return f.cast(x, dtype=np.dtype(np.int64)) if x.raw.dtype.kind in "biu" else x


def _need_float(x: Value, name: str) -> None:
    if x.raw.dtype.kind not in "fcV":
        raise DTypeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex"
            f" dtype. Got: {dtypes.FROM_NUMPY[x.raw.dtype]}. Use .float() first."
        )


def _need_one_axis(name: str, dim: object) -> None:
    if isinstance(dim, (list, tuple)):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")


def _need_ordered_numbers(name: str, x: Value) -> None:
    if x.raw.dtype.kind == "b":
        raise DTypeError(f"{name}(): does not support bool input; use .int() first.")
    need_order(name, x)


def shared(flat: Tensor, value: Tensor) -> Tensor:
    """Return ``value``, an element of the vector ``flat``; all elements that equal it share its gradient."""
    if not flat.requires_grad:
        return value
    values = flat.detach()
    nans = f.isnan(values)
    number = f.amax(f.where(f.eq(values, value), flat, -np.inf), axes=(0,))
    count = f.cast(f.sum(nans, axes=(0,)), dtype=flat.raw.dtype)
    mean_of_nans = f.div(f.sum(f.where(nans, flat, 0.0), axes=(0,)), f.maximum(count, 1.0))
    return f.where(f.isnan(value), mean_of_nans, number)


def moments(
    name: str, x: Tensor, dim: bool | Axes, unbiased: bool | None, keepdim: bool, correction: float | None
) -> Attrs:
    """Convert PyTorch's arguments to the attrs of the op ``name``, a variance or standard deviation."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(flag(name, "unbiased", unbiased))
    if x.raw.dtype.kind not in "fcV":
        functions = "std and var" if name in ("std", "var") else name
        kind = dtypes.FROM_NUMPY[x.raw.dtype]
        raise DTypeError(f"{functions} only support floating point and complex dtypes, got {kind}")
    axes = _axes(x, dim)
    count = math.prod(x.raw.shape[a] for a in axes)
    if count <= correction:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction"
            f" factor (input numel divided by output numel): correction {correction}, factor {count}.",
            stacklevel=3,
        )
    return {"axes": axes, "correction": correction, "keepdims": flag(name, "keepdim", keepdim)}


class Reduction(Family):
    """Methods that reduce over axes, or normalise by a reduction, as ``softmax``.

    ``dim`` is an axis, or several where it is annotated so; without it they reduce over all. The reduced
    axes are removed, or with ``keepdim`` have size 1. A negative ``dim`` counts from the last axis; one that
    does not exist raises AxisError.
    """

    __slots__ = ()

    @as_function()
    def sum(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        *,
        dtype: dtypes.dtype | None = None,
        axis: Axes = None,
        keepdims: bool | None = None,
    ) -> Tensor:
        """Return the sum over ``dim``.

        Integers and booleans are summed as int64. With ``dtype``, the elements are converted first.
        """
        x = self if dtype is None and self.raw.dtype.kind in "fc" else accumulating(self, dtype)
        over_all = dim is None and axis is None
        axes = _EVERY[self.raw.ndim] if over_all else _axes(x, dim if axis is None else axis)
        kept = keepdim if keepdims is None else keepdims
        result = f.sum(
            x, axes=axes, keepdims=kept if kept.__class__ is bool else flag("sum", "keepdim", kept)
        )
        if not over_all and result._node is not None:
            result._node.title = "SumBackward1"  # even if the named axes are all
        if dtype is None or result.raw.dtype == dtype.numpy:
            return result
        return f.cast(result, dtype=dtype.numpy)

    @as_function()
    def mean(
        self, dim: Axes = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None, axis: Axes = None
    ) -> Tensor:
        """Return the mean over ``dim``.

        With ``dtype``, the elements are converted first; raises DTypeError unless they are floating-point or
        complex then.
        """
        x: Tensor = self if dtype is None else f.cast(self, dtype=dtype.numpy)
        _need_float(x, "mean")
        kept = keepdim if keepdim.__class__ is bool else flag("mean", "keepdim", keepdim)
        result = f.mean(x, axes=_axes(x, dim if axis is None else axis), keepdims=kept)
        if result._node is not None and (dim is not None or axis is not None):
            result._node.title = "MeanBackward1"
        return result

    @as_function()
    def prod(
        self, dim: int | None = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """Return the product over the axis ``dim``, or of all elements.

        Integers and booleans are multiplied as int64. With ``dtype``, the elements are converted first.
        """
        _need_one_axis("prod", dim)
        x = accumulating(self, dtype)
        return f.prod(x, axes=_axes(x, dim), keepdims=flag("prod", "keepdim", keepdim))

    @as_function()
    def nansum(self, dim: Axes = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None) -> Tensor:
        """Return the sum over ``dim`` of the elements that are not NaN."""
        need_order("nansum", self)
        need_flags("nansum", keepdim=keepdim)
        return f.where(f.isnan(self), 0, self).sum(dim, keepdim, dtype=dtype)

    @as_function()
    def nanmean(
        self, dim: Axes = None, keepdim: bool = False, *, dtype: dtypes.dtype | None = None
    ) -> Tensor:
        """Return the mean over ``dim`` of the elements that are not NaN: NaN where there are none.

        Raises DTypeError unless the dtype is floating-point.
        """
        _need_float(self, "nanmean")
        need_flags("nanmean", keepdim=keepdim)
        count = f.logical_not(f.isnan(self)).sum(dim, keepdim)
        return self.nansum(dim, keepdim, dtype=dtype) / count

    @as_function()
    def var(
        self,
        dim: bool | Axes = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """Return the variance over ``dim``: the sum of squared deviations from the mean, divided by
        ``n - correction``, where ``n`` is the number of elements.

        The default correction is 1; ``unbiased=False`` is a correction of 0. Raises DTypeError unless the
        dtype is floating-point or complex; a warning if ``n`` is not greater than the correction.
        """
        return f.var(self, **moments("var", self, dim, unbiased, keepdim, correction))

    @as_function()
    def std(
        self,
        dim: bool | Axes = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """Return the standard deviation over ``dim``: the square root of ``var``, with the same
        parameters."""
        return f.std(self, **moments("std", self, dim, unbiased, keepdim, correction))

    @as_function()
    def logsumexp(self, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
        """Return ``log(sum(exp(self)))`` over ``dim``, computed without overflow."""
        return f.logsumexp(self, axes=_axes(self, dim), keepdims=flag("logsumexp", "keepdim", keepdim))

    @as_function()
    def amax(self, dim: int | Sequence[int] = (), keepdim: bool = False) -> Tensor:
        """Return the largest element over ``dim``; elements that share the maximum share its gradient
        equally.

        Raises UnsupportedError for complex numbers, AxisError for an empty axis.
        """
        need_order("amax", self)
        return f.amax(self, axes=_axes(self, dim), keepdims=flag("amax", "keepdim", keepdim))

    @as_function()
    def amin(self, dim: int | Sequence[int] = (), keepdim: bool = False) -> Tensor:
        """Return the smallest element over ``dim``; elements that share the minimum share its gradient
        equally.

        Raises UnsupportedError for complex numbers, AxisError for an empty axis.
        """
        need_order("amin", self)
        return f.amin(self, axes=_axes(self, dim), keepdims=flag("amin", "keepdim", keepdim))

    @as_function()
    def max(
        self, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None
    ) -> Any:  # a tensor; named ``(values, indices)`` if ``dim`` is an axis
        """Return the largest element; with the axis ``dim``, the named tuple ``(values, indices)`` of the
        largest along it; with a tensor, the same as ``maximum``.

        NaN if an element is NaN. Raises UnsupportedError for complex numbers, ShapeError or AxisError if
        there is no element.
        """
        if isinstance(dim, Value) or other is not None:
            return self.maximum(dim if other is None else other)
        return self._extreme("max", dim, keepdim)

    @as_function()
    def min(
        self, dim: int | Tensor | None = None, keepdim: bool = False, *, other: Tensor | None = None
    ) -> Any:  # a tensor; named ``(values, indices)`` if ``dim`` is an axis
        """Return the smallest element; with the axis ``dim``, the named tuple ``(values, indices)`` of the
        smallest along it; with a tensor, the same as ``minimum``.

        NaN if an element is NaN. Raises UnsupportedError for complex numbers, ShapeError or AxisError if
        there is no element.
        """
        if isinstance(dim, Value) or other is not None:
            return self.minimum(dim if other is None else other)
        return self._extreme("min", dim, keepdim)

    def _extreme(self, name: str, dim: int | None, keepdim: bool) -> Tensor | NamedResult:
        need_order(name, self)
        need_flags(name, keepdim=keepdim)
        if dim is None:
            if self.raw.size == 0:
                raise ShapeError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the"
                    " reduction dim with the 'dim' argument."
                )
            result = getattr(f, f"a{name}")(self, axes=_axes(self, None))
            if result._node is not None and WATCHERS.recorder is None and bool(result.raw != result.raw):
                return shared(self.reshape(-1), result.detach())
            return result
        axis = normalize_axis(dim, self.raw.ndim)
        indices = getattr(f, f"arg{name}")(self, axis=axis, keepdims=True)
        values = f.gather(self, indices, axis=axis) if self.raw.ndim else self.clone()
        if not keepdim and self.raw.ndim:
            values, indices = values.squeeze(axis), indices.squeeze(axis)
        return named_result(name, values=values, indices=indices)

    @as_function(out="exact")
    def aminmax(self, *, dim: int | None = None, keepdim: bool = False) -> NamedResult:
        """Return the named tuple ``(min, max)``, as ``amin`` and ``amax`` return them, over the axis ``dim``
        or of all."""
        _need_one_axis("aminmax", dim)
        need_flags("aminmax", keepdim=keepdim)
        axes = () if dim is None else dim
        return named_result("aminmax", min=self.amin(axes, keepdim), max=self.amax(axes, keepdim))

    @as_function()
    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return the index of the first largest element along ``dim``; without it, its index in the
        flattened tensor.

        Raises DTypeError for booleans, UnsupportedError for complex numbers.
        """
        _need_ordered_numbers("argmax", self)
        axis = None if dim is None else normalize_axis(dim, self.raw.ndim)
        return f.argmax(self, axis=axis, keepdims=flag("argmax", "keepdim", keepdim))

    @as_function()
    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return the index of the first smallest element along ``dim``; without it, its index in the
        flattened tensor.

        Raises DTypeError for booleans, UnsupportedError for complex numbers.
        """
        _need_ordered_numbers("argmin", self)
        axis = None if dim is None else normalize_axis(dim, self.raw.ndim)
        return f.argmin(self, axis=axis, keepdims=flag("argmin", "keepdim", keepdim))

    @as_function()
    def any(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Return whether any element over ``dim`` is non-zero, as booleans; for a uint8 tensor as uint8, as
        in PyTorch.

        An empty tuple reduces no axis.
        """
        axes = () if isinstance(dim, (tuple, list)) and not dim else _axes(self, dim)
        result = f.any(self, axes=axes, keepdims=flag("any", "keepdim", keepdim))
        return result if self.raw.dtype != np.uint8 else f.cast(result, dtype=self.raw.dtype)

    @as_function()
    def all(self, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Return whether all elements over ``dim`` are non-zero, as booleans; for a uint8 tensor as uint8,
        as in PyTorch.

        An empty tuple reduces no axis.
        """
        axes = () if isinstance(dim, (tuple, list)) and not dim else _axes(self, dim)
        result = f.all(self, axes=axes, keepdims=flag("all", "keepdim", keepdim))
        return result if self.raw.dtype != np.uint8 else f.cast(result, dtype=self.raw.dtype)

    @as_function()
    def count_nonzero(self, dim: Axes = None) -> Tensor:
        """Return the number of non-zero elements over ``dim``, as int64."""
        return f.ne(self, 0).sum(dim)

    @as_function()
    def norm(
        self,
        p: float | str | None = "fro",
        dim: Axes = None,
        keepdim: bool = False,
        dtype: dtypes.dtype | None = None,
    ) -> Tensor:
        """Return the vector norm of order ``p`` over ``dim``; ``"fro"`` is order 2.

        ``p="nuc"`` is a matrix norm over two axes: the sum of the singular values. With ``dtype``, the
        elements are converted first; raises DTypeError unless they are floating-point or complex then.
        """
        # Whether ``dim`` is iterable is tested by a NumPy function, by which the type checker cannot narrow
        # it.
        several: Any = dim if np.iterable(dim) else None
        keepdim = flag("norm", "keepdim", keepdim)
        if isinstance(p, str) and (p != "fro" or (several is not None and len(several) > 2)):
            axes = tuple(range(self.raw.ndim)) if dim is None else (dim,) if several is None else several
            return public("linalg").matrix_norm(self, p, axes, keepdim, dtype=dtype)
        x: Tensor = self if dtype is None else f.cast(self, dtype=dtype.numpy)
        _need_float(x, "linalg.vector_norm")
        order, axes = 2.0 if p in ("fro", None, 2) else float(p), _axes(x, dim)
        own = x.raw.dtype
        if own.itemsize == 2 and order not in (0.0, 1.0, 2.0, np.inf, -np.inf):  # powers would overflow
            wide = f.cast(x, dtype=np.dtype(np.float32))
            return f.cast(f.vector_norm(wide, order=order, axes=axes, keepdims=keepdim), dtype=own)
        return f.vector_norm(x, order=order, axes=axes, keepdims=keepdim)

    @as_function()
    @runs_in("usual", cuda="float32")
    def dist(self, other: Tensor, p: float = 2) -> Tensor:
        """Return the norm of order ``p`` of ``self - other``, over all elements."""
        only_tensors(other)
        return (self - other).norm(p)

    @as_function()
    def softmax(self, dim: int, dtype: dtypes.dtype | None = None) -> Tensor:
        """Return ``exp(self) / sum(exp(self))``, the sum along ``dim``, in this tensor's shape.

        With ``dtype``, the elements are converted first; raises UnsupportedDTypeError for integers.
        """
        x: Tensor = self if dtype is None else f.cast(self, dtype=dtype.numpy)
        return f.softmax(x, axis=normalize_axis(dim, x.raw.ndim))

    @as_function()
    def log_softmax(self, dim: int, dtype: dtypes.dtype | None = None) -> Tensor:
        """Return the logarithm of ``softmax`` along ``dim``, with the same parameters; more accurate than
        the two functions one after the other."""
        x: Tensor = self if dtype is None else f.cast(self, dtype=dtype.numpy)
        return f.log_softmax(x, axis=normalize_axis(dim, x.raw.ndim))
