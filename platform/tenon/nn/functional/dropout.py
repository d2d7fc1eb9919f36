"""Dropout of elements and of channels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon import dtypes
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.errors import ArgumentError, DTypeError, ModuleValueError, ShapeError
from tenon.nn.functional.arguments import refuse_integers
from tenon.tensors.creation.factories import ones_like
from tenon.tensors.inplace import inplace as write_inplace

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def _drop(x: Tensor, p: float, inplace: bool, shape: Sequence[int] | None) -> Tensor:
    """Multiply ``x`` by a mask of 0 and ``1 / (1 - p)``, drawn in ``shape`` (None: that of ``x``)."""
    if x.raw.dtype.kind in "iub" and p < 1:
        raise DTypeError(
            f"dropout: result type Float can't be cast to the desired output type {x.dtype}. Use .float()."
        )
    mask = f.dropout_mask(x.detach(), p=float(p), shape=shape)
    return write_inplace(f.mul, x, mask) if inplace else f.mul(x, mask)


def _check(p: float) -> None:
    """Raise ModuleValueError unless ``p`` is a probability."""
    if not 0.0 <= p <= 1.0:
        raise ModuleValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero elements with probability ``p`` and scale the others by ``1 / (1 - p)``."""
    _check(p)
    if not training or p == 0.0 or input.raw.size == 0:
        return input
    return _drop(input, p, inplace, None)


@titled("NativeDropout0")
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """``dropout`` of ``input`` as a new tensor, and a boolean mask of the elements kept: all if not
    ``train``."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"native_dropout expects p to be in [0, 1], but got p={p}")
    if train is False:
        return input.clone(), ones_like(input, dtype=dtypes.bool)
    refuse_integers(input, "native_dropout")
    mask = f.dropout_mask(input.detach(), p=float(p), shape=None)
    return f.mul(input, mask), f.ne(mask, 0)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, leading: int) -> Tensor:
    """Drop whole slices of ``input``: each index of the first ``leading`` axes is one."""
    if not training or p == 0.0 or input.raw.size == 0:
        return input
    if input.raw.ndim < 2:
        raise ShapeError(
            f"Feature dropout requires at least 2 dimensions in the input, got {list(input.raw.shape)}"
        )
    return _drop(input, p, inplace, (*input.raw.shape[:leading], *(1,) * (input.raw.ndim - leading)))


def _warn_of_rank(name: str, rank: int, spatial: int) -> None:
    """Warn, as PyTorch does, that the input has no axes to drop channels of."""
    warnings.warn(
        f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an error in a "
        "future release. To retain the behavior and silence this warning, please use dropout instead. Note "
        f"that {name} exists to provide channel-wise dropout on inputs with {spatial} spatial dimensions, a "
        f"channel dimension, and an optional batch dimension (i.e. {spatial + 1}D or {spatial + 2}D inputs).",
        stacklevel=3,
    )


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of ``[N, C, L]`` or ``[C, L]``."""
    _check(p)
    rank = input.raw.ndim
    if rank not in (2, 3):
        raise ShapeError(
            f"dropout1d: Expected 2D or 3D input, but received a {rank}D input of shape "
            f"{list(input.raw.shape)}. Note that dropout1d exists to provide channel-wise dropout on inputs "
            "with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D "
            "inputs)."
        )
    return _channels(input, p, training, inplace, 2 if rank == 3 else 1)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of ``[N, C, H, W]``; a 3-D input is ``[N, C, L]``, as in PyTorch."""
    _check(p)
    rank = input.raw.ndim
    if rank not in (3, 4):
        _warn_of_rank("dropout2d", rank, 2)
    elif rank == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior "
            "is desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior "
            "will change in a future release to interpret the input as one without a batch dimension, i.e. "
            "shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to dropout1d "
            "instead.",
            stacklevel=2,
        )
    return _channels(input, p, training, inplace, 2)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""
    _check(p)
    rank = input.raw.ndim
    if rank not in (4, 5):
        _warn_of_rank("dropout3d", rank, 3)
    return _channels(input, p, training, inplace, 1 if rank == 4 else 2)


#: Minus SELU's limit at minus infinity; alpha dropout sets dropped elements to that limit.
_ALPHA = 1.7580993408473766


def _alpha(input: Tensor, p: float, training: bool, inplace: bool, shape: Sequence[int] | None) -> Tensor:
    """Return alpha dropout of ``input`` with a mask drawn in ``shape`` (None: that of ``input``)."""
    _check(p)
    if not training or p == 0.0 or input.raw.size == 0:
        return input
    if p == 1.0:
        return write_inplace(f.mul, input, 0.0) if inplace else input * 0.0
    scale = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
    keep_mask = f.cast(
        f.gt(f.dropout_mask(input.detach(), p=float(p), shape=shape), 0), dtype=input.raw.dtype
    )
    shift = (keep_mask - 1) * (_ALPHA * scale) + _ALPHA * scale * p
    if inplace:
        return write_inplace(f.add, write_inplace(f.mul, input, keep_mask * scale), shift)
    return input * (keep_mask * scale) + shift


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of a standardised input: dropped elements become SELU's limit
    at minus infinity."""
    return _alpha(input, p, training, inplace, None)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Alpha dropout of whole channels: all elements at one index of the first two axes share one draw."""
    rank = input.raw.ndim
    if rank < 2 and training and p and input.raw.size:
        raise ShapeError(
            f"feature_alpha_dropout: Feature dropout requires at least 2 dimensions in the input, got {rank}."
        )
    return _alpha(input, p, training, inplace, (*input.raw.shape[:2], *(1,) * (rank - 2)))
