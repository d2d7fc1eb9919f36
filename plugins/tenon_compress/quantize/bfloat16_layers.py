"""Layers with bfloat16 weights, which multiply in bfloat16, with sums in float32, where that is faster.

``Backend.prefers_bfloat16`` determines that. Elsewhere weights are only stored as bfloat16 and computed as
floats, and activations are not rounded. The result has the dtype of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tenon import Tensor, bfloat16, ops, zeros
from tenon.extend import Op
from tenon.nn.functional import linear
from tenon.nn.layers.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon_compress.quantize.layers import QuantizedLayer


class BFloat16Layer(QuantizedLayer):
    """Base class of layers with bfloat16 ``weight`` and ``bias`` that compute ``op``."""

    op: ClassVar[Op] = ops.linear
    weight: Tensor
    bias: Tensor | None

    @property
    def computes_in_bfloat16(self) -> bool:
        """Whether the layer multiplies in bfloat16 on its device; else it is no faster than before."""
        return bool(self.stored("weight")._backend.prefers_bfloat16(self.op))

    def _set_weights(self, weight: Tensor, bias: Tensor | None) -> None:
        self.set_buffers(weight=weight.to(bfloat16), bias=None if bias is None else bias.to(bfloat16))

    def _float_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None, *args: object) -> Tensor:
        """Compute the float layer's result for ``input`` and the other arguments of the call."""
        raise NotImplementedError

    def _forward(self, input: Tensor, *args: object) -> Tensor:
        if not (input.is_floating_point() and self.computes_in_bfloat16):
            return self._float_forward(input, self.weight, self.bias, *args)
        bias = self._buffers["bias"]
        return self._float_forward(input.to(bfloat16), self.stored("weight"), bias, *args).to(input.dtype)

    def _freeze(self) -> None:
        """Do nothing: backends do not pack these weights, and float kernels would copy read-only memory."""


class BFloat16Linear(BFloat16Layer):
    """``Linear`` with bfloat16 weights."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._set_weights(zeros(out_features, in_features), zeros(out_features) if bias else None)

    @classmethod
    def of(cls, layer: Module) -> Self:
        """Return the quantized layer of an ``nn.Linear``."""
        quantized = cls(layer.in_features, layer.out_features, layer.bias is not None)
        quantized._set_weights(layer.weight, layer.bias)
        return quantized.train(layer.training)

    def numbers(self) -> dict[str, object]:
        """The sizes, taken from the weight, of which pruning may have removed some; and bias."""
        rows, columns = self.stored("weight").shape
        return {"in_features": columns, "out_features": rows, "bias": self.bias is not None}

    def _float_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None, *args: object) -> Tensor:
        return linear(input, weight, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``input[..., in_features]`` to ``[..., out_features]``."""
        return self._forward(input)


class _Conv(BFloat16Layer):
    """Base class of convolutions, before the float class, whose constructor arguments are ``named``."""

    op: ClassVar[Op] = ops.conv
    named: ClassVar[tuple[str, ...]] = (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
        "padding_mode",
    )  # fmt: skip

    def __init__(self, *sizes: Any, **options: Any) -> None:  # the float class's arguments
        super().__init__(*sizes, **options)
        weight, bias = self.weight, self.bias
        del self._parameters["weight"], self._parameters["bias"]
        self._set_weights(weight, bias)

    def reset_parameters(self) -> None:
        """Do nothing: the weights are loaded, not initialized."""

    @classmethod
    def of(cls, layer: Module) -> Self:
        """Return the quantized layer of a float convolution."""
        numbers = {name: getattr(layer, name) for name in cls.named}
        quantized = cls(**numbers, bias=layer.bias is not None)
        quantized._set_weights(layer.weight, layer.bias)
        return quantized.train(layer.training)

    def numbers(self) -> dict[str, object]:
        """The sizes, the geometry and bias."""
        return {**{name: getattr(self, name) for name in self.named}, "bias": self.bias is not None}

    def _float_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None, *args: object) -> Tensor:
        return self._conv_forward(input, weight, bias, *args)

    def forward(self, input: Tensor) -> Tensor:
        """Compute as the float layer does."""
        return self._forward(input)


class _Transposed(_Conv):
    op: ClassVar[Op] = ops.conv_input_grad
    named: ClassVar[tuple[str, ...]] = (*_Conv.named, "output_padding")

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Compute as the float layer does."""
        return self._forward(input, output_size)


class BFloat16Conv1d(_Conv, Conv1d):
    """``Conv1d`` with bfloat16 weights."""


class BFloat16Conv2d(_Conv, Conv2d):
    """``Conv2d`` with bfloat16 weights."""


class BFloat16Conv3d(_Conv, Conv3d):
    """``Conv3d`` with bfloat16 weights."""


class BFloat16ConvTranspose1d(_Transposed, ConvTranspose1d):
    """``ConvTranspose1d`` with bfloat16 weights."""


class BFloat16ConvTranspose2d(_Transposed, ConvTranspose2d):
    """``ConvTranspose2d`` with bfloat16 weights."""


class BFloat16ConvTranspose3d(_Transposed, ConvTranspose3d):
    """``ConvTranspose3d`` with bfloat16 weights."""


#: The quantized class of each float class.
BFLOAT16: dict[type[Module], type[BFloat16Linear] | type[_Conv]] = {
    Linear: BFloat16Linear,
    Conv1d: BFloat16Conv1d,
    Conv2d: BFloat16Conv2d,
    Conv3d: BFloat16Conv3d,
    ConvTranspose1d: BFloat16ConvTranspose1d,
    ConvTranspose2d: BFloat16ConvTranspose2d,
    ConvTranspose3d: BFloat16ConvTranspose3d,
}
