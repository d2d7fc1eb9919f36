"""Copies with a part replaced: ``scatter_reduce``, ``slice_scatter``, ``put``; ``rot90`` and ``renorm``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenon.engine.aval import refuse_kinds
from tenon.engine.op import table as f
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.alerts import alert_not_deterministic
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.movement import sizes
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.index_parsing import Key
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import SizeLike

_IDENTITIES = {"sum": 0, "mean": 0, "prod": 1}


class Placement(Family):
    """Methods that return a copy with a part replaced, or with slices rotated or scaled.

    A negative ``dim`` counts from the last axis; one that does not exist raises AxisError.
    """

    __slots__ = ()

    @as_function()
    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """Return a view of the diagonal ``offset`` of the axes ``dim1`` and ``dim2``, as the last axis."""
        rank = self.raw.ndim
        first, second = normalize_axis(dim1, rank), normalize_axis(dim2, rank)
        if first == second:
            raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        return f.diagonal(self, offset=offset, axis0=first, axis1=second)

    @as_function()
    def diagonal_scatter(self, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """Return a copy with ``src`` in place of the diagonal that ``diagonal`` returns; raises ShapeError
        unless the shapes are equal."""
        result = self.clone()
        region = result.diagonal(offset, dim1, dim2)
        region.copy_(_checked("diagonal_scatter", region, src))
        return result

    @as_function()
    def select_scatter(self, src: Tensor, dim: int, index: int) -> Tensor:
        """Return a copy with ``src`` in place of the slice at ``index`` along ``dim``; raises ShapeError
        unless the shapes are equal."""
        axis = normalize_axis(dim, self.raw.ndim)
        part = self.detach().select(dim, index)
        return self._replaced("select_scatter", part, src, (*(slice(None),) * axis, index))

    @as_function()
    def slice_scatter(
        self, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Tensor:
        """Return a copy with ``src`` in place of the slices ``start:end:step`` along ``dim``; raises
        ShapeError unless the shapes are equal."""
        key = (slice(None),) * normalize_axis(dim, self.raw.ndim) + (slice(start, end, step),)
        return self._replaced("slice_scatter", self.detach()[key], src, key)

    def _replaced(self, name: str, part: Tensor, src: Tensor, key: Key) -> Tensor:
        """A copy in which ``src`` replaces ``part``, which is ``self[key]``."""
        return f.place(self, f.cast(_checked(name, part, src), dtype=self.raw.dtype), key=key)

    @as_function()
    def scatter_reduce(
        self, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
    ) -> Tensor:
        """Return a copy in which the elements of ``src`` are reduced into those at ``index`` along ``dim``,
        the positions where ``scatter`` writes.

        ``reduce`` is "sum", "prod", "mean", "amax" or "amin", else ArgumentError is raised. Without
        ``include_self``, the elements that are there before do not count.
        """
        if reduce not in ("sum", "prod", "mean", "amax", "amin"):
            raise ArgumentError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
        if src.raw.dtype != self.raw.dtype:
            raise DTypeError("scatter(): Expected self.dtype to be equal to src.dtype")
        if reduce == "mean":
            refuse_kinds("scatter_reduce of means", "b", self.raw)
        axis = normalize_axis(dim, self.raw.ndim)
        if reduce in ("amax", "amin"):
            return f.scatter_extreme(self, index, src, axis=axis, reduce=reduce, include_self=include_self)
        start = self if include_self else f.scatter(self, index, _IDENTITIES[reduce], axis=axis)
        if reduce == "prod":
            return f.scatter_prod(start, index, src, axis=axis)
        total = f.scatter(start, index, src, axis=axis, reduce="add")
        if reduce == "sum":
            return total
        ones = f.new_full(src.detach(), shape=tuple(src.raw.shape), value=1)
        first = f.new_full(self.detach(), shape=tuple(self.raw.shape), value=int(include_self))
        count = f.scatter(first, index, ones, axis=axis, reduce="add").clamp(min=1)
        return f.div(total, count) if self.raw.dtype.kind not in "iu" else f.floor_divide(total, count)

    @as_function()
    def index_reduce(
        self, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
    ) -> Tensor:
        """Return a copy in which slice ``i`` of ``source`` along ``dim`` is reduced into slice ``index[i]``.

        ``reduce`` is "prod", "mean", "amax" or "amin", else ArgumentError is raised. Without
        ``include_self``, the elements that are there before do not count.
        """
        if reduce not in ("prod", "mean", "amax", "amin"):
            raise ArgumentError(
                f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
            )
        axis = normalize_axis(dim, self.raw.ndim)
        index = index.reshape([-1 if a == axis else 1 for a in range(source.raw.ndim)])
        return self.scatter_reduce(
            dim, index.expand(source.raw.shape), source, reduce, include_self=include_self
        )

    @as_function()
    def put(self, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
        """Return a copy with ``source`` written at the positions ``index`` of the flattened tensor, or added
        with ``accumulate``."""
        if not accumulate:
            alert_not_deterministic("put_")
        flat = self.reshape(-1)
        return flat.index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(self.raw.shape)

    def sum_to_size(self, *size: SizeLike) -> Tensor:
        """Return the sum over the axes along which a tensor of shape ``size`` would be broadcast to this
        shape.

        Raises ShapeError if it cannot be broadcast to it.
        """
        target = sizes(size)
        rank, shape = len(target), tuple(self.raw.shape)
        if rank > len(shape) or any(w not in (1, s) for w, s in zip(target[::-1], shape[::-1], strict=False)):
            raise ShapeError(f"size {{{list(target)}}} is not expandable to size {{{list(shape)}}}.")
        if target == shape != ():
            return self
        lead = len(shape) - rank
        axes = [a for a, s in enumerate(shape) if a < lead or (target[a - lead] == 1 and s != 1)]
        return self.sum(axes, True).reshape(target)

    @as_function()
    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
        """Return a copy rotated ``k`` times by 90 degrees in the plane of two axes, from the first of
        ``dims`` towards the second."""
        if len(dims) != 2:
            raise ShapeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
        first, second = (normalize_axis(d, self.raw.ndim) for d in dims)
        if first == second:
            raise ShapeError(
                f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
            )
        turns = operator.index(k) % 4
        if turns == 0:
            return self.clone()
        if turns == 2:
            return self.flip(first, second)
        transposed = self.transpose(first, second)
        return transposed.flip(first) if turns == 1 else transposed.flip(second)

    @as_function()
    @runs_in("usual", cuda="float32")
    def renorm(self, p: float, dim: int, maxnorm: float) -> Tensor:
        """Return a copy in which each slice along ``dim`` whose ``p``-norm exceeds ``maxnorm`` is scaled
        down to it."""
        if self.raw.ndim < 2:
            raise ShapeError(f"renorm: input needs at least 2 dimensions, got {self.raw.ndim} dimensions")
        if not p > 0:
            raise ArgumentError(f"renorm: non-positive-norm not supported, got p={p}")
        if not maxnorm >= 0:
            raise ArgumentError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
        if self.raw.dtype.kind in "iub":
            raise DTypeError(
                "renorm: Expected a floating point or complex tensor as input. Got"
                f" {self.dtype}; use .float()."
            )
        axis = normalize_axis(dim, self.raw.ndim)
        axes = tuple(a for a in range(self.raw.ndim) if a != axis)
        norm = f.vector_norm(self, order=float(p), axes=axes, keepdims=True)
        return f.mul(self, f.where(f.gt(norm, maxnorm), f.div(maxnorm, f.add(norm, 1e-7)), 1.0))

    scatter_reduce_ = through_method("scatter_reduce")
    index_reduce_ = through_method("index_reduce")
    put_ = through_method("put")
    renorm_ = through_method("renorm")


def _checked(name: str, region: Tensor, src: Tensor) -> Tensor:
    """Return ``src``; ShapeError unless it has the shape of ``region``."""
    if tuple(region.raw.shape) != tuple(src.raw.shape):
        raise ShapeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = "
            f"{list(src.raw.shape)}, slice size = {list(region.raw.shape)}"
        )
    return src
