"""``make_tensor``: a tensor of random numbers for tests, as in ``torch.testing``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.device import DeviceLike
from tenon.dtypes import as_dtype, dtype
from tenon.dtypes import dtype as Dtype
from tenon.errors import ArgumentError
from tenon.functions.limits import finfo
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import empty
from tenon.tensors.memory_formats import memory_format as Format
from tenon.tensors.tensor import Tensor

#: Default bounds by NumPy's letter of the kind of dtype.
_BOUNDS = {"b": (0, 2), "u": (0, 10), "i": (-9, 10)}


def make_tensor(
    *shape: Any,  # sizes, or one sequence of them
    dtype: dtype,
    device: DeviceLike,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Format | None = None,
) -> Tensor:
    """Return a tensor with values drawn uniformly from ``[low, high)``, by default ``[-9, 9)``, for integers
    ``[-9, 10)``, for unsigned ones ``[0, 10)``.

    With ``exclude_zero`` zeros become the smallest positive number of the dtype; with ``noncontiguous`` the
    tensor is every other element of a larger one. ValueError if bounds or options contradict each other.
    """
    kind = as_dtype(dtype)
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    letter = kind.numpy.kind if kind.numpy.kind in "biuc" else "f"
    if noncontiguous and memory_format is not None:
        raise ArgumentError("make_tensor: noncontiguous and memory_format exclude each other; give one.")
    if requires_grad and letter in "biu":
        raise ArgumentError(f"make_tensor: requires_grad must be False for {kind}, which has no gradients.")
    first, last = _bounds(kind, letter, low, high)
    allocated = (*sizes[:-1], 2 * sizes[-1]) if noncontiguous and math.prod(sizes) > 1 else sizes
    result = empty(allocated, dtype=kind, device=device)
    with no_grad():
        if letter == "c":
            parts = empty((*allocated, 2), dtype=result.real.dtype, device=device).uniform_(first, last)
            result.copy_(parts[..., 0] + 1j * parts[..., 1])
        elif letter == "f":
            result.uniform_(first, last)
        else:
            result.random_(int(first), int(last))
        if exclude_zero:
            result[result == 0] = _least(kind, letter)
    if allocated is not sizes:
        result = result[..., ::2]
    if memory_format is not None:
        result = result.clone(memory_format=memory_format)
    return result.requires_grad_() if requires_grad else result


def _bounds(kind: Dtype, letter: str, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the bounds of the draws: the arguments, or the defaults, within the range of the dtype."""
    usual = _BOUNDS.get(letter, (-9, 9))
    first: float = usual[0] if low is None else low
    last: float = usual[1] if high is None else high
    if math.isnan(first) or math.isnan(last):
        raise ArgumentError(f"make_tensor: low and high must be numbers, got low={low} and high={high}.")
    if first >= last:
        raise ArgumentError(f"make_tensor: low must be below high, got {first} >= {last}.")
    if letter == "b":
        least, most = 0.0, 2.0
    elif letter in "iu":
        info: np.iinfo = np.iinfo(kind.numpy)
        least, most = float(info.min), info.max + 1
    else:
        most = 65504.0 if kind.numpy.itemsize == 2 and kind.numpy.kind == "f" else 3e38
        least = -most
    if letter in "biu":
        first, last = math.ceil(max(first, least)), math.ceil(min(last, most))
    return max(first, least), min(last, most)


def _least(kind: Dtype, letter: str) -> complex:
    """Return the number that replaces 0 with ``exclude_zero``."""
    if letter in "biu":
        return 1
    tiny = finfo(kind).tiny
    return complex(tiny, tiny) if letter == "c" else tiny
