"""Parts of complex numbers, and their conjugates."""

from __future__ import annotations

import numpy as np

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Operand
from tenon.errors import DTypeError
from tenon.kernels.shapes import broadcast_shapes
from tenon.ops.dtype_queries import is_complex, real_dtype
from tenon.ops.elementwise import Unary


class _Part(Primitive):
    """Base of the views of one part of complex numbers."""

    linear = "jointly"
    grad_name = "SelectBackward0"
    kind = Kind.ELEMENTWISE
    view = True
    splits_complex = True

    def infer(self, x):
        """The input's shape, in the dtype of its real part."""
        return Aval(x.shape, real_dtype(x))


class Real(_Part):
    """Real part: a view of a complex input, the input itself if it is real."""

    def forward(self, xp, x):
        """A view."""
        return x.real[...] if x.dtype.kind == "c" else x[...]

    def vjp_x(self, f, g, out, x):
        return f.cast(g, dtype=x.dtype)


class Imag(_Part):
    """Imaginary part of a complex input, a view; zeros of a real one."""

    def forward(self, xp, x):
        """A view."""
        return x.imag[...] if x.dtype.kind == "c" else xp.zeros(x.shape, x.dtype)

    def vjp_x(self, f, g, out, x):
        return f.mul(f.cast(g, dtype=x.dtype), 1j) if is_complex(x) else f.mul(g, 0)


class Rectangular(Primitive):
    """Complex numbers of real parts ``x`` and imaginary parts ``y``."""

    kind = Kind.ELEMENTWISE
    inputs = ("x", "y")
    grad_name = "ComplexBackward0"

    def infer(self, x, y):
        """The broadcast shape, in the complex dtype of both parts."""
        kind = np.result_type(x.dtype, np.complex64)
        return Aval(broadcast_shapes(tuple(x.shape), tuple(y.shape)), kind)

    def forward(self, xp, x, y):
        """Written part by part: ``x + 1j * y`` would make NaN of infinities."""
        result = xp.empty(self.infer(x, y).shape, self.infer(x, y).dtype)
        result.real, result.imag = x, y
        return result

    def vjp_x(self, f, g, out, x, y):
        return f.sum_to(f.real(g), shape=tuple(x.shape))

    def vjp_y(self, f, g, out, x, y):
        return f.sum_to(f.imag(g), shape=tuple(y.shape))


class ViewAsReal(Primitive):
    """Complex numbers as pairs of reals along a new last axis: a view."""

    kind = Kind.MOVE
    view = True
    splits_complex = True
    copying_form = True

    def infer(self, x):
        """The input's shape with a last axis of size 2 added."""
        if x.dtype.kind != "c":
            raise DTypeError(f"view_as_real is only supported for complex tensors, got {x.dtype}")
        return Aval((*x.shape, 2), real_dtype(x))

    def forward(self, xp, x):
        """A view with other strides."""
        kind = self.infer(x).dtype
        if not x.size:
            return x[..., None].view(kind)  # as_strided loses the base of an empty array
        return xp.lib.stride_tricks.as_strided(x.real, (*x.shape, 2), (*x.strides, kind.itemsize))

    def vjp_x(self, f, g, out, x):
        return f.view_as_complex(g)


class ViewAsComplex(Primitive):
    """Pairs of reals along the last axis as complex numbers: a view if each pair is adjacent in memory."""

    kind = Kind.MOVE
    view = True
    splits_complex = True
    copying_form = True

    def infer(self, x):
        """Without the last axis."""
        return Aval(tuple(x.shape[:-1]), np.result_type(x.dtype, np.complex64))

    def forward(self, xp, x):
        """A view of the input, or of a contiguous copy if pairs are not adjacent."""
        size = x.dtype.itemsize
        adjacent = x.strides[-1] == size and all(s % (2 * size) == 0 for s in x.strides[:-1])
        return (x if adjacent else xp.ascontiguousarray(x)).view(self.infer(x).dtype)[..., 0]

    def vjp_x(self, f, g, out, x):
        return f.view_as_real(g)


class Conj(Unary):
    """Complex conjugate; a real input is returned unchanged."""

    linear = "jointly"
    view = True
    expression = "a"
    identity = True
    inplace_form = ""

    def __call__(self, x: Operand) -> Operand:
        return x.conjugate() if isinstance(x, (int, float, complex, np.generic)) else super().__call__(x)

    def infer(self, x):
        """The input's own aval; a number stays a number."""
        return Aval(x.shape, x.dtype) if hasattr(x, "shape") else x

    def forward(self, xp, x, *, out=None):
        """Return a real input unchanged; rules also conjugate numbers."""
        return x.conjugate() if not hasattr(x, "dtype") else xp.conj(x) if x.dtype.kind == "c" else x

    def expression_for(self, args, attrs):
        """None for complex numbers, which cannot be fused."""
        kind = getattr(getattr(args[0], "dtype", None), "kind", "")
        return None if kind == "c" else self.expression

    def vjp_x(self, f, g, out, x):
        return f.conj(g)


real, imag, conj, rectangular = Real(), Imag(), Conj(), Rectangular()
view_as_real, view_as_complex = ViewAsReal(), ViewAsComplex()
