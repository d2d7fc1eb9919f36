"""Initialisation of parameters: ``torch.nn.init``.

Every function fills its tensor in place, without recording gradients, and returns it. Random numbers come
from the default generator or from ``generator=``, in PyTorch's order, so that a seed yields PyTorch's
weights. Gain and fan are those of ``calculate_gain`` and of the tensor's shape: axis 0 is fan out, axis 1 fan
in, further axes are the receptive field.

Next: the layers call these in ``reset_parameters``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar, get_args

from tenon import ops
from tenon.compat.rerouting import register
from tenon.errors import ModuleValueError
from tenon.random import Generator
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation import create, factories, random_factories
from tenon.tensors.tensor import Tensor

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")

Nonlinearity = Literal[
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "sigmoid",
    "tanh",
    "relu",
    "leaky_relu",
    "selu",
]
FanMode = Literal["fan_in", "fan_out"]

#: Gains other than 1; that of "leaky_relu" depends on its slope.
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}


def calculate_gain(nonlinearity: Nonlinearity, param: int | float | None = None) -> float:
    """Return the recommended weight gain for ``nonlinearity``; ``param`` is the slope of a leaky ReLU.

    >>> round(calculate_gain("leaky_relu", 0.2), 4)
    1.3868
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ModuleValueError(f"negative_slope {param} not a valid number. Pass an int or a float.")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in get_args(Nonlinearity):
        raise ModuleValueError(
            f"Unsupported nonlinearity {nonlinearity}. Use one of {', '.join(get_args(Nonlinearity))}."
        )
    return _GAINS.get(nonlinearity, 1)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with samples of the uniform distribution U[a, b)."""
    with no_grad():
        tensor.uniform_(a, b, generator=generator)
    return tensor


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with samples of the normal distribution N(mean, std^2)."""
    with no_grad():
        tensor.normal_(mean, std, generator=generator)
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with ``val``."""
    with no_grad():
        tensor.fill_(val)
    return tensor


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    with no_grad():
        tensor.zero_()
    return tensor


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with samples of the normal distribution truncated to [a, b] (by rejection)."""
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )
    with no_grad():
        if _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std) > 0.3:
            _redraw_outside(tensor, mean, std, a, b, generator)
        else:
            _reject_uniform(tensor, mean, std, a, b, generator)
    return tensor


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def _redraw_outside(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None
) -> None:
    # The bounds rounded to the dtype: a value that rounds to a bound is inside.
    low, high = (create.tensor(bound, dtype=tensor.dtype).item() for bound in (a, b))
    tensor.normal_(mean, std, generator=generator)
    while bool((outside := (tensor < low) | (tensor > high)).any()):
        fresh = factories.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(ops.where(outside, fresh, tensor))


def _reject_uniform(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None
) -> None:
    """Sample by rejection from U[a, b], for intervals that contain little of the normal's mass."""
    mode = max(a, min(mean, b))
    log_peak = -0.5 * ((mode - mean) / std) ** 2
    candidates = factories.empty_like(tensor)
    pending = None
    while pending is None or bool(pending.any()):
        candidates.uniform_(a, b, generator=generator)
        tensor.copy_(candidates if pending is None else ops.where(pending, candidates, tensor))
        density = candidates.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak)
        refused = factories.empty_like(tensor).uniform_(generator=generator).log_().gt(density)
        pending = refused if pending is None else pending & refused


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity."""
    _require_matrix(tensor)
    with no_grad():
        tensor.zero_().diagonal().fill_(1)
    return tensor


def _require_matrix(tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise ModuleValueError(
            f"Only tensors with 2 dimensions are supported, got shape {tuple(tensor.shape)}. Pass a matrix."
        )


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution weight of 3, 4 or 5 axes so that each group of channels passes through unchanged."""
    if tensor.ndim not in (3, 4, 5):
        raise ModuleValueError(
            f"Only tensors with 3, 4, or 5 dimensions are supported, got shape {tuple(tensor.shape)}. "
            "Pass the weight of a convolution."
        )
    out_channels, in_channels, *window = tensor.shape
    if out_channels % groups != 0:
        raise ModuleValueError(f"dim 0 must be divisible by groups, got {out_channels} and groups={groups}.")
    if tensor.is_meta:
        return tensor
    per_group = out_channels // groups
    passed = range(min(per_group, in_channels))
    rows = [group * per_group + channel for group in range(groups) for channel in passed]
    with no_grad():
        tensor.zero_()
        if rows:
            tensor[(rows, [*passed] * groups, *(size // 2 for size in window))] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ModuleValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got shape "
            f"{tuple(tensor.shape)}. Initialise vectors with zeros_, constant_ or uniform_."
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: FanMode) -> int:
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        raise ModuleValueError(f"Mode {mode.lower()} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill from U(-x, x), x = gain sqrt(6 / (fan_in + fan_out)): Glorot and Bengio, 2010."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill from N(0, s**2), s = gain sqrt(2 / (fan_in + fan_out)): Glorot and Bengio, 2010."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: FanMode, nonlinearity: Nonlinearity) -> float | None:
    """Return gain / sqrt(fan); None, with a warning, for a tensor without elements."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: FanMode = "fan_in", nonlinearity: Nonlinearity = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill from U(-x, x), x = gain sqrt(3 / fan): He et al., 2015. ``a`` is the slope of a leaky ReLU."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: FanMode = "fan_in", nonlinearity: Nonlinearity = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill from N(0, s**2), s = gain / sqrt(fan): He et al., 2015. ``a`` is the slope of a leaky ReLU."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a (semi) orthogonal matrix times ``gain``: Saxe et al., 2013. Axes from 1 on count as one."""
    if tensor.ndim < 2:
        raise ModuleValueError(
            f"Only tensors with 2 or more dimensions are supported, got shape {tuple(tensor.shape)}. Pass a "
            "matrix."
        )
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with no_grad():
        drawn = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        q, r = ops.qr(drawn.t() if rows < columns else drawn)
        # The signs make Q uniform over the orthogonal matrices (Mezzadri, 2007).
        q = q * r.diagonal().sign()
        tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape))
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal samples, a fraction ``sparsity`` of each column with zeros: Martens, 2010.

    The positions of zeros come from ``generator`` too; PyTorch always draws them from its default generator.
    """
    _require_matrix(tensor)
    if tensor.is_meta:
        return tensor
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[random_factories.randperm(rows, generator=generator)[:zeros], column] = 0
    return tensor


def _deprecated(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the deprecated alias of ``function`` without the underscore: it warns and calls it."""
    new = function.__name__
    old = new[:-1]

    def alias(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        warnings.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2
        )
        return function(*args, **kwargs)

    alias.__name__ = alias.__qualname__ = old
    alias.__doc__ = f"Deprecated name of ``{new}``."
    return alias


# Private names that third-party initialisers import from PyTorch.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_

uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)


register("torch.nn.init", {f.__name__: f for f in (uniform_, normal_, constant_, kaiming_uniform_)})
