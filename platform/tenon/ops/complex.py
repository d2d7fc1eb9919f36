"""Parts of complex numbers."""

from __future__ import annotations

from tenon.core.aval import Aval
from tenon.core.op import Kind, Primitive
from tenon.ops.kinds import is_complex


def _real(x: Aval) -> Aval:
    return Aval(x.shape, x.dtype.type(0).real.dtype if x.dtype.kind == "c" else x.dtype)


class Real(Primitive):
    """Real part: a view of a complex input, the input itself if it is real."""

    kind = Kind.ELEMENTWISE
    view = True

    def infer(self, x):
        """Half the item size of a complex input."""
        return _real(x)

    def forward(self, xp, x):
        """A view."""
        return x.real[...] if x.dtype.kind == "c" else x[...]

    def vjp_x(self, f, g, out, x):
        return f.cast(g, dtype=x.dtype)


class Imag(Primitive):
    """Imaginary part of a complex input, a view; zeros of a real one."""

    kind = Kind.ELEMENTWISE
    view = True

    def infer(self, x):
        """Half the item size of a complex input."""
        return _real(x)

    def forward(self, xp, x):
        """A view."""
        return x.imag[...] if x.dtype.kind == "c" else xp.zeros(x.shape, x.dtype)

    def vjp_x(self, f, g, out, x):
        return f.mul(f.cast(g, dtype=x.dtype), 1j) if is_complex(x) else f.mul(g, 0)


real, imag = Real(), Imag()
