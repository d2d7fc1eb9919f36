"""Elementwise activation layers; those along an axis are in ``softmax.py``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from tenon.errors import OptionError, TenonWarning
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.factories import empty

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Inplace(Module):
    """Base class of activations that can be computed in place."""

    __constants__: tuple[str, ...] = ("inplace",)
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """``inplace=True``, or nothing by default."""
        return "inplace=True" if self.inplace else ""

    def _suffix(self) -> str:
        """Return the end of ``extra_repr``."""
        return ", inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """``max(input, 0)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.relu``."""
        return F.relu(input, self.inplace)


class SiLU(_Inplace):
    """``input * sigmoid(input)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.silu``."""
        return F.silu(input, self.inplace)


class Mish(_Inplace):
    """``input * tanh(softplus(input))``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.mish``."""
        return F.mish(input, self.inplace)


class SELU(_Inplace):
    """Self-normalising ELU."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.selu``."""
        return F.selu(input, self.inplace)


class Hardswish(_Inplace):
    """``input * hardsigmoid(input)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.hardswish``."""
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Hardsigmoid(Hardswish):
    """``clamp(input / 6 + 1 / 2, 0, 1)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.hardsigmoid``."""
        return F.hardsigmoid(input, self.inplace)


class LeakyReLU(_Inplace):
    """``input`` where positive, else ``negative_slope * input``."""

    __constants__ = ("inplace", "negative_slope")

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """``F.leaky_relu``."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}{self._suffix()}"


class ELU(_Inplace):
    """``input`` where positive, else ``alpha * (exp(input) - 1)``."""

    __constants__ = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """``F.elu``."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """``alpha``."""
        return f"alpha={self.alpha}{self._suffix()}"


class CELU(ELU):
    """``max(0, input) + min(0, alpha * (exp(input / alpha) - 1))``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.celu``."""
        return F.celu(input, self.alpha, self.inplace)


class Hardtanh(_Inplace):
    """``input`` limited to ``[min_val, max_val]``."""

    __constants__ = ("inplace", "max_val", "min_val")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(inplace)
        for old, new, value in (("min_value", "min_val", min_value), ("max_value", "max_val", max_value)):
            if value is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`",
                    TenonWarning,
                    stacklevel=2,
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        if not self.max_val > self.min_val:
            raise OptionError(f"max_val must be larger than min_val: {self.max_val} and {self.min_val}")

    def forward(self, input: Tensor) -> Tensor:
        """``F.hardtanh``."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The limits."""
        return f"min_val={self.min_val}, max_val={self.max_val}{self._suffix()}"


class ReLU6(Hardtanh):
    """``min(max(input, 0), 6)``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """``inplace=True``, or nothing by default."""
        return "inplace=True" if self.inplace else ""


class Threshold(_Inplace):
    """``input`` where it is above ``threshold``, else ``value``."""

    __constants__ = ("inplace", "threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """``F.threshold``."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """Threshold and value."""
        return f"threshold={self.threshold}, value={self.value}{self._suffix()}"


class _Plain(Module):
    """Base class of activations without settings; arguments are ignored, as in PyTorch."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()


class Sigmoid(_Plain):
    """``1 / (1 + exp(-input))``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.sigmoid``."""
        return F.sigmoid(input)


class Tanh(_Plain):
    """Hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.tanh``."""
        return F.tanh(input)


class LogSigmoid(_Plain):
    """``log(sigmoid(input))``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.logsigmoid``."""
        return F.logsigmoid(input)


class Softsign(_Plain):
    """``input / (1 + |input|)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.softsign``."""
        return F.softsign(input)


class Tanhshrink(_Plain):
    """``input - tanh(input)``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.tanhshrink``."""
        return F.tanhshrink(input)


class GELU(Module):
    """``input`` times the cumulative normal distribution function of ``input``."""

    __constants__ = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """``F.gelu``."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """The approximation."""
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """The first half of axis ``dim`` times the sigmoid of the second half."""

    __constants__ = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """``F.glu``."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class Softplus(Module):
    """``log(1 + exp(beta * input)) / beta``; the identity above ``threshold``."""

    __constants__ = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """``F.softplus``."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Beta and threshold."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """``input`` moved towards 0 by ``lambd``; 0 where ``|input| <= lambd``."""

    __constants__ = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """``F.softshrink``."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """``lambd``."""
        return str(self.lambd)


class Hardshrink(Softshrink):
    """``input``, but 0 where ``|input| <= lambd``."""

    def forward(self, input: Tensor) -> Tensor:
        """``F.hardshrink``."""
        return F.hardshrink(input, self.lambd)


class PReLU(Module):
    """``input`` where positive, else a learned ``weight * input``: one weight, or one per channel."""

    __constants__ = ("num_parameters",)
    weight: Tensor

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All weights ``init``."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """``F.prelu``."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of weights."""
        return f"num_parameters={self.num_parameters}"
