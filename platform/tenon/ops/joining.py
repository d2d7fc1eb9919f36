"""Joining and splitting along an axis, and diagonals as views."""

from __future__ import annotations

from tenon.compat.saved_readers import attr
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Op, Primitive
from tenon.engine.sharding_rule import ShardingRule, along, numbered
from tenon.engine.types import Attrs
from tenon.errors import ShapeError
from tenon.ops.indexing import index as basic
from tenon.ops.movement import slice_axis
from tenon.tensors.storage.untyped import strided


class Cat(Primitive):
    """Arrays joined along ``axis``."""

    kind = Kind.MOVE
    inputs = ("*xs",)
    promotion = "same"

    def sharding_rule(self, *xs, axis):
        """The joined axis is whole."""
        factors = numbered(xs[0].shape, [axis])
        return ShardingRule((factors,) * len(xs), (factors,), linear="jointly", moves=True)

    def infer(self, *xs, axis):
        """Sizes along ``axis`` add up; the others must agree."""
        first = xs[0]
        for x in xs[1:]:
            if len(x.shape) != len(first.shape) or any(
                a != b for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True)) if i != axis
            ):
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {axis}. Expected {list(first.shape)}"
                    f" but got {list(x.shape)} in the list."
                )
        shape = list(first.shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return Aval(tuple(shape), first.dtype)

    def forward(self, xp, *xs, axis):
        """NumPy's concatenate."""
        return xp.concatenate(xs, axis)

    def vjp_joint(self, f, g, out, *xs, axis, needs):
        grads, start = [], 0
        for x, needed in zip(xs, needs, strict=True):
            stop = start + x.shape[axis]
            grads.append(f.slice_axis(g, axis=axis, start=start, stop=stop) if needed else None)
            start = stop
        return grads


class Split(Primitive):
    """Consecutive pieces of the given ``sizes`` along ``axis``, all views."""

    kind = Kind.MOVE
    view = True
    outputs = 0
    copying_form = True

    def sharding_rule(self, x, *, sizes, axis):
        """The split axis is whole."""
        return along(x.shape, [axis], len(sizes), linear="jointly", moves=True)

    def infer(self, x, *, sizes, axis):
        """One aval per piece."""
        if sum(sizes) != x.shape[axis]:
            raise ShapeError(
                f"split_with_sizes expects split_sizes to sum exactly to {x.shape[axis]} (input tensor's size"
                f" at dimension {axis}), but got split_sizes={list(sizes)}"
            )
        shape = tuple(x.shape)
        return tuple(Aval((*shape[:axis], s, *shape[axis + 1 :]), x.dtype) for s in sizes)

    def forward(self, xp, x, *, sizes, axis):
        """Views."""
        pieces, start = [], 0
        for s in sizes:
            pieces.append(x[(slice(None),) * axis + (slice(start, start + s),)])
            start += s
        if start != x.shape[axis]:
            self.infer(x, sizes=sizes, axis=axis)
        return tuple(pieces)

    def view_of(self, index: int, *, sizes: tuple[int, ...], axis: int) -> tuple[Op, Attrs]:
        """Return the single-output op and attrs whose result is piece ``index``."""
        start = sum(sizes[:index])
        return slice_axis, {"axis": axis, "start": start, "stop": start + sizes[index]}

    def vjp_x(self, f, g, out, x, *, sizes, axis):
        return f.cat(*g, axis=axis)


class Unbind(Primitive):
    """Slices along ``axis``, which disappears; all views."""

    kind = Kind.MOVE
    view = True
    outputs = 0
    copying_form = True

    def sharding_rule(self, x, *, axis):
        """The slices have the other axes."""
        own = numbered(x.shape, [axis])
        rest = own[:axis] + own[axis + 1 :]
        return ShardingRule((own,), (rest,) * x.shape[axis], linear="jointly", moves=True)

    def infer(self, x, *, axis):
        """One aval per slice."""
        shape = tuple(x.shape)
        return (Aval(shape[:axis] + shape[axis + 1 :], x.dtype),) * shape[axis]

    def forward(self, xp, x, *, axis):
        """Views."""
        lead = (slice(None),) * axis
        return tuple(x[(*lead, i, ...)] for i in range(x.shape[axis]))

    def view_of(self, index: int, *, axis: int) -> tuple[Op, Attrs]:
        """Return the single-output op and attrs whose result is slice ``index``."""
        return basic, {"key": (slice(None),) * axis + (index,)}

    def vjp_x(self, f, g, out, x, *, axis):
        lead = list(x.shape)
        lead[axis] = 1
        return f.cat(*[f.reshape(each, shape=tuple(lead)) for each in g], axis=axis)


class Stack(Primitive):
    """Arrays of equal shape joined along a new ``axis``."""

    kind = Kind.MOVE
    inputs = ("*xs",)
    promotion = "same"

    def sharding_rule(self, *xs, axis):
        """The new axis is whole."""
        own = numbered(xs[0].shape)
        joined = (*own[:axis], None, *own[axis:])
        return ShardingRule((own,) * len(xs), (joined,), linear="jointly", moves=True)

    def infer(self, *xs, axis):
        """A new axis whose size is the number of arrays."""
        shape = tuple(xs[0].shape)
        for position, x in enumerate(xs):
            if tuple(x.shape) != shape:
                raise ShapeError(
                    f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and "
                    f"{list(x.shape)} "
                    f"at entry {position}"
                )
        return Aval((*shape[:axis], len(xs), *shape[axis:]), xs[0].dtype)

    def forward(self, xp, *xs, axis):
        """One allocation."""
        return xp.stack(xs, axis)

    def vjp_joint(self, f, g, out, *xs, axis, needs):
        key = (slice(None),) * axis
        return [f.index(g, key=(*key, i, Ellipsis)) if needed else None for i, needed in enumerate(needs)]


class Diagonal(Primitive):
    """The diagonal along two axes as the last axis: a view."""

    kind = Kind.MOVE
    view = True
    saved_names = {"dim1": attr("axis0"), "dim2": attr("axis1")}
    copying_form = True

    def infer(self, x, *, offset=0, axis0=0, axis1=1):
        """The other axes, then the diagonal's length."""
        rest = tuple(s for a, s in enumerate(x.shape) if a not in (axis0, axis1))
        return Aval((*rest, _length(x.shape[axis0], x.shape[axis1], offset)), x.dtype)

    def forward(self, xp, x, *, offset=0, axis0=0, axis1=1):
        """A view whose stride is the sum of both axes'; writable, unlike NumPy's."""
        length = _length(x.shape[axis0], x.shape[axis1], offset)
        if length:
            axis = axis1 if offset > 0 else axis0
            x = x[(slice(None),) * axis + (slice(abs(offset), None),)]
        rest = [a for a in range(x.ndim) if a not in (axis0, axis1)]
        shape = (*(x.shape[a] for a in rest), length)
        strides = (*(x.strides[a] for a in rest), x.strides[axis0] + x.strides[axis1])
        return strided(xp, x, shape, strides)

    def vjp_x(self, f, g, out, x, *, offset=0, axis0=0, axis1=1):
        return f.diagonal_embed(g, shape=tuple(x.shape), offset=offset, axis0=axis0, axis1=axis1)


class DiagonalEmbed(Primitive):
    """Zeros of ``shape`` with ``x`` on a diagonal: the transpose of ``diagonal``."""

    grad_name = "DiagEmbedBackward0"
    kind = Kind.MOVE

    def infer(self, x, *, shape, offset=0, axis0=0, axis1=1):
        """``shape`` in the input's dtype."""
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, shape, offset=0, axis0=0, axis1=1):
        """Written through a view of the diagonal."""
        result = xp.zeros(shape, x.dtype)
        diagonal.forward(xp, result, offset=offset, axis0=axis0, axis1=axis1)[...] = x
        return result

    def vjp_x(self, f, g, out, x, *, shape, offset=0, axis0=0, axis1=1):
        return f.diagonal(g, offset=offset, axis0=axis0, axis1=axis1)


def _length(rows: int, columns: int, offset: int) -> int:
    """Return the number of elements on the diagonal ``offset`` of a matrix."""
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


cat, split, unbind, stack = Cat(), Split(), Unbind(), Stack()
diagonal, diagonal_embed = Diagonal(), DiagonalEmbed()
