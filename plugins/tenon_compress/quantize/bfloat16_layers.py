"""Layers with bfloat16 weights. They multiply in bfloat16 where that is quicker, with sums in float32.

``Backend.prefers_bfloat16`` says where it is. Elsewhere the weights are stored so and computed as floats, and
nothing that flows is rounded. What such a layer is given and gives keeps its dtype.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from tenon import bfloat16, ops, zeros
from tenon.nn.functional import linear
from tenon.nn.layers.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.layers.linear import Linear
from tenon_compress.quantize.layers import QuantizedLayer


class BFloat16Layer(QuantizedLayer):
    """What they share: ``op`` is what they compute, ``weight`` and ``bias`` are bfloat16."""

    op: ClassVar[Any] = ops.linear
    weight: Any
    bias: Any

    @property
    def multiplies(self) -> bool:
        """Whether it computes in bfloat16 where it is; else it is smaller and no faster."""
        weight: Any = self._buffers["weight"]
        found: bool = weight._backend.prefers_bfloat16(self.op)
        return found

    def _take(self, weight: Any, bias: Any) -> None:
        self.hold(weight=weight.to(bfloat16), bias=None if bias is None else bias.to(bfloat16))

    def _computed(self, input: Any, weight: Any, bias: Any, *given: Any) -> Any:
        """What the layer of floats makes of ``input``, and of whatever else it was given."""
        raise NotImplementedError

    def _forward(self, input: Any, *given: Any) -> Any:
        if not (input.is_floating_point() and self.multiplies):
            return self._computed(input, self.weight, self.bias, *given)
        held = self._buffers
        return self._computed(input.to(bfloat16), held["weight"], held["bias"], *given).to(input.dtype)

    def _freeze(self) -> None:
        """Nothing is packed, so nothing needs to stay as it is: kernels of floats copy what is read-only."""


class BFloat16Linear(BFloat16Layer):
    """``Linear`` with bfloat16 weights."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._take(zeros(out_features, in_features), zeros(out_features) if bias else None)

    @classmethod
    def of(cls, layer: Any) -> Self:
        """The layer of an ``nn.Linear``."""
        made = cls(layer.in_features, layer.out_features, layer.bias is not None)
        made._take(layer.weight, layer.bias)
        return made.train(layer.training)

    def numbers(self) -> dict[str, Any]:
        """Sizes, those of the weight, from which pruning may have removed some; and bias."""
        weight: Any = self._buffers["weight"]
        rows, columns = weight.shape
        return {"in_features": columns, "out_features": rows, "bias": self.bias is not None}

    def _computed(self, input: Any, weight: Any, bias: Any, *given: Any) -> Any:
        return linear(input, weight, bias)

    def forward(self, input: Any) -> Any:
        """``[..., in_features]`` to ``[..., out_features]``."""
        return self._forward(input)


class _Conv(BFloat16Layer):
    """Comes before the class of floats, whose arguments are ``named``."""

    op: ClassVar[Any] = ops.conv
    named: ClassVar[tuple[str, ...]] = (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
        "padding_mode",
    )  # fmt: skip

    def __init__(self, *sizes: Any, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self._take(self._parameters.pop("weight"), self._parameters.pop("bias"))

    def reset_parameters(self) -> None:
        """Nothing is drawn."""

    @classmethod
    def of(cls, layer: Any) -> Self:
        """The layer of a convolution of floats."""
        numbers = {name: getattr(layer, name) for name in cls.named}
        made = cls(**numbers, bias=layer.bias is not None)
        made._take(layer.weight, layer.bias)
        return made.train(layer.training)

    def numbers(self) -> dict[str, Any]:
        """Sizes, geometry and bias."""
        return {**{name: getattr(self, name) for name in self.named}, "bias": self.bias is not None}

    def _computed(self, input: Any, weight: Any, bias: Any, *given: Any) -> Any:
        return self._conv_forward(input, weight, bias, *given)

    def forward(self, input: Any) -> Any:
        """As the layer of floats."""
        return self._forward(input)


class _Transposed(_Conv):
    op: ClassVar[Any] = ops.conv_input_grad
    named: ClassVar[tuple[str, ...]] = (*_Conv.named, "output_padding")

    def forward(self, input: Any, output_size: Any = None) -> Any:
        """As the layer of floats."""
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


#: By the class of floats.
BFLOAT16: dict[type[Any], Any] = {
    Linear: BFloat16Linear,
    Conv1d: BFloat16Conv1d,
    Conv2d: BFloat16Conv2d,
    Conv3d: BFloat16Conv3d,
    ConvTranspose1d: BFloat16ConvTranspose1d,
    ConvTranspose2d: BFloat16ConvTranspose2d,
    ConvTranspose3d: BFloat16ConvTranspose3d,
}
