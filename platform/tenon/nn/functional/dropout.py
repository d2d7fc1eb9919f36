"""Dropout of elements and of channels."""

from __future__ import annotations

from typing import Any

import tenon.ops  # noqa: F401 - a table without ops finds nothing
from tenon.core.inplace import inplace as write_inplace
from tenon.core.op import table as f
from tenon.errors import ModuleValueError, ShapeError


def _drop(x: Any, p: float, inplace: bool, shape: Any) -> Any:
    mask = f.dropout_mask(x.detach(), p=float(p), shape=shape)
    return write_inplace(f.mul, x, mask) if inplace else f.mul(x, mask)


def _check(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ModuleValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zero elements with probability ``p`` and scale the others by ``1 / (1 - p)``."""
    _check(p)
    if not training or p == 0.0 or input.raw.size == 0:
        return input
    return _drop(input, p, inplace, None)


def _channels(input: Any, p: float, training: bool, inplace: bool, rank: int, name: str) -> Any:
    _check(p)
    if input.raw.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input, but received a "
            f"{input.raw.ndim}D input {list(input.raw.shape)}."
        )
    if not training or p == 0.0 or input.raw.size == 0:
        return input
    lead = input.raw.ndim - rank
    return _drop(input, p, inplace, (*input.raw.shape[:lead], *(1,) * rank))


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zero whole channels of ``[N, C, L]``."""
    return _channels(input, p, training, inplace, 1, "dropout1d")


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zero whole channels of ``[N, C, H, W]``."""
    return _channels(input, p, training, inplace, 2, "dropout2d")


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Zero whole channels of ``[N, C, D, H, W]``."""
    return _channels(input, p, training, inplace, 3, "dropout3d")
