"""Host arrays of Python data: numbers, nested sequences, arrays, and tensors inside of these.

The dtype is torch's: floats are of the default one, beside numbers of NumPy's what holds them all.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError


def to_array(data: Any, kind: Any = None) -> np.ndarray[Any, Any]:
    """A new contiguous host array of ``data`` in ``kind`` or the dtype torch would infer."""
    target = None if kind is None else dtypes.as_dtype(kind).numpy
    if isinstance(data, (np.ndarray, np.generic)):
        dtypes.from_numpy_dtype(data.dtype)
        return np.array(data, target or data.dtype, order="C")
    _check_ragged(data)
    kinds = _types_in(data)
    if any(issubclass(kind, Value) for kind in kinds):
        target = target or _common(data).numpy
        data = _unwrapped(data)
    if target is not None and target.kind in "iu":
        return _whole(data, target)
    if target is not None:
        try:
            return np.array(data, target, order="C")
        except (TypeError, ValueError) as error:
            raise _not_data(data, error) from None
    try:
        array = np.array(data, order="C")
    except ValueError as error:
        raise _not_data(data, error) from None
    except TypeError as error:
        raise ValueError(f"could not determine the shape of object type '{type(data).__name__}'") from error
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(dtypes.get_default_dtype().numpy)
    if array.dtype not in FROM_NUMPY:
        raise _not_data(data, None)
    if any(issubclass(kind, (np.ndarray, np.generic)) for kind in kinds):
        return array.astype(_common(data).numpy, copy=False)
    if array.dtype.kind in "fc":
        plain = dtypes.get_default_dtype()
        return array.astype((plain if array.dtype.kind == "f" else plain.to_complex()).numpy)
    if array.dtype == np.uint64:
        raise ArgumentError(f"Overflow when unpacking long long: {array.max()} is no 64-bit integer.")
    return array


def _whole(data: Any, target: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """``data`` as integers: floats cut, negative numbers counted from the end of an unsigned dtype."""
    found = np.array(data)
    if found.dtype.kind in "fcb":
        return np.array(found, target, order="C")
    if found.dtype.kind == "i" and found.size:
        limits = np.iinfo(target)
        low = -int(limits.max) if target.kind == "u" else int(limits.min)
        if int(found.min()) < low or int(found.max()) > limits.max:
            raise ArgumentError(f"value cannot be converted to type {target} without overflow: {data!r:.80}")
        return found.astype(target, order="C")
    return np.array(data, target, order="C")


def _not_data(data: Any, error: Exception | None) -> Exception:
    advice = "Pass numbers, nested lists of them, or an array."
    detail = f": {error}" if error is not None else ""
    culprit = data if error is not None else _no_number(data)
    if isinstance(culprit, str):
        return TypeError(f"new(): invalid data type 'str' of {culprit!r:.40}. {advice}")
    return DTypeError(f"Could not infer dtype of {type(culprit).__name__}{detail}. {advice}")


def _no_number(data: Any) -> Any:
    """The first thing in nested sequences that is no number."""
    if isinstance(data, (list, tuple)):
        found = (_no_number(each) for each in data)
        return next((each for each in found if each is not None), None)
    return None if isinstance(data, (int, float, complex, np.generic, np.ndarray)) else data


def _types_in(data: Any) -> set[type]:
    """The types of what lies in nested sequences."""
    if not isinstance(data, (list, tuple)):
        return {type(data)}
    kinds = set(map(type, data))
    if any(issubclass(kind, (list, tuple)) for kind in kinds):
        return kinds.union(*(_types_in(each) for each in data if isinstance(each, (list, tuple))))
    return kinds


def _common(data: Any) -> dtype:
    """The dtype that holds all tensors and numbers in nested sequences."""
    if isinstance(data, Value):
        return FROM_NUMPY[data.raw.dtype]
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy_dtype(data.dtype)
    if isinstance(data, (list, tuple)):
        return functools.reduce(dtypes.promote_types, map(_common, data)) if data else dtypes.bool
    return dtypes.of_number(data)


def _unwrapped(data: Any) -> Any:
    """Arrays for the tensors in nested sequences; one of a single element counts as a number."""
    if isinstance(data, Value):
        host = data._backend.to_host(data.raw)
        return host.reshape(()) if host.size == 1 else host
    if isinstance(data, (list, tuple)):
        return [_unwrapped(d) for d in data]
    return data


def _check_ragged(data: Any) -> None:
    if not isinstance(data, (list, tuple)) or not data:
        return
    lengths = [_length(d) for d in data]
    if any(each is data for each in data):
        raise TypeError("new(): self-referential lists are incompatible: a list is one of its own elements.")
    for length in lengths:
        if length != lengths[0]:
            if lengths[0] is None or length is None:
                raise TypeError("must be real number, not list" if length is not None else "not a sequence")
            raise ValueError(f"expected sequence of length {lengths[0]} at dim 1 (got {length})")
    for d in data:
        if isinstance(d, (list, tuple)):
            _check_ragged(d)


def _length(data: Any) -> int | None:
    """The length of a row; None of a number."""
    if isinstance(data, np.ndarray):
        return len(data) if data.ndim else None
    return len(data) if isinstance(data, (list, tuple)) else None
