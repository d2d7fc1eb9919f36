"""``PackedLinear``: a linear layer that stores only the nonzero elements of its weight."""

from __future__ import annotations

import numpy as np

from tenon import Tensor, from_numpy, int64, ops, uint16, zeros
from tenon.extend import errors, settings
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter

#: The most features that column indices of 16 bits reach.
WIDEST = 1 << 16


class PackedLinear(Module):
    """A linear layer that stores the nonzero elements of its weight; see ``ops.sparse_linear``.

    ``values`` and ``bias`` are parameters; ``columns`` and ``starts``, the positions of the values, are
    buffers.
    """

    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, count: int, bias: bool = True) -> None:
        in_features = settings.whole("PackedLinear", "in_features", in_features, least=0, most=WIDEST)
        out_features = settings.whole("PackedLinear", "out_features", out_features, least=0)
        count = settings.whole("PackedLinear", "count", count, least=0, most=in_features * out_features)
        settings.instance("PackedLinear", "bias", bias, bool, "a bool")
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.values = Parameter(zeros(count))
        self.register_buffer("columns", zeros(count, dtype=uint16))
        self.register_buffer("starts", zeros(out_features + 1, dtype=int64))
        self.register_parameter("bias", Parameter(zeros(out_features)) if bias else None)

    @classmethod
    def of(cls, layer: Linear) -> PackedLinear:
        """Return a packed layer that computes the same as ``layer``, of float32."""
        if not isinstance(layer, Linear):
            raise errors.ArgumentTypeError(
                f"PackedLinear.of: layer must be an nn.Linear, not {type(layer).__name__}. Pack one layer, or"
                " a model with tenon.prune.pack."
            )
        weight = layer.weight.detach().cpu().numpy()
        rows, columns = np.nonzero(weight)
        packed = cls(layer.in_features, layer.out_features, len(rows), layer.bias is not None)
        ends = np.cumsum(np.bincount(rows, minlength=len(weight)))
        packed.values.data = from_numpy(weight[rows, columns])
        packed.columns = from_numpy(columns.astype(np.uint16))
        packed.starts = from_numpy(np.concatenate([[0], ends]).astype(np.int64))
        if packed.bias is not None and layer.bias is not None:
            packed.bias.data = layer.bias.detach().clone()
        return packed.to(layer.weight.device)

    def forward(self, input: Tensor) -> Tensor:
        """Map ``input[..., in_features]`` to ``[..., out_features]``."""
        if input is None:
            raise errors.ArgumentTypeError("PackedLinear: input must be a tensor, not None.")
        if isinstance(input, Tensor) and input.shape[-1:] != (self.in_features,):
            raise errors.ShapeError(
                f"PackedLinear: the last axis of the input has to have in_features = {self.in_features}"
                f" elements, but its shape is {list(input.shape)}. Reshape the input, or pack a layer of its"
                " width."
            )
        return ops.sparse_linear(input, self.values, self.columns, self.starts, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes and the number of stored elements."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"values={self.values.numel()}, bias={self.bias is not None}"
        )
