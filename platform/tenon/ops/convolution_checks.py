"""Sizes of convolutions, and PyTorch's errors for arguments that do not fit."""

from __future__ import annotations

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.types import Operand
from tenon.errors import DTypeError, ShapeError
from tenon.ops.dtype_queries import dtype_of

_CTYPES = {"float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16"}
_CTYPES |= {"int64": "long long", "int32": "int", "uint8": "unsigned char", "bool": "bool"}


def extent(kernel: int, dilation: int) -> int:
    """The extent of a dilated window: ``dilation * (kernel - 1) + 1``."""
    return dilation * (kernel - 1) + 1


def output_sizes(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the spatial sizes of a convolution's output."""
    return tuple(
        (s + 2 * p - extent(k, d)) // t + 1
        for s, k, t, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    )


def check(
    x: Operand,
    weight: Operand,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> None:
    """Raise, in PyTorch's words, unless the arguments of a convolution are valid."""
    rank = len(weight.shape) - 2
    if rank < 1 or len(x.shape) != rank + 2:
        raise ShapeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to conv{rank}d, but got input"
            f" of size: {list(x.shape)} with a weight of size {list(weight.shape)}"
        )
    for name, values in (("stride", stride), ("padding", padding), ("dilation", dilation)):
        if len(values) != rank:
            raise ShapeError(
                f"expected {name} to be a single integer value or a list of {rank} values to match the"
                f" convolution dimensions, but got {name}={list(values)}"
            )
        if any(v < (0 if name == "padding" else 1) for v in values):
            raise ShapeError(
                f"{'negative padding' if name == 'padding' else f'non-positive {name}'} is not supported:"
                f" {list(values)}"
            )
    if groups < 1:
        raise ShapeError(f"non-positive groups is not supported: {groups}")
    if weight.shape[0] < groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight"
            f" of size {list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise ShapeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got"
            f" weight of size {list(weight.shape)} instead"
        )
    if x.shape[1] != weight.shape[1] * groups:
        raise ShapeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(x.shape)} to"
            f" have {weight.shape[1] * groups} channels, but got {x.shape[1]} channels instead"
        )
    padded = [s + 2 * p for s, p in zip(x.shape[2:], padding, strict=True)]
    reach = [extent(k, d) for k, d in zip(weight.shape[2:], dilation, strict=True)]
    if any(s < r for s, r in zip(padded, reach, strict=True)):
        raise ShapeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: "
            f"({' x '.join(map(str, reach))}). Kernel size can't be greater than actual input size"
        )
    if x.dtype != weight.dtype:
        first_type, second_type = (
            _CTYPES.get(dtype_of(v).name, str(FROM_NUMPY[dtype_of(v)])) for v in (x, weight)
        )
        names = [scalar_name(FROM_NUMPY[dtype_of(v)]) for v in (x, weight)]
        raise DTypeError(
            f"expected scalar type {names[0]} but found {names[1]}: Input type ({first_type}) and"
            f" weight type ({second_type}) should be the same. Convert one of them with .to(dtype)."
        )


def check_bias(weight: Operand, bias: Operand, channels: int) -> None:
    """Raise ShapeError or DTypeError unless ``bias`` has one value per output channel."""
    if tuple(bias.shape) != (channels,):
        raise ShapeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {channels}"
            f" elements, but got bias of size {list(bias.shape)} instead"
        )
    if bias.dtype != weight.dtype:
        first_type, second_type = (
            _CTYPES.get(dtype_of(v).name, str(FROM_NUMPY[dtype_of(v)])) for v in (weight, bias)
        )
        raise DTypeError(f"Input type ({first_type}) and bias type ({second_type}) should be the same")
