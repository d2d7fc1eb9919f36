"""Casts, copies and aliases: ops that change an array's dtype or memory but not its values."""

from __future__ import annotations

import numpy as np

from tenon.device import Device
from tenon.dtypes import dtype
from tenon.engine.aval import Aval, shape_of
from tenon.engine.op import Kind, Op, Primitive, pointwise_rule
from tenon.engine.sharding_rule import ShardingRule, along, numbered
from tenon.engine.types import Operand
from tenon.errors import ShapeError
from tenon.kernels.backend import Backend, backend_for
from tenon.kernels.shapes import broadcast_shapes


class Cast(Primitive):
    """The values in another dtype (a NumPy dtype)."""

    kind = Kind.MEMORY
    integral = True
    grad_name = "ToCopyBackward0"
    expression = "cast(a)"
    identity = True
    reuses = (0,)

    def __call__(self, x: Operand, *, dtype: np.dtype) -> Operand:
        return super().__call__(x, dtype=getattr(dtype, "numpy", dtype))

    def sharding_rule(self, x, *, dtype):
        """All axes are independent; sums of floats may be cast in parts."""
        linear = "jointly" if x.dtype.kind in "fcV" and np.dtype(dtype).kind in "fcV" else ""
        return along(x.shape, [], linear=linear)

    def infer(self, x, *, dtype):
        """The same shape in ``dtype``."""
        return Aval(x.shape, np.dtype(dtype))

    def forward(self, xp, x, *, dtype):
        """Return a new array; a cast from complex to real drops the imaginary part."""
        if x.dtype.kind == "c" and np.dtype(dtype).kind != "c" and np.dtype(dtype).kind != "b":
            x = x.real
        return x.astype(dtype)

    def vjp_x(self, f, g, out, x, *, dtype):
        return f.cast(g, dtype=x.dtype)


class Clone(Primitive):
    """A contiguous copy (keeps the axis order of a dense permuted input)."""

    kind = Kind.MEMORY
    expression = "a"
    identity = True
    reuses = (0,)

    def sharding_rule(self, x):
        """All axes are independent."""
        return along(x.shape, [], linear="jointly", moves=True)

    def infer(self, x):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x):
        """NumPy's order ``K`` is PyTorch's ``preserve_format``."""
        return x.copy(order="K")

    def vjp_x(self, f, g, out, x):
        return g


class Contiguous(Primitive):
    """The values in C order: the input itself if it is contiguous, else a copy."""

    kind = Kind.MEMORY
    view = True
    grad_name = "CloneBackward0"
    expression = "a"

    def sharding_rule(self, x):
        """All axes are independent."""
        return along(x.shape, [], linear="jointly", moves=True)

    def infer(self, x):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x):
        """No copy if none is needed."""
        return xp.ascontiguousarray(x).reshape(x.shape)

    def vjp_x(self, f, g, out, x):
        return g


class Alias(Primitive):
    """A view of the whole input, with an autograd node of its own."""

    kind = Kind.MEMORY
    view = True
    expression = "a"
    identity = True
    copying_form = True

    def sharding_rule(self, x):
        """All axes are independent."""
        return along(x.shape, [], linear="jointly", moves=True)

    def infer(self, x):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x):
        """A view of all elements."""
        return x[...]

    def vjp_x(self, f, g, out, x):
        return g


class Ordered(Alias):
    """The identity; the gradient of ``x`` is made contiguous."""

    grad_name = "AliasBackward0"
    copying_form = False

    def vjp_x(self, f, g, out, x):
        return f.contiguous(g)


class Copy(Primitive):
    """``y`` broadcast to the shape and cast to the dtype of ``x``: the op behind ``copy_``, ``fill_`` and
    assignment."""

    kind = Kind.MEMORY
    linear = "jointly"
    inputs = ("x", "y")
    integral = True
    grad_name = "CopyBackwards"
    reuses = (0,)

    def sharding_rule(self, x, y):
        """``y`` is broadcast to ``x``."""
        return pointwise_rule(self, (x, y), {})

    def infer(self, x, y):
        """The aval of ``x``; ``y`` must broadcast to its shape."""
        shape = broadcast_shapes(tuple(x.shape), shape_of(y))
        if shape != tuple(x.shape):
            raise ShapeError(
                f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(shape)}"
            )
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, y, *, out=None):
        """A new array of ``x``'s shape and dtype, or ``out``."""
        if getattr(y, "ndim", 0) > x.ndim:
            self.infer(x, y)  # NumPy would drop leading axes of size 1
        result = xp.empty(x.shape, x.dtype) if out is None else out
        result[...] = y.real if getattr(y, "dtype", x.dtype).kind == "c" and x.dtype.kind not in "bc" else y
        return result

    def vjp_x(self, f, g, out, x, y):
        return f.new_full(g, shape=tuple(x.shape), value=0, dtype=x.dtype)

    def vjp_y(self, f, g, out, x, y):
        return f.cast(f.sum_to(g, shape=shape_of(y)), dtype=y.dtype)


class NewFull(Primitive):
    """An array of one value on the device of ``x``: ``new_full(x, shape=..., value=..., dtype=...)``."""

    kind = Kind.CREATE

    def __call__(
        self, x: Operand, *, shape: tuple[int, ...], value: complex, dtype: np.dtype | dtype | None = None
    ) -> Operand:
        return super().__call__(x, shape=shape, value=value, dtype=getattr(dtype, "numpy", dtype))

    def sharding_rule(self, x, *, shape, value, dtype=None):
        """Split as ``x`` is, if the shape is the same."""
        same = tuple(shape) == tuple(x.shape)
        own = numbered(x.shape, () if same else range(len(x.shape)))
        return ShardingRule((own,), (own if same else (None,) * len(shape),), shape_attr="shape")

    def infer(self, x, *, shape, value, dtype=None):
        """``shape`` in ``dtype``, by default ``x``'s."""
        return Aval(tuple(shape), np.dtype(dtype) if dtype is not None else x.dtype)

    def forward(self, xp, x, *, shape, value, dtype=None):
        """Integer zeros by ``zeros``, for which the allocator may provide zeroed memory."""
        dtype = x.dtype if dtype is None else dtype
        return (
            xp.zeros(shape, dtype) if value.__class__ is int and value == 0 else xp.full(shape, value, dtype)
        )


class ToDevice(Op):
    """The values on another device, copied through the host.

    ``source`` is the input's device, set by the call: the gradient is copied back to it.
    """

    kind = Kind.MEMORY
    crosses = True
    grad_name = "ToCopyBackward0"

    def __call__(self, x: Operand, *, device: Device, source: Device | None = None) -> Operand:
        return super().__call__(x, device=device, source=source or x.device)

    def infer(self, x, *, device, source):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def transfer(self, x: Operand, *, device: Device, source: Device) -> Operand:
        """One copy to the host and one from it; on a single host, one copy."""
        host = backend_for(source).to_host(x)
        target: Backend = backend_for(device)
        result = target.from_host(host, device)
        return result.copy() if result is x else result

    def vjp_x(self, f, g, out, x, *, device, source):
        return f.to_device(g, device=source, source=device)


to_device = ToDevice()


class ZerosLike(Primitive):
    """Zeros of the input's shape and dtype."""

    kind = Kind.CREATE
    ufunc = "zeros_like"

    def sharding_rule(self, x):
        """All axes are independent."""
        return along(x.shape, [])

    def infer(self, x):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)


zeros_like = ZerosLike()
cast, clone, contiguous, copy, new_full = Cast(), Clone(), Contiguous(), Copy(), NewFull()
alias, ordered = Alias(), Ordered()
