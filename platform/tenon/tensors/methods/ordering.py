"""Sorting, selection and counting: ``sort``, ``topk``, ``median``, ``unique``, ``bincount``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.engine.op import table as f
from tenon.engine.watchers import watched_creation
from tenon.errors import ArgumentError, DTypeError, ShapeError, UnsupportedDTypeError
from tenon.kernels.shapes import AxisError, normalize_axis
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.reduction import shared
from tenon.tensors.missing_derivatives import refuse_gradient
from tenon.tensors.named_results import named_result

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor


class Ordering(Family):
    """Methods that sort, select and count elements.

    NaN counts as larger than any number. A negative ``dim`` counts from the last axis; one that does not
    exist raises AxisError.
    """

    __slots__ = ()

    @as_function(out="exact")
    def sort(self, dim: int = -1, descending: bool = False, stable: bool | None = False) -> NamedResult:
        """Return the named tuple ``(values, indices)`` of the elements sorted along ``dim``, and where each
        was.

        The order is ascending unless ``descending``. Equal elements keep their order, also without
        ``stable``.
        """
        axis = normalize_axis(dim, self.raw.ndim)
        order = f.argsort(self, axis=axis, descending=bool(descending))
        values = f.gather(self, order, axis=axis) if self.raw.ndim else self.clone()
        return named_result("sort", values=values, indices=order)

    @as_function()
    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
        """Return the indices that sort this tensor along ``dim``: the ``indices`` of ``sort``."""
        return f.argsort(self, axis=normalize_axis(dim, self.raw.ndim), descending=bool(descending))

    @as_function()
    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> NamedResult:
        """Return the named tuple ``(values, indices)`` of the ``k`` largest elements along ``dim``, the
        largest first; without ``largest``, of the ``k`` smallest, the smallest first.

        They are in order also without ``sorted``. Raises ShapeError if ``k`` is negative or larger than the
        axis.
        """
        if isinstance(dim, bool):
            raise TypeError("topk(): argument 'dim' (position 2) must be int, not bool")
        axis = normalize_axis(dim, self.raw.ndim)
        size = self.raw.shape[axis] if self.raw.ndim else 1
        if not 0 <= k <= size:
            raise ShapeError(f"selected index k out of range: k={k}, dimension {dim} has size {size}")
        order = f.argsort(self, axis=axis, descending=bool(largest), start=0, stop=k)
        if self.raw.ndim:
            return named_result("topk", values=f.gather(self, order, axis=axis), indices=order)
        return named_result("topk", values=self.clone(), indices=order)

    @as_function()
    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:  # a tensor if ``dim`` is None
        """Return the median of all elements; with ``dim``, the named tuple ``(values, indices)`` of the
        medians along it.

        Of an even number of elements it is the lower one of the two in the middle. NaN if there is one, or
        if there are no elements.
        """
        if dim is None:
            flat = self.reshape(-1)
            return (
                shared(flat, flat.detach().median(0).values) if flat.raw.size else flat.sum() * float("nan")
            )
        axis = normalize_axis(dim, self.raw.ndim)
        if not self.raw.ndim:
            return named_result("median", values=self.clone(), indices=f.argsort(self, axis=0))
        middle = (self.raw.shape[axis] - 1) // 2
        indices = f.argsort(self, axis=axis, start=middle, stop=middle + 1)
        unordered = f.isnan(self)  # the first NaN is the median if there is one
        indices = f.where(unordered.any(axis, True), f.argmax(unordered, axis=axis, keepdims=True), indices)
        values = f.gather(self, indices, axis=axis)
        if not keepdim:
            values, indices = values.squeeze(axis), indices.squeeze(axis)
        return named_result("median", values=values, indices=indices)

    @as_function(memory="apart")
    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> NamedResult:
        """Return the named tuple ``(values, indices)`` of the ``k``-th smallest elements along ``dim``,
        counted from 1.

        Raises ShapeError if ``k`` is not between 1 and the size of the axis, AxisError if that is empty.
        """
        axis = normalize_axis(dim, self.raw.ndim)
        size = self.raw.shape[axis] if self.raw.ndim else 1
        if not size:
            raise AxisError(f"kthvalue(): Expected reduction dim {axis} to have non-zero size.")
        if not 1 <= k <= size:
            raise ShapeError(
                f"kthvalue(): selected number k out of range for dimension {axis} (k={k}, size {size})"
            )
        indices = f.argsort(self, axis=axis, start=k - 1, stop=k)
        values = f.gather(self, indices, axis=axis) if self.raw.ndim else self.clone()
        keepdim = keepdim or not self.raw.ndim
        if not keepdim:
            values, indices = values.squeeze(axis), indices.squeeze(axis)
        return named_result("kthvalue", values=values, indices=indices)

    @as_function()
    @watched_creation
    def unique(
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:  # a tensor; a tuple with inverse indices and counts if they are requested
        """Return the distinct elements as a sorted vector; with ``dim``, the distinct slices along that
        axis.

        With ``return_inverse`` or ``return_counts``, return a tuple: after the elements come the index of
        each input element (or slice) among them, and how often each occurs. They are sorted also without
        ``sorted``. There is no gradient: a backward pass through the result raises. Raises ShapeError if
        slices to compare are empty.
        """
        from tenon.tensors.creation.create import from_backend_array

        host = self._backend.to_host(self.raw)
        if dim is not None:
            self._check_not_empty(dim)
        host = host.astype(np.float32) if host.dtype.kind == "V" else host  # NumPy misplaces its NaN
        unique: Any = np.unique  # NumPy's stubs have overloads for constant flags only
        arrays = unique(host, False, return_inverse, return_counts, dim, equal_nan=False)
        parts = list(arrays) if return_inverse or return_counts else [arrays]
        parts[0] = parts[0].astype(self.raw.dtype, copy=False)
        if return_inverse:
            parts[1] = parts[1].reshape(host.shape if dim is None else (host.shape[dim],))
        result = [from_backend_array(self, p) for p in parts]
        refuse_gradient("unique2" if dim is None else "unique_dim", result[0], self)
        return result[0] if len(result) == 1 else tuple(result)

    def _check_not_empty(self, dim: int) -> None:
        """Raise ShapeError if the slices along ``dim`` have no elements to compare."""
        empty = [a for a, s in enumerate(self.raw.shape) if not s]
        if len(empty) > 1:
            raise ShapeError(
                "Number of zero sized dimensions is more than one, so unique cannot be applied (shape"
                f" {list(self.raw.shape)})"
            )
        if empty and empty[0] != dim % self.raw.ndim:
            raise ShapeError(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied (shape"
                f" {list(self.raw.shape)}, dim {dim})"
            )

    @as_function()
    @watched_creation
    def bincount(self, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
        """Return how often each integer from 0 on occurs in this vector, as int64; with ``weights``, the sum
        of the weights at its positions.

        The result has ``max + 1`` elements, at least ``minlength``. Raises ArgumentError unless this is a
        vector of non-negative integers, ShapeError unless ``weights`` has its shape.
        """
        from tenon.tensors.creation.create import from_backend_array

        host = self._backend.to_host(self.raw)
        if host.dtype.kind not in "iu":
            raise UnsupportedDTypeError(
                f"\"bincount_cpu\" not implemented for '{dtypes.scalar_name(dtypes.FROM_NUMPY[host.dtype])}'"
            )
        if minlength < 0:
            raise ArgumentError(f"minlength should be >= 0, got {minlength}")
        if host.ndim != 1 or (host.size and host.min() < 0):
            raise ArgumentError("bincount only supports 1-d non-negative integral inputs.")
        if weights is not None and tuple(weights.raw.shape) != host.shape:
            raise ShapeError(
                "weights should be 1-d and have the same length as input, got shape "
                f"{list(weights.raw.shape)} for {list(host.shape)}"
            )
        if weights is not None and weights.raw.dtype.kind == "c":
            raise DTypeError(
                f"bincount adds real weights, not {weights.dtype}; count real and imaginary parts."
            )
        given = None if weights is None else weights._backend.to_host(weights.raw)
        counts = np.bincount(host, given, minlength)
        own = weights is not None and weights.raw.dtype == np.float32
        return from_backend_array(self, counts.astype(np.float32) if own else counts)
