"""The tolerances of ``torch.testing``, and its messages about values that are not close."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tenon import dtypes
from tenon.tensors.tensor import Tensor

#: dtype -> (rtol, atol); all others must be equal.
DEFAULT_TOLERANCES: dict[dtypes.dtype, tuple[float, float]] = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
#: The name of the compared values, or a function of the default name.
Identifier = str | Callable[[str], str] | None


#: The number of elements that are compared at a time, so that intermediate results stay in cache.
_PART = 1 << 15


def default_tolerances(
    *inputs: Tensor | dtypes.dtype, dtype_precisions: Mapping[dtypes.dtype, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """Return the largest default ``(rtol, atol)`` of tensors or dtypes."""
    tolerances = []
    for each in inputs:
        if not isinstance(each, (Tensor, dtypes.dtype)):
            raise TypeError(f"Expected a torch.Tensor or a torch.dtype, but got {type(each)} instead.")
        kind = each.dtype if isinstance(each, Tensor) else each
        tolerances.append((dtype_precisions or DEFAULT_TOLERANCES).get(kind, (0.0, 0.0)))
    return max(r for r, _ in tolerances), max(a for _, a in tolerances)


def close(a: np.ndarray, e: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> np.ndarray:
    """Return where two arrays are close; large ones in parts, as the intermediate results are four times as
    large and would not stay in cache."""
    if a.size <= _PART or a.shape != e.shape:
        return _close(a, e, rtol, atol, equal_nan)
    shape, result = a.shape, np.empty(a.size, bool)
    a, e = a.reshape(-1), e.reshape(-1)
    for i in range(0, a.size, _PART):
        result[i : i + _PART] = _close(a[i : i + _PART], e[i : i + _PART], rtol, atol, equal_nan)
    return result.reshape(shape)


def _close(a: np.ndarray, e: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> np.ndarray:
    if a.dtype.kind in "biu":
        if rtol == 0 and atol == 0:
            return a == e
        a, e = a.astype(np.float64), e.astype(np.float64)
    elif a.dtype.kind != "c":
        a, e = a.astype(np.float64), e.astype(np.float64)
    gap = np.abs(a - e)
    matches = (a == e) | (np.isfinite(gap) & (gap <= atol + np.abs(rtol * e)))
    return matches | (np.isnan(a) & np.isnan(e)) if equal_nan else matches


def number(array: np.ndarray) -> complex:
    """Return the only element of an array as a Python number."""
    return float(array) if array.dtype.kind == "V" else array.item()


def _head(usual: str, identifier: Identifier, rtol: float, atol: float) -> str:
    name = identifier(usual) if callable(identifier) else identifier or usual
    return f"{name} are not {'equal' if rtol == 0 and atol == 0 else 'close'}!\n\n"


def _differences(absolute: str, relative: str, rtol: float, atol: float) -> str:
    if rtol == 0 and atol == 0:
        return f"{absolute}\n{relative}"
    return f"{absolute} (up to {atol} allowed)\n{relative} (up to {rtol} allowed)"


def scalar_text(
    actual: complex, expected: complex, rtol: float, atol: float, identifier: Identifier = None
) -> str:
    """Return the message about two numbers that differ: both values and their differences."""
    gap = abs(actual - expected)
    relative = float("inf") if expected == 0 else gap / abs(expected)
    text = f"{_head('Scalars', identifier, rtol, atol)}Expected {expected} but got {actual}.\n"
    return text + _differences(f"Absolute difference: {gap}", f"Relative difference: {relative}", rtol, atol)


def tensor_text(
    a: np.ndarray, e: np.ndarray, matches: np.ndarray, rtol: float, atol: float, identifier: Identifier = None
) -> str:
    """Return the message about two arrays: how many elements differ, and the largest differences."""
    wrong, total = int(matches.size - matches.sum()), matches.size
    wide = np.int64 if a.dtype.kind in "biu" else a.dtype
    gap = np.abs(a.astype(wide) - e.astype(wide))
    relative = gap / (np.abs(e.astype(wide)) if wide is not np.int64 else np.abs(e.astype(np.float32)))
    greatest = []
    for name, each in (("absolute", gap), ("relative", relative)):
        each = np.where(matches, each.dtype.type(0), each)
        position = np.unravel_index(int(np.argmax(each)), each.shape)
        index = tuple(int(i) for i in position)
        greatest.append(f"Greatest {name} difference: {number(each[position])} at index {index}")
    head = _head("Tensor-likes", identifier, rtol, atol)
    head += f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})\n"
    return head + _differences(greatest[0], greatest[1], rtol, atol)
