"""Joining along a new axis, and diagonals as views."""

from __future__ import annotations

from tenon.compat.saved_readers import attr
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.errors import ShapeError
from tenon.tensors.storage.untyped import strided


class Stack(Primitive):
    """Arrays of equal shape joined along a new ``axis``."""

    kind = Kind.MOVE
    inputs = ("*xs",)
    promotion = "same"

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


stack, diagonal, diagonal_embed = Stack(), Diagonal(), DiagonalEmbed()
