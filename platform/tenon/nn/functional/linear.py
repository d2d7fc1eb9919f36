"""Affine maps: ``F.linear``, ``F.bilinear``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.errors import ShapeError
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``: ``input[..., in]``, ``weight[out, in]``, ``bias[out]``."""
    return f.linear(input, weight, bias)


@runs_in("given", cuda="widest")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1 @ weight[k] @ input2`` for every k: ``weight[out, in1, in2]``."""
    a, b, w = (v.raw.shape for v in (input1, input2, weight))
    if a[:-1] != b[:-1]:
        raise ShapeError(f"bilinear(): input batch dimensions do not match: got {list(a)} and {list(b)}")
    if (a[-1], b[-1]) != tuple(w[1:]):
        raise ShapeError(
            f"bilinear(): input sizes {a[-1]} and {b[-1]} do not match weight sizes {list(w[1:])}"
        )
    rows = input1.reshape(-1, a[-1])
    left = f.matmul(rows, weight.permute(1, 0, 2).reshape(w[1], -1)).reshape(-1, w[0], w[2])
    result = (left * input2.reshape(-1, 1, b[-1])).sum(-1).to(left.dtype).reshape(*a[:-1], w[0])
    return result if bias is None else result + bias
