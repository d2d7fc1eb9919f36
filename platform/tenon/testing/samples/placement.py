"""Create the arguments of samples on a device, with the memory layouts of the sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from tenon.device import Device
from tenon.engine.op import table as ops
from tenon.engine.types import Operand
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor
from tenon.testing.samples.draw import Draw
from tenon.testing.samples.table import Sample


def placed(sample: Sample, position: int, dtype: DTypeLike, device: Device) -> Operand:
    """Return argument ``position`` of ``sample``: draws as tensors on ``device``, other values unchanged."""
    draw = sample.inputs[position]
    if not isinstance(draw, Draw):
        return draw
    array = sample.arrays(dtype)[position]
    with no_grad():
        return _in_layout(array, draw, device).detach()


def _in_layout(array: np.ndarray, draw: Draw, device: Device) -> Tensor:
    if draw.layout == "transposed" and array.ndim > 1:
        transposed = wrap(np.ascontiguousarray(array.T), device)
        return ops.permute(transposed, axes=tuple(reversed(range(array.ndim))))
    if draw.layout == "strided" and array.ndim:
        return ops.index(wrap(np.repeat(array, 2, -1), device), key=(Ellipsis, slice(None, None, 2)))
    if draw.layout == "expanded":
        distinct = tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)
        return ops.expand(wrap(np.array(array[distinct]), device), shape=tuple(array.shape))
    return wrap(np.array(array), device)
