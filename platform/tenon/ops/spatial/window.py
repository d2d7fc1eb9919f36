"""Sliding windows along one axis, and the transpose, their sum."""

from __future__ import annotations

from tenon.compat.saved_readers import attr
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.errors import ShapeError
from tenon.ops.dtype_queries import in_float32
from tenon.tensors.storage.untyped import strided


class UnfoldAxis(Primitive):
    """Windows of ``size`` every ``step`` along ``axis``, as a new last axis; a view."""

    kind = Kind.WINDOW
    view = True
    grad_name = "UnfoldBackward0"
    saved_names = {"dimension": attr("axis")}

    def infer(self, x, *, axis, size, step):
        """The number of windows replaces the axis; the window is the last axis."""
        shape = tuple(x.shape) or (1,)
        if size < 0:
            raise ShapeError(f"size is {size} but must be >= 0")
        if step <= 0:
            raise ShapeError(f"step is {step} but must be > 0")
        if size > shape[axis]:
            raise ShapeError(
                f"maximum size for tensor at dimension {axis} is {shape[axis]} but size is {size}"
            )
        if not x.shape:
            return Aval((size,), x.dtype)
        count = (shape[axis] - size) // step + 1
        return Aval((*shape[:axis], count, *shape[axis + 1 :], size), x.dtype)

    def forward(self, xp, x, *, axis, size, step):
        """A view with other strides."""
        shape = self.infer(x, axis=axis, size=size, step=step).shape
        if not x.ndim:
            return x.reshape(1)[:size]
        own = x.strides
        strides = (*own[:axis], own[axis] * step, *own[axis + 1 :], own[axis])
        return strided(xp, x, shape, strides)

    def vjp_x(self, f, g, out, x, *, axis, size, step):
        return f.fold_axis(g, shape=tuple(x.shape), axis=axis, step=step)


class FoldAxis(Primitive):
    """Windows (last axis) summed back into an axis of ``shape``: the transpose of ``unfold_axis``."""

    kind = Kind.WINDOW
    computes_in_float32 = True

    def infer(self, x, *, shape, axis, step):
        """``shape``."""
        return Aval(tuple(shape), x.dtype)

    @in_float32
    def forward(self, xp, x, *, shape, axis, step):
        """One copy if windows do not overlap, else one strided addition per position in the window."""
        result = xp.zeros(shape or (1,), x.dtype)
        if not shape:
            result[: x.shape[0]] += x
            return result.reshape(())
        if step >= x.shape[-1]:
            unfold_axis.forward(xp, result, axis=axis, size=x.shape[-1], step=step)[...] = x
            return result
        lead = (slice(None),) * axis
        count = x.shape[axis]
        for i in range(x.shape[-1]):
            result[(*lead, slice(i, i + (count - 1) * step + 1, step))] += x[..., i]
        return result

    def vjp_x(self, f, g, out, x, *, shape, axis, step):
        return f.unfold_axis(g, axis=axis, size=x.shape[-1], step=step)


unfold_axis, fold_axis = UnfoldAxis(), FoldAxis()
