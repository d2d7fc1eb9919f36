"""Activation functions: ``F.relu``, ``F.gelu``, ``F.softmax`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.errors import ArgumentError, DTypeError, GradError, ModuleValueError, ShapeError
from tenon.kernels.promotion import need_64_bits, need_fit
from tenon.nn.functional.arguments import axis_of, in_dtype, refuse_integers
from tenon.ops.dtype_queries import is_complex
from tenon.tensors.creation.factories import written
from tenon.tensors.inplace import inplace as write_inplace
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.dtypes import dtype
    from tenon.engine.op import Op
    from tenon.engine.types import Array
    from tenon.tensors.tensor import Tensor


def _title_in_place(op: Op, x: Tensor, **attrs: float) -> str:
    """Return PyTorch's name of the in-place form's gradient node; for some ops it is that of a second
    overload."""
    return (
        op.torch_name((), attrs).replace("Backward0", "1") if op.inplace_overload and x._view is None else ""
    )


@titled(_title_in_place)
def _write(op: Op, x: Tensor, **attrs: float) -> Tensor:
    """Write ``op(x)`` into ``x``."""
    return write_inplace(op, x, **attrs)


def _apply(op: Op, x: Tensor, inplace: bool, **attrs: float) -> Tensor:
    """Return ``op(x)``, written into ``x`` if ``inplace``."""
    return _write(op, x, **attrs) if inplace else op(x, **attrs)


def _refuse_backward(result: Tensor, slope: float, name: str) -> Tensor:
    """Make backward raise GradError for a negative slope, with which the result's sign does not tell the
    input's."""
    if slope < 0 and result.requires_grad:

        def refuse(gradient: Tensor) -> NoReturn:
            raise GradError(
                f"In-place {name} backward calculation is triggered with a negative slope which is not"
                " supported. This is caused by calling in-place forward function with a negative slope"
                f" ({slope}), please call out-of-place version instead."
            )

        result.register_hook(refuse)
    return result


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(input, 0)``."""
    if input.raw.dtype.kind == "b":
        raise DTypeError("Boolean inputs not supported for relu. Convert with .float().")
    return write_inplace(f.relu, input) if inplace else f.relu(input)


def relu_(input: Tensor) -> Tensor:
    """In-place ``relu``."""
    return relu(input, True)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``input`` where positive, else ``negative_slope * input``."""
    result = _apply(f.leaky_relu, input, inplace, slope=float(negative_slope))
    return _refuse_backward(result, negative_slope, "leakyReLu") if inplace else result


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place ``leaky_relu``."""
    return leaky_relu(input, negative_slope, True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` where positive, else ``alpha * (exp(input) - 1)``."""
    result = _apply(f.elu, input, inplace, alpha=float(alpha))
    return _refuse_backward(result, alpha, "elu") if inplace else result


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place ``elu``."""
    return elu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Self-normalising ELU."""
    return _apply(f.elu, input, inplace, alpha=1.6732632423543772, scale=1.0507009873554805)


def selu_(input: Tensor) -> Tensor:
    """In-place ``selu``."""
    return selu(input, True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``max(0, input) + min(0, alpha * (exp(input / alpha) - 1))``."""
    if alpha == 0:
        raise ModuleValueError("ZeroDivisionError: alpha cannot be 0 for CELU")
    result = _apply(f.elu, input, inplace, alpha=float(alpha), rate=1.0 / float(alpha))
    return _refuse_backward(result, alpha, "elu") if inplace else result


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place ``celu``."""
    return celu(input, alpha, True)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``input`` times the normal distribution function of ``input``; ``approximate`` is "none" or "tanh"."""
    if approximate not in ("none", "tanh"):
        raise ModuleValueError(f"approximate argument must be either none or tanh. (got {approximate!r})")
    return f.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * sigmoid(input)``."""
    if is_complex(input) and not inplace:
        return input * f.sigmoid(input)
    return _apply(f.silu, input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * tanh(softplus(input))``."""
    return _apply(f.mish, input, inplace)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20, *, out: Tensor | None = None) -> Tensor:
    """``log(1 + exp(beta * input)) / beta``; the identity above ``threshold``."""
    return written(out, f.softplus(input, beta=float(beta), threshold=float(threshold)))


def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(sigmoid(input))``."""
    return written(out, f.logsigmoid(input))


def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-input))``."""
    return f.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return input.tanh()


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """``input`` limited to ``[min_val, max_val]``."""
    if min_val > max_val:
        raise ModuleValueError(f"min_val cannot be greater than max_val: {min_val} > {max_val}")
    low, high = float(min_val), float(max_val)
    if input.raw.dtype.kind in "iub":
        low, high = _integer_limits(input.raw, low, high)
    return _apply(f.hardtanh, input, inplace, low=low, high=high)


def _integer_limits(x: Array, low: float, high: float) -> tuple[int, int]:
    """Return the limits rounded towards zero.

    Raises DTypeError if ``x`` is boolean, ArgumentError if its dtype cannot hold the limits.
    """
    if x.dtype.kind == "b":
        raise DTypeError("Bool inputs not supported for hardtanh. Convert with input.int().")
    if x.dtype.kind == "u" and low < 0:
        raise ArgumentError(f"cannot do hardtanh on an unsigned type with negative limits: {low} to {high}")
    bits = 8 * x.dtype.itemsize
    least, most = (0, 2**bits - 1) if x.dtype.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not least <= low <= high <= most:
        raise ArgumentError(f"hardtanh: {x.dtype} cannot hold the limits {low} and {high}.")
    return int(low), int(high)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place ``hardtanh``."""
    return hardtanh(input, min_val, max_val, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(input, 0), 6)``."""
    return hardtanh(input, 0.0, 6.0, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``clamp(input / 6 + 1 / 2, 0, 1)``."""
    return _apply(f.hardsigmoid, input, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``input * hardsigmoid(input)``."""
    return _apply(f.hardswish, input, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``input`` where it is above ``threshold``, else ``value``."""
    for number in (threshold, value):
        need_64_bits(number)
    attrs = {"threshold": float(threshold), "value": float(value)}
    if input.raw.dtype.kind in "iu":
        need_fit(threshold, input.raw.dtype)
        need_fit(value, input.raw.dtype)
        attrs["value"] = int(value)
    if inplace and 0 in input.stride():  # idempotent, so that an expanded tensor is allowed, as in PyTorch
        unexpanded = (slice(1) if step == 0 else slice(None) for step in input.stride())
        _write(f.threshold, input[tuple(unexpanded)], **attrs)
        return input
    return _apply(f.threshold, input, inplace, **attrs)


def threshold_(input: Tensor, threshold_: float, value: float) -> Tensor:
    """In-place ``threshold``."""
    return threshold(input, threshold_, value, True)


def softsign(input: Tensor) -> Tensor:
    """``input / (1 + |input|)``."""
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """``input - tanh(input)``."""
    return input - input.tanh()


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """``input`` moved towards 0 by ``lambd``."""
    if not lambd >= 0:
        raise ModuleValueError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return written(out, f.softshrink(input, bound=float(lambd)))


def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """``input``, but 0 where ``|input| <= lambd``."""
    return written(out, input.hardshrink(lambd))


@titled("Glu0")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of ``dim`` times the sigmoid of the second."""
    if input.raw.ndim == 0:
        raise ShapeError("glu does not support 0-dimensional tensors")
    size = input.raw.shape[dim]
    if size % 2:
        raise ShapeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    first, second = input.chunk(2, dim)
    return first * second.sigmoid()


@titled("PreluKernel0")
@runs_in("lower")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``input`` where positive, else ``weight * input``, with one weight or one per channel (axis 1)."""
    if weight.raw.dtype.kind in "biu":
        refuse_integers(input, "prelu")
    count = weight.raw.size
    if weight.raw.ndim > 1:
        raise ShapeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.raw.ndim}"
        )
    if count != 1:
        channels = input.raw.shape[1] if input.raw.ndim > 1 else 1
        if channels != count:
            raise ShapeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and"
                f" channel size = {channels}."
            )
        weight = weight.reshape((count, *(1,) * (input.raw.ndim - 2)))
    elif not input.raw.ndim:
        weight = weight.reshape(())
    return f.where(f.gt(input, 0), input, f.mul(weight, input))


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    """``exp(input) / sum(exp(input))`` along ``dim``."""
    x = in_dtype(input, dtype)
    return f.softmax(x, axis=axis_of(x, dim, "softmax"))


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    """``softmax(-input)``."""
    return f.softmax(in_dtype(-input, dtype), axis=axis_of(input, dim, "softmin"))


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    """Logarithm of ``softmax``, computed stably."""
    x = in_dtype(input, dtype)
    return f.log_softmax(x, axis=axis_of(x, dim, "log_softmax"))


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution.

    ``hard`` returns it as one-hot vectors, with the gradient of the soft sample.

    ``eps`` has no effect, as in PyTorch.
    """
    from tenon.tensors.creation.factories import empty_like, zeros_like
    from tenon.tensors.memory_formats import contiguous_format

    # Drawn in row order, independent of strides: the same numbers for the same seed.
    gumbels = -empty_like(logits, memory_format=contiguous_format).exponential_().log()
    soft = softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    return zeros_like(logits).scatter_(dim, index, 1.0) - soft.detach() + soft
