"""Reductions and scans. ``axes`` is a tuple of non-negative axes (empty only for a 0-d input)."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import ShardingRule, along, numbered, reduced
from tenon.engine.types import Operand, OpNamespace
from tenon.errors import ShapeError
from tenon.kernels.following import in_c_order
from tenon.kernels.shapes import AxisError, broadcast_shapes, reduced_shape
from tenon.ops.dtype_queries import in_float32, is_short

_INT = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)
#: The dtype in which NumPy sums, by the kind of the elements.
_WIDEST = {"b": _INT, "i": _INT, "u": np.dtype(np.uint64)}


class Reduction(Primitive):
    """Base of the reductions that keep the dtype."""

    kind = Kind.REDUCE
    #: How the results of parts of ``axes`` are combined; see ``ShardingRule``.
    reduction: ClassVar[str] = ""

    def sharding_rule(self, x, *, axes, keepdims=False):
        """The other axes are independent; results of equal parts of ``axes`` are combined."""
        divides = self.reduction in ("avg", "max", "min") and not self.boolean  # any() of none is False
        even = tuple((a, x.shape[a]) for a in axes) if divides else ()
        return reduced(x.shape, axes, keepdims, self.reduction, linear=self.linear, even=even)

    def infer(self, x: Aval, *, axes: tuple[int, ...], keepdims: bool = False) -> Aval:
        """``x`` without ``axes``."""
        return Aval(reduced_shape(tuple(x.shape), axes, keepdims), x.dtype)


class Total(Reduction):
    """Base of the reductions with two autograd names in PyTorch: over all axes, and over some."""

    def torch_name(self, args, attrs):
        """``SumBackward0`` over all axes, else ``SumBackward1``."""
        over_all = bool(args) and len(attrs["axes"]) == len(args[0].shape) and not attrs.get("keepdims")
        return f"{self.name.capitalize()}Backward{0 if over_all else 1}"


def _spread(
    f: OpNamespace, g: Operand, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool
) -> Operand:
    """Broadcast ``g`` back to ``shape`` along the reduced axes (a view)."""
    if not keepdims and len(axes) < len(shape):  # a single element broadcasts unchanged
        g = f.reshape(g, shape=reduced_shape(shape, axes, True))
    return f.expand(g, shape=tuple(shape))


class Sum(Total):
    """Sum over ``axes``."""

    joined_by = "add"
    reduction = "sum"
    linear = "jointly"
    computes_in_float32 = True
    autocast_cuda = "float32"

    def infer(self, x, *, axes, keepdims=False):
        """``x`` without ``axes``; integers and booleans add up in 64 bits."""
        dtype = _WIDEST.get(x.dtype.kind, x.dtype)
        return Aval(reduced_shape(tuple(x.shape), axes, keepdims), dtype)

    def forward(self, xp, x, *, axes, keepdims=False, out=None):
        """``add.reduce``, which has half the overhead of ``np.sum``; 16-bit floats accumulate in float32."""
        if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
            result = xp.add.reduce(x.astype(np.float32), axis=axes, keepdims=keepdims).astype(x.dtype)
        else:
            result = xp.add.reduce(x, axis=axes, keepdims=keepdims, out=out)
        return result if x.ndim < 3 or out is not None else in_c_order(xp, result)

    def vjp_x(self, f, g, out, x, *, axes, keepdims=False):
        return _spread(f, g, x.shape, axes, keepdims)


class Mean(Total):
    """Arithmetic mean over ``axes``; NaN over no elements."""

    promotion = None
    joined_by = "add"
    reduction = "avg"
    linear = "jointly"
    computes_in_float32 = True

    def forward(self, xp, x, *, axes, keepdims=False):
        """Sum times the reciprocal count."""
        count = math.prod([x.shape[a] for a in axes])
        if x.dtype.itemsize == 2 and x.dtype.kind in "fV":
            total = in_c_order(xp, xp.add.reduce(x.astype(np.float32), axis=axes, keepdims=keepdims))
            return (total / np.float32(count) if count else total * np.float32("nan")).astype(x.dtype)
        total = xp.add.reduce(x, axis=axes, keepdims=keepdims)
        total = total if x.ndim < 3 else in_c_order(xp, total)
        return xp.true_divide(total, count) if count else xp.multiply(total, float("nan"))

    def in_parts(self, f, x, *, axes, keepdims=False):
        """The sum divided by the number of elements, which parts of unequal size compute too."""
        count = math.prod([x.shape[a] for a in axes])
        return f.div(f.sum(x, axes=axes, keepdims=keepdims), count)

    def vjp_x(self, f, g, out, x, *, axes, keepdims=False):
        count = max(math.prod([x.shape[a] for a in axes]), 1)
        return _spread(f, f.mul(g, 1.0 / count), x.shape, axes, keepdims)


class Prod(Total):
    """Product over ``axes``."""

    saves = ("x", "out")
    joined_by = "mul"
    reduction = "product"
    computes_in_float32 = True
    autocast = "float32"

    @in_float32
    def forward(self, xp, x, *, axes, keepdims=False, out=None):
        """``multiply.reduce``, whose integers NumPy widens to 64 bits."""
        result = xp.multiply.reduce(x, axis=axes, keepdims=keepdims, out=out)
        result = result if result.dtype == x.dtype else result.astype(x.dtype)
        return result if x.ndim < 3 or out is not None else in_c_order(xp, result)

    # The product of all other elements, without a division: correct at zeros, and to any order.
    def vjp_x(self, f, g, out, x, *, axes, keepdims=False):
        others = f.prod_of_others(x, axes=axes)
        return f.mul(_spread(f, g, x.shape, axes, keepdims), f.conj(others))


class Extreme(Reduction):
    """Base of amax and amin: ties share the gradient evenly."""

    saves = ("x", "out")
    computes_in_float32 = True

    def infer(self, x, *, axes, keepdims=False):
        """``x`` without ``axes``, which must not be empty."""
        for a in axes:
            if x.shape[a] == 0:
                raise AxisError(
                    f"{self.name}(): Expected reduction dim {a} to have non-zero size. (shape"
                    f" {list(x.shape)}) {self.name}(): Expected reduction dim to be specified for"
                    " input.numel() == 0. Specify the reduction dim with the 'dim' argument."
                )
        return super().infer(x, axes=axes, keepdims=keepdims)

    def forward(self, xp, x, *, axes, keepdims=False, out=None):
        """Reduce by the op ``joined_by``."""
        result = getattr(xp, self.joined_by).reduce(x, axis=axes, keepdims=keepdims, out=out)
        return result if x.ndim < 3 or out is not None else in_c_order(xp, result)

    def vjp_x(self, f, g, out, x, *, axes, keepdims=False):
        ties = f.cast(f.eq(x, _spread(f, out, x.shape, axes, keepdims)), dtype=g.dtype)
        share = f.div(ties, f.sum(ties, axes=axes, keepdims=True)) if axes else ties
        return f.mul(_spread(f, g, x.shape, axes, keepdims), share)


class Amax(Extreme):
    """Largest element over ``axes``; NaN if there is one."""

    joined_by = "maximum"
    reduction = "max"


class Amin(Extreme):
    """Smallest element over ``axes``; NaN if there is one."""

    joined_by = "minimum"
    reduction = "min"


class _Logic(Reduction):
    """Base of the reductions to booleans."""

    boolean = True

    def infer(self, x, *, axes, keepdims=False):
        """Booleans."""
        return Aval(reduced_shape(tuple(x.shape), axes, keepdims), _BOOL)


class Any_(_Logic):
    """Whether any element over ``axes`` is non-zero."""

    name = "any"
    joined_by = "logical_or"
    reduction = "max"

    def forward(self, xp, x, *, axes, keepdims=False):
        """NumPy's ``any``."""
        return in_c_order(xp, xp.any(x, axis=axes, keepdims=keepdims))


class All_(_Logic):
    """Whether all elements over ``axes`` are non-zero."""

    name = "all"
    joined_by = "logical_and"
    reduction = "min"

    def forward(self, xp, x, *, axes, keepdims=False):
        """NumPy's ``all``."""
        return in_c_order(xp, xp.all(x, axis=axes, keepdims=keepdims))


class _Arg(Primitive):
    """Base of argmax and argmin."""

    kind = Kind.REDUCE

    def sharding_rule(self, x, *, axis, keepdims=False):
        """The other axes are independent."""
        return reduced(x.shape, range(len(x.shape)) if axis is None else [axis], keepdims, "")

    def infer(self, x, *, axis, keepdims=False):
        """Indices; ``axis=None`` means over the flattened input."""
        shape = tuple(x.shape)
        axes = tuple(range(len(shape))) if axis is None else (axis,) if shape else ()
        if 0 in [shape[a] for a in axes]:
            raise AxisError(
                f"{self.name}(): Expected reduction dim {axis} to have non-zero size. (shape {list(shape)})"
            )
        return Aval(reduced_shape(shape, axes, keepdims), _INT)

    def forward(self, xp, x, *, axis, keepdims=False):
        """First index of the extreme; NaN is the extreme."""
        axis = None if not x.ndim else axis
        return getattr(xp, self.name)(x, axis=axis, keepdims=keepdims)


class Argmax(_Arg):
    """Index of the first largest element."""

    computes_in_float32 = True


class Argmin(_Arg):
    """Index of the first smallest element."""

    computes_in_float32 = True


class SumTo(Primitive):
    """The transpose of broadcasting: sum over the broadcast axes, down to ``shape``."""

    kind = Kind.REDUCE
    view = True  # the input itself, where nothing was broadcast
    joined_by = "add"
    identity = True

    def sharding_rule(self, x, *, shape):
        """Summed axes leave partial sums."""
        lead = len(x.shape) - len(shape)
        own = numbered(x.shape)
        after = tuple(a + lead if size == x.shape[a + lead] else None for a, size in enumerate(shape))
        return ShardingRule((own,), (after,), "sum", linear="jointly", shape_attr="shape")

    def infer(self, x, *, shape):
        """``shape``, which must broadcast to the input's."""
        if broadcast_shapes(tuple(x.shape), tuple(shape)) != tuple(x.shape):
            raise ShapeError(f"sum_to: {list(shape)} does not broadcast to {list(x.shape)}.")
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, shape):
        """The input itself where nothing was broadcast."""
        own = x.shape
        if own == shape:
            return x
        lead = len(own) - len(shape)
        axes = tuple(range(lead)) + tuple(
            i + lead for i, s in enumerate(shape) if s == 1 and own[i + lead] != 1
        )
        if is_short(x):  # in 16 bits the sum of many stops growing
            wide = xp.add.reduce(x.astype(np.float32), axis=axes, keepdims=True)
            return wide.astype(x.dtype).reshape(shape)
        return xp.add.reduce(x, axis=axes, keepdims=True).reshape(shape)

    def vjp_x(self, f, g, out, x, *, shape):
        padded = (1,) * (len(x.shape) - len(shape)) + tuple(shape)
        return f.expand(f.reshape(g, shape=padded), shape=tuple(x.shape))


class _Cumulative(Primitive):
    """Base of the cumulative sum and product."""

    kind = Kind.REDUCE
    plain = True
    computes_in_float32 = True
    autocast_cuda = "float32"

    def sharding_rule(self, x, *, axis):
        """The other axes are independent."""
        return along(x.shape, [axis], linear=self.linear)

    def infer(self, x, *, axis):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)


class Cumsum(_Cumulative):
    """Cumulative sum along ``axis``."""

    @in_float32
    def forward(self, xp, x, *, axis):
        """In the input's dtype; by default NumPy would widen narrow ones."""
        return xp.cumsum(x, axis=axis, dtype=x.dtype) if x.ndim else x.copy()

    def vjp_x(self, f, g, out, x, *, axis):
        if not x.shape:
            return g
        return f.flip(f.cumsum(f.flip(g, axes=(axis,)), axis=axis), axes=(axis,))


class Cumprod(_Cumulative):
    """Cumulative product along ``axis``."""

    saves = ("x", "out")

    @in_float32
    def forward(self, xp, x, *, axis):
        """In the input's dtype."""
        return xp.cumprod(x, axis=axis, dtype=x.dtype) if x.ndim else x.copy()

    # d out_j / d x_i = product of x_k over k <= j, k != i: the product before i, times a recurrence from the
    # end, r_i = g_i + x_(i+1) r_(i+1). Without a division it is correct at zeros, and to any order.
    def vjp_x(self, f, g, out, x, *, axis):
        if not x.shape or 0 in x.shape:
            return g
        size = x.shape[axis]
        part = lambda v, i: f.slice_axis(v, axis=axis, start=i, stop=i + 1)  # noqa: E731
        tails = [part(g, size - 1)]
        for i in range(size - 2, -1, -1):
            tails.append(f.add(part(g, i), f.mul(f.conj(part(x, i + 1)), tails[-1])))
        ones = f.new_full(g, shape=tuple(tails[0].shape), value=1, dtype=x.dtype)
        before = f.cat(ones, f.slice_axis(out, axis=axis, start=0, stop=size - 1), axis=axis)
        return f.mul(f.cat(*reversed(tails), axis=axis), f.conj(before))


sum, mean, prod, amax, amin = Sum(), Mean(), Prod(), Amax(), Amin()
any, all, argmax, argmin = Any_(), All_(), Argmax(), Argmin()
sum_to, cumsum, cumprod = SumTo(), Cumsum(), Cumprod()
