"""Elementwise ops with corners: ``relu``, ``clamp``, and the gradients that select by sign."""

from __future__ import annotations

from tenon.engine.aval import Aval, shape_of
from tenon.engine.op import Composite, Kind, Primitive
from tenon.kernels.shapes import broadcast_shapes


def bounded(extreme, x, bound, out=None):
    """``extreme(x, bound)``, of equal numbers ``x``: zeros keep their sign, as in PyTorch.

    Of equal numbers NumPy returns the second, but of float16 the first.
    """
    pair = (x, bound) if hasattr(x, "dtype") and x.dtype.char == "e" else (bound, x)
    return extreme(*pair, out=out)


class Relu(Primitive):
    """``max(x, 0)``; NaN stays NaN."""

    kind = Kind.ELEMENTWISE
    saves = ("out",)
    overwrites = True
    expression = "maximum(a, 0)"
    public = True
    inplace_functions = True

    def infer(self, x):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, out=None):
        """The maximum with a zero of the input's dtype."""
        return bounded(xp.maximum, x, x.dtype.type(0), out)

    def vjp_x(self, f, g, out, x):
        return f.relu_grad(g, out)


class ReluGrad(Primitive):
    """``g`` where ``out`` is positive or NaN, else 0: the gradient of ``relu`` from its output."""

    kind = Kind.ELEMENTWISE
    inputs = ("g", "out")
    saves = ("out",)
    grad_name = "ThresholdBackwardBackward0"
    expression = "0 if b <= 0 else a"

    def infer(self, g, out):
        """The gradient's own aval."""
        return Aval(g.shape, g.dtype)

    def forward(self, xp, g, out):
        """Select rather than multiply: an infinite gradient where ``out`` is 0 gives 0, not NaN."""
        return xp.where(xp.less_equal(out, 0), g.dtype.type(0), g)

    def vjp_g(self, f, g, out, gradient, gate):
        return f.relu_grad(g, gate)


class Clamp(Primitive):
    """``x`` limited to ``[min, max]``: numbers, tensors or None. Where ``min > max``, ``max`` wins; NaN stays
    NaN."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "min", "max")
    saves = ("x", "min", "max")
    promotion = "same"
    numbers_fit = True
    overwrites = True
    grad_overloads = {(False, True, True): "ClampBackward1"}
    public = True
    aliases = ("clip",)
    inplace_form = "reals"
    inplace_functions = True
    out = "kept"

    def infer(self, x, min, max):
        """The broadcast shape in the common dtype."""
        like = next(v for v in (x, min, max) if hasattr(v, "dtype"))
        return Aval(broadcast_shapes(shape_of(x), shape_of(min), shape_of(max)), like.dtype)

    def forward(self, xp, x, min, max, *, out=None):
        """At most two comparisons, the second in place."""
        result = x if min is None else bounded(xp.maximum, x, min, out)
        if max is None:
            return result
        if out is not None:
            return bounded(xp.minimum, result, max, out)
        reusable = (
            result is not x
            and bool(getattr(result, "ndim", False))
            and getattr(result, "shape", None) == xp.broadcast_shapes(result.shape, shape_of(max))
        )
        return bounded(xp.minimum, result, max, result if reusable else None)

    def expression_for(self, args, attrs):
        """As many comparisons as there are bounds."""
        text = "a" if args[1] is None else "maximum(a, b)"
        return text if args[2] is None else f"minimum({text}, c)"

    # As in PyTorch: at a bound the input gets the gradient, the bound only gets it beyond.
    def vjp_x(self, f, g, out, x, min, max):
        if min is not None:
            g = f.where(f.ge(x, min), g, 0)
        if max is not None:
            g = f.where(f.le(x, max), g, 0)
        return f.sum_to(g, shape=x.shape)

    def vjp_min(self, f, g, out, x, min, max):
        below = f.lt(x, min) if max is None else f.logical_and(f.lt(x, min), f.lt(min, max))
        return f.sum_to(f.where(below, g, 0), shape=min.shape)

    def vjp_max(self, f, g, out, x, min, max):
        above = f.gt(x, max) if min is None else f.logical_or(f.gt(x, max), f.lt(max, min))
        return f.sum_to(f.where(above, g, 0), shape=max.shape)


class NanToNum(Composite):
    """``x`` with ``nan`` for NaN, ``high`` for infinity and ``low`` for minus infinity."""

    kind = Kind.ELEMENTWISE
    saves = ("x",)
    expression = "nan if isnan(a) else (high if a == inf else (low if a == (-inf) else a))"
    public = True
    inplace_form = "method"
    inplace_functions = True

    def decompose(self, f, x, *, nan, high, low):
        result = f.where(f.isnan(x), nan, x)
        result = f.where(f.eq(x, float("inf")), high, result)
        return f.where(f.eq(x, -float("inf")), low, result)

    def vjp_x(self, f, g, out, x, *, nan, high, low):
        return f.where(f.isfinite(x), g, 0)


relu, relu_grad, clamp, nan_to_num = Relu(), ReluGrad(), Clamp(), NanToNum()
