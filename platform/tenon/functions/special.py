"""torch.special: elementwise special functions with gradients.

Those that networks use are here. Plugins provide others, such as Bessel functions and orthogonal polynomials,
by the hook ``tenon_special_functions``.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes, functions, ops
from tenon.compat.node_names import titled
from tenon.compat.rerouting import register
from tenon.engine.value import Value
from tenon.errors import DTypeError
from tenon.functions.derived import write_into
from tenon.kernels.promotion import result_type
from tenon.plugins.lazy import lazy_namespace
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.wrong_arguments import only_numbers

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number

#: PyTorch's names that plugins provide.
_PROVIDED = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "erfcx",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "log_ndtr", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
    "spherical_bessel_j0", "zeta",
]  # fmt: skip
__all__ = [
    "digamma", "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln",
    "i0", "i0e", "i1", "i1e", "log1p", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri",
    "polygamma", "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", *_PROVIDED,
]  # fmt: skip

digamma = psi = functions.digamma
erf, erfc, erfinv = functions.erf, functions.erfc, functions.erfinv
exp2, expm1, log1p = functions.exp2, functions.expm1, functions.log1p
expit, gammaln, logit, sinc = functions.sigmoid, functions.lgamma, functions.logit, functions.sinc
polygamma = functions.polygamma
logsumexp, round, xlogy = functions.logsumexp, functions.round, functions.xlogy
i0, multigammaln = functions.i0, functions.mvlgamma
gammainc, gammaincc = functions.igamma, functions.igammac


def _float(name: str, x: Tensor) -> Tensor:
    """Return ``x`` as a tensor of floats, integers in the default dtype; an error for anything else."""
    if not isinstance(x, Value):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    if x.raw.dtype.kind in "biu":
        return x.to(dtypes.get_default_dtype())
    if x.raw.dtype.kind == "c":
        raise DTypeError(f"{name}: complex numbers are not supported, got {x.dtype}")
    return x


def softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """Return ``exp(input)`` divided by its sum along ``dim``; see ``Tensor.softmax``."""
    return input.softmax(dim, dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: DTypeLike | None = None) -> Tensor:
    """Return the logarithm of ``softmax`` along ``dim``; see ``Tensor.log_softmax``."""
    return input.log_softmax(dim, dtype)


def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``exp(-|x|) i0(x)``, elementwise: the scaled Bessel function ``i0``."""
    return write_into(out, ops.i0e(_float("i0e", input)))


def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the modified Bessel function of the first kind of order 1, elementwise."""
    return write_into(out, ops.i1(_float("i1", input)))


def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``exp(-|x|) i1(x)``, elementwise: the scaled Bessel function ``i1``."""
    return write_into(out, ops.i1e(_float("i1e", input)))


@titled("SpecialEntr0")
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the entropy ``-x log(x)``, elementwise: 0 at 0, minus infinity for negative elements."""
    x = _float("entr", input)
    values = ops.neg(ops.mul(x, ops.log(ops.where(x > 0, x, 1.0))))
    edge = ops.where(ops.eq(x, 0), 0.0, ops.where(ops.isnan(x), x, -math.inf))
    return write_into(out, ops.where(x > 0, values, edge))


@titled("Mul1")
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the distribution function of the standard normal distribution at ``input``."""
    return write_into(out, ops.mul(ops.erfc(ops.mul(_float("ndtr", input), -math.sqrt(0.5))), 0.5))


@titled("SpecialNdtri0")
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the quantile function of the standard normal distribution: the inverse of ``ndtr``."""
    x = _float("ndtri", input)
    return write_into(out, ops.mul(ops.erfinv(ops.sub(ops.mul(x, 2.0), 1.0)), math.sqrt(2)))


def _title_of_xlog1py(input: object, other: object, **kwargs: object) -> str:
    both = isinstance(input, Value) and isinstance(other, Value)
    return f"SpecialXlog1Py{0 if both else 2 if isinstance(input, Value) else 1}"


@titled(_title_of_xlog1py)
def xlog1py(input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Return ``input * log1p(other)``, elementwise: 0 where ``input`` is 0 and ``other`` is not NaN."""
    if not isinstance(input, Value) and not isinstance(other, Value):
        raise TypeError("xlog1py(): one of the arguments must be a Tensor")
    only_numbers(input, other)
    kind = result_type(*(v.item() if isinstance(v, np.generic) else v for v in (input, other)))
    kind = kind if kind.numpy.kind in "fcV" else dtypes.get_default_dtype()
    x, y = (v.to(kind) if isinstance(v, Value) else as_tensor(v, dtype=kind) for v in (input, other))
    # Where x is 0, log1p(y) is that of y only for the gradient of x, and only where it is finite.
    is_zero = ops.logical_and(ops.eq(x, 0), ops.logical_not(ops.isnan(y)))
    unbounded = ops.logical_not(ops.logical_and(ops.gt(y, -1.0), ops.isfinite(y)))
    return write_into(out, ops.mul(x, ops.log1p(ops.where(ops.logical_and(is_zero, unbounded), 0.0, y))))


register("torch.special", {name: globals()[name] for name in __all__ if name in globals()})
_offered, __dir__ = lazy_namespace(module_name="tenon.special", kind="special_functions")


def __getattr__(name: str) -> Any:  # of a plugin
    value = _offered(name)
    if isinstance(value, FunctionType):
        value.__module__ = "tenon.special"
        register("torch.special", {name: value})
    return value
