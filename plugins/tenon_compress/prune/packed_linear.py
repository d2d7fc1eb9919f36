"""``PackedLinear``: a linear layer that stores only the nonzero elements of its weight."""

from __future__ import annotations

import numpy as np

from tenon import Tensor, from_numpy, int64, ops, uint16, zeros
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter


class PackedLinear(Module):
    """A linear layer that stores the nonzero elements of its weight; see ``ops.sparse_linear``.

    ``values`` and ``bias`` are parameters; ``columns`` and ``starts``, the positions of the values, are
    buffers.
    """

    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, count: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.values = Parameter(zeros(count))
        self.register_buffer("columns", zeros(count, dtype=uint16))
        self.register_buffer("starts", zeros(out_features + 1, dtype=int64))
        self.register_parameter("bias", Parameter(zeros(out_features)) if bias else None)

    @classmethod
    def of(cls, layer: Linear) -> PackedLinear:
        """Return a packed layer that computes the same as ``layer``, of float32."""
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
        return ops.sparse_linear(input, self.values, self.columns, self.starts, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes and the number of stored elements."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"values={self.values.numel()}, bias={self.bias is not None}"
        )
