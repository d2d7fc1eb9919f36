"""Writing parts and cutting into parts: ``scatter_reduce``, ``slice_scatter``, ``rot90``, ``hsplit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.core.aval import normalize_axis
from tenon.core.grad_mode import MODE
from tenon.core.methods.forms import inplace_form
from tenon.core.op import table as f
from tenon.core.precision import runs_in
from tenon.errors import ArgumentError, GradError, ShapeError

_IDENTITIES = {"sum": 0, "mean": 0, "prod": 1}


class Placement:
    """Copies with a part replaced, and views of parts."""

    __slots__ = ()
    raw: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # what the other mixins bring

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """The diagonal of two axes as the last axis: a view."""
        rank = self.raw.ndim
        first, second = normalize_axis(dim1, rank), normalize_axis(dim2, rank)
        if first == second:
            raise ShapeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
        return f.diagonal(self, offset=offset, axis0=first, axis1=second)

    def diagonal_scatter(self, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """A copy with ``src`` on a diagonal."""
        made = self.clone()
        made.diagonal(offset, dim1, dim2).copy_(
            _fits("diagonal_scatter", made.diagonal(offset, dim1, dim2), src)
        )
        return made

    def select_scatter(self, src: Any, dim: int, index: int) -> Any:
        """A copy with ``src`` at ``index`` of ``dim``."""
        made = self.clone()
        place = made.select(dim, index)
        place.copy_(_fits("select_scatter", place, src))
        return made

    def slice_scatter(
        self, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Any:
        """A copy with ``src`` at ``start:end:step`` of ``dim``."""
        made = self.clone()
        axis = normalize_axis(dim, self.raw.ndim)
        place = made[(slice(None),) * axis + (slice(start, end, step),)]
        place.copy_(_fits("slice_scatter", place, src))
        return made

    def scatter_reduce(
        self, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
    ) -> Any:
        """A copy with ``src`` combined in at ``index``; ``reduce`` is sum, prod, mean, amax or amin."""
        if reduce not in ("sum", "prod", "mean", "amax", "amin"):
            raise ArgumentError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
        axis = normalize_axis(dim, self.raw.ndim)
        if reduce in ("amax", "amin"):
            return _extreme(self, src, index, axis, reduce, include_self)
        start = self if include_self else f.scatter(self, index, _IDENTITIES[reduce], axis=axis)
        if reduce == "prod":
            if MODE.enabled and (self.requires_grad or src.requires_grad):
                raise GradError(
                    "scatter_reduce(reduce='prod') has no gradient; use sum, mean, amax or amin, or detach() "
                    "its inputs."
                )
            return f.scatter(start, index, src, axis=axis, reduce="multiply")
        total = f.scatter(start, index, src, axis=axis, reduce="add")
        if reduce == "sum":
            return total
        ones = f.new_full(src.detach(), shape=tuple(src.raw.shape), value=1)
        first = f.new_full(self.detach(), shape=tuple(self.raw.shape), value=int(include_self))
        count = f.scatter(first, index, ones, axis=axis, reduce="add").clamp(min=1)
        return f.div(total, count) if self.raw.dtype.kind not in "iu" else f.floor_divide(total, count)

    def put(self, index: Any, source: Any, accumulate: bool = False) -> Any:
        """A copy with ``source`` written (or added) at positions of the flattened tensor."""
        flat = self.reshape(-1)
        return flat.index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(self.raw.shape)

    def rot90(self, k: int = 1, dims: Any = (0, 1)) -> Any:
        """Turned by ``k`` right angles from the first to the second of ``dims``."""
        first, second = (normalize_axis(d, self.raw.ndim) for d in dims)
        if first == second:
            raise ShapeError(
                f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
            )
        turns = k % 4
        if turns == 0:
            return self.clone()
        if turns == 2:
            return self.flip(first, second)
        turned = self.transpose(first, second)
        return turned.flip(first) if turns == 1 else turned.flip(second)

    def hsplit(self, indices_or_sections: Any) -> Any:
        """Pieces along axis 1 (axis 0 of a vector): views."""
        if not self.raw.ndim:
            raise ShapeError(
                "torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 "
                "dimensions!"
            )
        return _even(self, "hsplit", indices_or_sections, 0 if self.raw.ndim == 1 else 1)

    def vsplit(self, indices_or_sections: Any) -> Any:
        """Pieces along axis 0: views."""
        if self.raw.ndim < 2:
            raise ShapeError(
                "torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with "
                f"{self.raw.ndim} dimensions!"
            )
        return _even(self, "vsplit", indices_or_sections, 0)

    def dsplit(self, indices_or_sections: Any) -> Any:
        """Pieces along axis 2: views."""
        if self.raw.ndim < 3:
            raise ShapeError(
                "torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with "
                f"{self.raw.ndim} dimensions!"
            )
        return _even(self, "dsplit", indices_or_sections, 2)

    @runs_in("usual", cuda="float32")
    def renorm(self, p: float, dim: int, maxnorm: float) -> Any:
        """Slices along ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``."""
        if self.raw.ndim < 2:
            raise ShapeError(f"renorm: input needs at least 2 dimensions, got {self.raw.ndim} dimensions")
        axis = normalize_axis(dim, self.raw.ndim)
        axes = tuple(a for a in range(self.raw.ndim) if a != axis)
        norm = f.vector_norm(self, order=float(p), axes=axes, keepdims=True)
        return f.mul(self, f.where(f.gt(norm, maxnorm), f.div(maxnorm, f.add(norm, 1e-7)), 1.0))


def _even(x: Any, name: str, indices_or_sections: Any, axis: int) -> Any:
    size = x.raw.shape[axis]
    if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or size % indices_or_sections):
        raise ShapeError(
            f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension {size} "
            "is not divisible by "
            f"the split_size {indices_or_sections}!"
        )
    return x.tensor_split(indices_or_sections, axis)


def _fits(name: str, place: Any, src: Any) -> Any:
    if tuple(place.raw.shape) != tuple(src.raw.shape):
        raise ShapeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = "
            f"{list(src.raw.shape)}, slice size = "
            f"{list(place.raw.shape)}"
        )
    return src


def _extreme(x: Any, src: Any, index: Any, axis: int, reduce: str, include_self: bool) -> Any:
    """Scattered maximum or minimum; those that reach it share the gradient evenly."""
    start = x.detach()
    if not include_self:
        start = f.scatter(start, index, float("-inf") if reduce == "amax" else float("inf"), axis=axis)
    best = f.scatter(start, index, src.detach(), axis=axis, reduce=reduce)
    if not (MODE.enabled and (x.requires_grad or src.requires_grad)):
        return best
    own = f.eq(start, best)
    window = f.index(src, key=tuple(slice(0, s) for s in index.raw.shape))
    theirs = f.eq(window, f.gather(best, index, axis=axis))
    total = f.scatter(f.where(own, x, 0.0), index, f.where(theirs, window, 0.0), axis=axis, reduce="add")
    hits = f.scatter(own.to(best.dtype), index, theirs.to(best.dtype), axis=axis, reduce="add")
    return f.div(total, hits)


def _attach() -> None:
    for name in ("scatter_reduce", "put", "renorm"):
        setattr(Placement, f"{name}_", inplace_form(name))


_attach()
