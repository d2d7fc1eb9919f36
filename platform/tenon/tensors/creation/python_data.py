"""Convert Python data to host arrays: numbers, nested sequences, arrays, and tensors in sequences.

The dtype is PyTorch's: Python floats have the default dtype, NumPy numbers the common dtype of all numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tenon import dtypes
from tenon.dtypes import FROM_NUMPY, dtype
from tenon.engine.value import Value
from tenon.errors import DTypeError, NumberOverflowError
from tenon.kernels.promotion import holds, need_fit

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike


def to_array(data: object, kind: DTypeLike | None = None) -> np.ndarray:
    """Copy ``data`` to a contiguous host array of dtype ``kind``, or of the dtype that PyTorch infers."""
    target = None if kind is None else dtypes.as_dtype(kind).numpy
    if isinstance(data, (np.ndarray, np.generic)):
        dtypes.from_numpy_dtype(data.dtype)
        return np.array(data, target or data.dtype, order="C")
    _check_ragged(data)
    types = _types_in(data)
    if any(issubclass(each, Value) for each in types):
        target = target or _common(data).numpy
        data = _unwrapped(data)
    if target is not None and target.kind in "iu":
        return _integers(data, target)
    if target is not None:
        try:
            return np.array(data, target, order="C")
        except (TypeError, ValueError) as error:
            if target == dtypes.bfloat16.numpy and all(issubclass(each, (int, float)) for each in types):
                return np.array(data, np.float64, order="C").astype(target)  # integers beyond int64
            raise _not_data(data, error) from None
    try:
        array = np.array(data, order="C")
    except ValueError as error:
        raise _not_data(data, error) from None
    except TypeError as error:
        raise ValueError(f"could not determine the shape of object type '{type(data).__name__}'") from error
    if array.size == 0 and array.dtype.kind == "f":
        return array.astype(dtypes.get_default_dtype().numpy)
    if array.dtype.kind == "f" and array.size and all(issubclass(each, int) for each in types):
        raise _too_large(data, dtypes.int64.numpy)  # NumPy rounds integers that no dtype holds together
    if array.dtype == object and all(issubclass(each, (int, float)) for each in types):
        if not any(issubclass(each, float) for each in types):
            raise _too_large(data, dtypes.int64.numpy)
        array = array.astype(np.float64)  # integers beyond 64 bits among floats
    if array.dtype not in FROM_NUMPY:
        raise _not_data(data, None)
    if any(issubclass(each, (np.ndarray, np.generic)) for each in types):
        return array.astype(_common(data).numpy, copy=False)
    if array.dtype.kind in "fc":
        plain = dtypes.get_default_dtype()
        return array.astype((plain if array.dtype.kind == "f" else plain.to_complex()).numpy)
    if array.dtype == np.uint64:
        raise _too_large(data, dtypes.int64.numpy)
    return array


def _integers(data: object, target: np.dtype) -> np.ndarray:
    """Convert ``data`` to integers: floats are truncated, negative numbers wrap in unsigned dtypes."""
    array = np.array(data)
    if array.dtype.kind == "f" and array.size and all(issubclass(each, int) for each in _types_in(data)):
        if any(not holds(target, number) for number in _integers_in(data)):
            raise _too_large(data, target)
        return (np.array(data, object) % (1 << 64)).astype(np.uint64).astype(target, order="C")
    if array.dtype.kind in "fcb":
        if array.dtype.kind == "f" and array.size:
            for end in (array.min(), array.max()):  # NaN if there is one
                need_fit(float(end), target)
        if array.dtype.kind == "c":
            raise TypeError(f"a complex number cannot be converted to {target}: {data!r:.80}")
        return np.array(array, target, order="C")
    if array.dtype.kind == "i" and array.size:
        limits = np.iinfo(target)
        low = -int(limits.max) if target.kind == "u" else int(limits.min)
        if int(array.min()) < low or int(array.max()) > limits.max:
            raise _too_large(data, target)
        return array.astype(target, order="C")
    try:
        return np.array(data, target, order="C")
    except OverflowError:
        raise _too_large(data, target) from None


def _too_large(data: object, target: np.dtype) -> NumberOverflowError:
    """Create the error for nested sequences with an integer that ``target`` does not hold."""
    number = next(each for each in _integers_in(data) if not holds(target, each))
    bits = number.bit_length()
    shown = f"an integer of {bits} bits" if bits > 256 else number
    return NumberOverflowError(
        f"Overflow when unpacking long long: value cannot be converted to type {target} without overflow:"
        f" {shown}. Pass dtype= of a type that holds it, or a float if its rounding will do."
    )


def _integers_in(data: object) -> Iterator[int]:
    if isinstance(data, (list, tuple)):
        for each in data:
            yield from _integers_in(each)
    elif isinstance(data, (int, np.integer)):
        yield int(data)
    elif isinstance(data, np.ndarray):
        yield from map(int, data.ravel())


def _not_data(data: object, error: Exception | None) -> Exception:
    """Create the error for ``data`` that is not numeric."""
    advice = "Pass numbers, nested lists of them, or an array."
    detail = f": {error}" if error is not None else ""
    invalid = data if error is not None else _first_non_number(data)
    if isinstance(invalid, str):
        return TypeError(f"new(): invalid data type 'str' of {invalid!r:.40}. {advice}")
    return DTypeError(f"Could not infer dtype of {type(invalid).__name__}{detail}. {advice}")


def _first_non_number(data: object) -> object:
    """Return the first element of nested sequences that is not a number."""
    if isinstance(data, (list, tuple)):
        culprits = (_first_non_number(each) for each in data)
        return next((each for each in culprits if each is not None), None)
    return None if isinstance(data, (int, float, complex, np.generic, np.ndarray)) else data


def _types_in(data: object) -> set[type]:
    """Return the types of the elements of nested sequences."""
    if not isinstance(data, (list, tuple)):
        return {type(data)}
    types = set(map(type, data))
    if any(issubclass(each, (list, tuple)) for each in types):
        return types.union(*(_types_in(each) for each in data if isinstance(each, (list, tuple))))
    return types


def _common(data: object) -> dtype:
    """Return the dtype that holds all tensors and numbers in nested sequences."""
    if isinstance(data, Value):
        return FROM_NUMPY[data.raw.dtype]
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy_dtype(data.dtype)
    if isinstance(data, (list, tuple)):
        return functools.reduce(dtypes.promote_types, map(_common, data)) if data else dtypes.bool
    return dtypes.of_number(data)


def _unwrapped(data: object) -> object:
    """Replace tensors in nested sequences by arrays, 0-d if they have one element."""
    if isinstance(data, Value):
        host: np.ndarray = data._backend.to_host(data.raw)
        return host.reshape(()) if host.size == 1 else host
    if isinstance(data, (list, tuple)):
        return [_unwrapped(d) for d in data]
    return data


def _check_ragged(data: object) -> None:
    """Raise unless all sequences at the same depth of ``data`` have the same length."""
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


def _length(data: object) -> int | None:
    """Return the length of a sequence or array; None of a number."""
    if isinstance(data, np.ndarray):
        return len(data) if data.ndim else None
    return len(data) if isinstance(data, (list, tuple)) else None
