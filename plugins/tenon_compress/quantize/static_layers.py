"""Static int8 layers, which read and return uint8 activations; those that read floats quantize them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from tenon import float32, int8, ones, ops, zeros
from tenon_compress.quantize.integers import Limits, to_int8
from tenon_compress.quantize.layers import QuantizedLayer, in_float32

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Module


class Steps(TypedDict):
    """Scales (``step``) and zero points of a layer's input and result, and whether a ReLU is part of it."""

    x_step: float
    x_zero: int
    #: None for a result of floats.
    out_step: float | None
    out_zero: int
    relu: bool


class StaticLayer(QuantizedLayer):
    """Base class: int8 ``weight`` (outputs first), ``scale``, ``bias``, scales and zero points of
    activations."""

    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(
        self,
        shape: Sequence[int],
        bias: bool,
        x_step: float,
        x_zero: int,
        out_step: float | None,
        out_zero: int,
        relu: bool,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.steps: Steps = {
            "x_step": x_step, "x_zero": x_zero, "out_step": out_step, "out_zero": out_zero, "relu": relu,
        }  # fmt: skip
        self.set_buffers(
            weight=zeros(*shape, dtype=int8),
            scale=ones(shape[0], dtype=float32),
            bias=zeros(shape[0], dtype=float32) if bias else None,
        )

    def take(self, layer: Module, limits: Limits | None) -> Self:
        """Take the weight and bias of a float ``layer``; ``limits`` are those of ``to_int8``."""
        weight, scale = to_int8(layer.weight, limits)
        self.set_buffers(
            weight=weight, scale=scale, bias=None if layer.bias is None else layer.bias.to(float32)
        )
        return self.train(layer.training)

    def _forward_quantized(self, input: Tensor) -> Tensor:
        """Compute the result for a float32 or uint8 input."""
        raise NotImplementedError

    def _forward_any_float(self, input: Tensor) -> Tensor:
        result = in_float32(self._forward_quantized, input)
        return result.to(self.floats) if result.dtype is float32 and self.floats is not float32 else result


class StaticLinear(StaticLayer):
    """``Linear``, followed by a rectifier if ``relu``."""

    def __init__(self, in_features: int, out_features: int, bias: bool, **steps: Unpack[Steps]) -> None:
        super().__init__((out_features, in_features), bias, **steps)
        self.in_features, self.out_features = in_features, out_features

    @classmethod
    def of(cls, linear: Module, limits: Limits | None = None, **steps: Unpack[Steps]) -> Self:
        """Return the static layer of an ``nn.Linear``."""
        return cls(linear.in_features, linear.out_features, linear.bias is not None, **steps).take(
            linear, limits
        )

    def numbers(self) -> dict[str, object]:
        """The sizes, scales and zero points."""
        sizes = {"in_features": self.in_features, "out_features": self.out_features}
        return {**sizes, "bias": self.bias is not None, **self.steps}

    def forward(self, input: Tensor) -> Tensor:
        """Compute the result for floats, or for uint8 from the layer before."""
        return self._forward_any_float(input)

    def _forward_quantized(self, input: Tensor) -> Tensor:
        buffers = self._buffers
        return ops.int8_linear(input, buffers["weight"], buffers["scale"], buffers["bias"], **self.steps)


def padding_of(conv: Module) -> tuple[int, ...] | None:
    """Return the padding at each edge; None if "same" would need more on one side than on the other."""
    if not isinstance(conv.padding, str):
        return tuple(conv.padding)
    if conv.padding == "valid":
        return (0,) * len(conv.kernel_size)
    both = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    return None if any(b % 2 for b in both) else tuple(b // 2 for b in both)


class StaticConv(StaticLayer):
    """``Conv1d`` to ``Conv3d``, followed by a rectifier if ``relu``."""

    def __init__(
        self,
        shape: Sequence[int],
        bias: bool,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        **steps: Unpack[Steps],
    ) -> None:
        super().__init__(shape, bias, **steps)
        self.geometry = {
            "stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups,
        }  # fmt: skip

    @classmethod
    def of(cls, conv: Module, limits: Limits | None = None, **steps: Unpack[Steps]) -> Self:
        """Return the static layer of a convolution with zero padding."""
        geometry = {name: getattr(conv, name) for name in ("stride", "dilation", "groups")}
        geometry["padding"] = padding_of(conv)
        return cls(tuple(conv.weight.shape), conv.bias is not None, **geometry, **steps).take(conv, limits)

    def numbers(self) -> dict[str, object]:
        """The weight's shape, the geometry, scales and zero points."""
        return {
            "shape": self.shape,
            "bias": self.bias is not None,
            **self.geometry,
            **self.steps,
        }

    def forward(self, input: Tensor) -> Tensor:
        """Compute the result for floats, or for uint8 from the layer before, also without a batch axis."""
        if input.dim() < len(self.shape):
            return self.forward(input[None])[0]
        return self._forward_any_float(input)

    def _forward_quantized(self, input: Tensor) -> Tensor:
        buffers, steps = self._buffers, {**self.geometry, **self.steps}
        return ops.int8_conv(input, buffers["weight"], buffers["scale"], buffers["bias"], **steps)


class Folded(QuantizedLayer):
    """The identity, in place of a batch norm or rectifier that became part of the layer before it."""

    def numbers(self) -> dict[str, object]:
        """No arguments."""
        return {}

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input``."""
        return input


class StaticMaxPool(QuantizedLayer):
    """``MaxPool1d`` to ``MaxPool3d`` of uint8 activations."""

    def __init__(self, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> None:
        super().__init__()
        self.geometry = {"kernel": tuple(kernel), "stride": tuple(stride), "padding": tuple(padding)}

    @classmethod
    def of(cls, pool: Module) -> Self:
        """Return the static layer of a pool without dilation, indices and partial windows."""
        rank = int(type(pool).__name__[-2])
        kernel, stride, padding = (
            (value,) * rank if isinstance(value, int) else tuple(value)
            for value in (pool.kernel_size, pool.stride or pool.kernel_size, pool.padding)
        )
        return cls(kernel, stride, padding).train(pool.training)

    def numbers(self) -> dict[str, object]:
        """The geometry."""
        return dict(self.geometry)

    def forward(self, input: Tensor) -> Tensor:
        """Pool uint8 values, also without a batch axis."""
        if input.dim() < len(self.geometry["kernel"]) + 2:
            return self.forward(input[None])[0]
        return ops.int8_max_pool(input, **self.geometry)
