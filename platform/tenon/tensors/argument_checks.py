"""Checks of arguments: of tensors that must have one dtype, and of values, which only an error depends on."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.types import Array
from tenon.engine.watchers import WATCHERS
from tenon.errors import DTypeError

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor

_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


def verifying() -> AbstractContextManager[None]:
    """Inside, Python reads values only to raise an error for invalid ones, as ``torch.distributions`` does.

    A capture or trace permits these reads: its examples are checked, and its graph repeats no check.
    """
    recorder = WATCHERS.recorder
    return _NOTHING if recorder is None else recorder.verifying()


def need_one_dtype(function: str, **operands: Array) -> None:
    """Raise DTypeError unless two ``operands`` of ``function``, tensors or arrays by name, have one dtype."""
    (first, own), (second, other) = (
        (name, (x.raw if hasattr(x, "raw") else x).dtype) for name, x in operands.items()
    )
    if own != other:
        raise DTypeError(
            f"{function}: Expected {first} and {second} to have the same dtype, but found {first} of type"
            f" {scalar_name(FROM_NUMPY[own])} and {second} of type {scalar_name(FROM_NUMPY[other])} instead."
            " Convert one of them with .to(dtype)."
        )


def need_same_dtype(name: str, x: Tensor, source: Tensor) -> None:
    """Raise DTypeError unless ``source``, which the function ``name`` writes into ``x``, has its dtype."""
    if source.raw.dtype != x.raw.dtype:
        own, other = (scalar_name(FROM_NUMPY[each.raw.dtype]) for each in (x, source))
        raise DTypeError(
            f"{name}(): self ({own}) and source ({other}) must have the same scalar type. Cast the source"
            f" with .to({x.dtype})."
        )
