"""Elementwise methods beyond arithmetic: ``float_power``, ``frac``, ``xlogy``, ``erfinv``, angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.dtypes import get_default_dtype
from tenon.engine.aval import refuse_kinds
from tenon.engine.op import table as f
from tenon.engine.operands import flag
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from tenon.kernels.promotion import result_type
from tenon.kernels.shapes import normalize_axes
from tenon.tensors.inplace import inplace
from tenon.tensors.methods.arithmetic import is_complex, need_order
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.in_place import through_method
from tenon.tensors.methods.op_methods import need_tensor
from tenon.tensors.named_results import named_result
from tenon.tensors.wrong_arguments import only_numbers

if TYPE_CHECKING:
    from tenon.tensors.named_results import NamedResult
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


class Numeric(Family):
    """Further elementwise methods: special functions, angles, and ``clamp`` with one bound."""

    __slots__ = ()

    @as_function(first="number", memory="same")
    def float_power(self, exponent: Tensor | Number) -> Tensor:
        """Return ``self ** exponent`` computed in float64, or complex128 if either is complex."""
        parts = (self, exponent)
        wide = np.complex128 if any(is_complex(p) for p in parts) else np.float64
        base, power = (f.cast(p, dtype=np.dtype(wide)) if isinstance(p, Value) else p for p in parts)
        return f.pow(base, power)

    def float_power_(self, exponent: Tensor | Number) -> Tensor:
        """Replace the elements by ``self ** exponent``, and return this tensor.

        DTypeError unless it has the dtype of the result: float64, or complex128 if either is complex.
        """
        wide = np.complex128 if any(is_complex(p) for p in (self, exponent)) else np.float64
        if self.raw.dtype != wide:
            raise DTypeError(
                f"the base given to float_power_ has dtype {self.dtype} but the operation's result requires "
                f"dtype {np.dtype(wide)}"
            )
        return inplace(f.pow, self, exponent)

    def hardshrink(self, lambd: float = 0.5) -> Tensor:
        """Return the elements, with 0 in place of those whose magnitude is at most ``lambd``."""
        kind = self.raw.dtype  # to which the bound is rounded, as in PyTorch
        return f.hardshrink(self, bound=float(kind.type(lambd) if kind.kind in "fV" else lambd))

    @as_function(out="kept", memory="same")
    def clamp_min(self, min: Tensor | Number) -> Tensor:
        """Return the larger of each element and ``min``; UnsupportedError for complex numbers."""
        only_numbers(min)
        need_order("clamp_min", self, min)
        return f.clamp(self, min, None)

    @as_function(out="kept", memory="same")
    def clamp_max(self, max: Tensor | Number) -> Tensor:
        """Return the smaller of each element and ``max``; UnsupportedError for complex numbers."""
        only_numbers(max)
        need_order("clamp_max", self, max)
        return f.clamp(self, None, max)

    @as_function(out="kept", memory="same")
    def frac(self) -> Tensor:
        """Return the fractional part ``x - trunc(x)`` of each element, which has the element's sign."""
        return f.sub(self, f.trunc(self))

    def heaviside(self, values: Tensor) -> Tensor:
        """Return the Heaviside step function: 0 for negative elements, 1 for positive ones, and the element
        of ``values`` for zeros. DTypeError for complex tensors and if the dtypes differ."""
        kinds = (self.raw.dtype, need_tensor("heaviside", "values", values).raw.dtype)
        if any(kind.kind == "c" for kind in kinds):
            raise DTypeError("heaviside is not yet implemented for complex tensors. Use its .real part.")
        if kinds[0] != kinds[1]:
            raise DTypeError(
                "heaviside is not yet implemented for tensors with different dtypes. Cast one: "
                f"{self.dtype} and {values.dtype}"
            )
        return f.heaviside(self, values)

    def polygamma(self, n: int) -> Tensor:
        """Return the derivative of order ``n`` of ``digamma``; ArgumentError if ``n`` is negative."""
        if index(n) < 0:
            raise ArgumentError(f"polygamma(n, x) does not support negative n. It was {n}.")
        return f.digamma(self) if n == 0 else f.polygamma(self, order=n)

    @as_function(memory="same")
    def mvlgamma(self, p: int) -> Tensor:
        """Return the logarithm of the multivariate gamma function of dimension ``p``, elementwise.

        ArgumentError if ``p`` is less than 1.
        """
        if p < 1:
            raise ArgumentError(f"mvlgamma: p has to be greater than or equal to 1, got {p}")
        if p > 1000:  # in PyTorch, a dimension beyond all memory fails to be allocated
            self.new_empty((*self.raw.shape, p))
        result = f.lgamma(self)
        for j in range(1, p):
            result = f.add(result, f.lgamma(f.sub(self, j / 2)))
        return f.add(result, p * (p - 1) / 4 * math.log(math.pi))

    def i0(self) -> Tensor:
        """Return the modified Bessel function of the first kind of order 0; UnsupportedError for complex
        tensors."""
        if self.raw.dtype.kind == "c":
            raise UnsupportedError(f"i0: complex numbers are not supported, got {self.dtype}")
        return f.i0(self)

    @as_function()
    def frexp(self) -> NamedResult:
        """Return ``(mantissa, exponent)`` with ``self = mantissa * 2 ** exponent``, elementwise.

        Mantissas have a magnitude in [0.5, 1), exponents are int32. DTypeError unless the dtype is floating
        point.
        """
        if self.raw.dtype.kind not in "fV":
            raise DTypeError("torch.frexp() only supports floating-point dtypes")
        mantissa, exponent = f.frexp(self)
        return named_result("frexp", mantissa=mantissa, exponent=exponent)

    @as_function()
    def hash_tensor(self, dim: int | Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Tensor:
        """Return a uint64 hash of the elements along ``dim``, an axis or several; of all by default.

        It is the exclusive or of the bits of the elements as 64-bit numbers. ArgumentError unless ``mode`` is
        0, ShapeError if an axis is empty.
        """
        if mode != 0:
            raise ArgumentError(f"hash_tensor: Unknown hash mode, got mode={mode}; 0 is the only one.")
        from tenon.tensors.creation.create import from_backend_array

        refuse_kinds("hash_tensor", "c", self.raw)
        keepdim = flag("hash_tensor", "keepdim", keepdim)
        host = self._backend.to_host(self.raw)
        axes = normalize_axes(dim, host.ndim)
        if any(host.shape[a] == 0 for a in axes):
            raise ShapeError(f"hash_tensor: {dim} of shape {list(host.shape)} has no elements to hash")
        kind = {"f": np.float64, "V": np.float64, "u": np.uint64}.get(host.dtype.kind, np.int64)
        bits = np.ascontiguousarray(host.astype(kind)).view(np.uint64).reshape(host.shape)
        exclusive: Any = np.bitwise_xor.reduce  # NumPy's stubs do not allow a tuple of axes
        return from_backend_array(self, exclusive(bits, axis=axes, keepdims=keepdim))

    @as_function(memory="same")
    def positive(self) -> Tensor:
        """Return the tensor itself; DTypeError for bool tensors, as in PyTorch."""
        if self.raw.dtype.kind == "b":
            raise DTypeError("The `+` operator, on a bool tensor is not supported.")
        return self

    @as_function(memory="same")
    def ldexp(self, other: Tensor) -> Tensor:
        """Return ``self * 2 ** other``, elementwise and broadcast."""
        if need_tensor("ldexp", "other", other).raw.dtype.kind in "iu" and self.raw.dtype.kind in "fcV":
            other = f.cast(other, dtype=self.raw.dtype)
        return f.mul(self, f.pow(2.0, other))

    @as_function(memory="same")
    def logaddexp2(self, other: Tensor) -> Tensor:
        """Return ``log2(2 ** self + 2 ** other)``, broadcast, computed so that it does not overflow."""
        scale = math.log(2)
        other = need_tensor("logaddexp2", "other", other)
        kind = result_type(self, other).numpy  # integers, which the factor would convert to float32
        wide = np.dtype(np.float32) if kind.itemsize == 2 and kind.kind in "fV" else kind
        x, y = (v if v.raw.dtype == wide else f.cast(v, dtype=wide) for v in (self, other))
        result = f.div(f.logaddexp(f.mul(x, scale), f.mul(y, scale)), scale)
        return result if wide is kind else f.cast(result, dtype=kind)

    @as_function(memory="same")
    def deg2rad(self) -> Tensor:
        """Return the elements, angles in degrees, converted to radians."""
        return f.mul(self, math.pi / 180)

    @as_function(memory="same")
    def rad2deg(self) -> Tensor:
        """Return the elements, angles in radians, converted to degrees."""
        return f.mul(self, 180 / math.pi)

    @as_function(memory="same")
    def logit(self, eps: float | None = None) -> Tensor:
        """Return ``log(x / (1 - x))``, the inverse of ``sigmoid``; ``eps`` limits ``x`` to the range from
        ``eps`` to ``1 - eps`` first."""
        x = self if self.raw.dtype.kind in "fcV" else self.to(get_default_dtype())
        x = x if eps is None else f.clamp(x, eps, 1 - eps)
        return f.log(f.div(x, f.sub(1, x)))

    def conj(self) -> Tensor:
        """Return the complex conjugates; a real tensor is returned itself."""
        return f.conj(self) if self.raw.dtype.kind == "c" else self

    @as_function(out="kept", memory="same")
    def conj_physical(self) -> Tensor:
        """Return the complex conjugates in new memory, as ``conj`` does here; a real tensor itself."""
        return self.conj()

    @as_function(memory="same")
    def angle(self) -> Tensor:
        """Return the angles of complex numbers in radians; of real numbers, pi if negative, else 0.

        NaN stays NaN.
        """
        if self.raw.dtype.kind == "c":
            return f.atan2(f.imag(self), f.real(self))
        x = self if self.raw.dtype.kind in "fV" else self.to(get_default_dtype())
        return f.where(f.isnan(x), math.nan, f.mul(f.relu(f.neg(f.sign(x))), math.pi))

    @as_function(out="boolean", memory="same")
    def isposinf(self) -> Tensor:
        """Return a bool tensor that is true where an element is positive infinity."""
        return f.eq(self, float("inf"))

    @as_function(out="boolean", memory="same")
    def isneginf(self) -> Tensor:
        """Return a bool tensor that is true where an element is negative infinity."""
        return f.eq(self, float("-inf"))

    @as_function(memory="same")
    def isreal(self) -> Tensor:
        """Return a bool tensor that is true where an element is real or its imaginary part is 0."""
        if self.raw.dtype.kind == "c":
            return f.eq(f.imag(self), 0)
        return f.new_full(self.detach(), shape=tuple(self.raw.shape), value=True, dtype=np.dtype(np.bool_))

    conj_physical_ = as_function(out="none")(through_method("conj_physical"))
    mvlgamma_ = through_method("mvlgamma")
    polygamma_ = through_method("polygamma")
    clamp_min_ = as_function(out="none")(through_method("clamp_min"))
    clamp_max_ = as_function(out="none")(through_method("clamp_max"))
    frac_ = as_function(out="none")(through_method("frac"))
    deg2rad_ = as_function(out="none")(through_method("deg2rad"))
    rad2deg_ = as_function(out="none")(through_method("rad2deg"))
    logit_ = as_function(out="none")(through_method("logit"))
    ldexp_ = as_function(out="none")(through_method("ldexp"))
