"""Discrete distributions on NumPy arrays, with exactly the numbers of PyTorch's CPU generator.

The conventions are those of ``continuous.py``. Integers are the remainder of one word, or of two words for
ranges of 28 bits or more; PyTorch's numbers have the same slight bias.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.errors import RandomArgumentError
from tenon.random import box_muller
from tenon.random.generator import Generator, stream_of
from tenon.random.layout import (
    CHUNK,
    FLOATING,
    INTEGRAL,
    LARGEST,
    as_double,
    chunks,
    deliver,
    name_of,
    require,
    store,
)
from tenon.random.loops import loops_for
from tenon.random.mt19937 import MersenneTwister

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Shape = Sequence[int]

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_TWO_WORDS = 1 << 28
DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_UNSIGNED = ("uint16", "uint32", "uint64")
NUMBERS = INTEGRAL + FLOATING
_FROM_TO = (*NUMBERS, "bool", *_UNSIGNED)
_INT64 = np.dtype(np.int64)
_FLOAT32 = np.dtype(np.float32)
_C_NAMES = {
    "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long",
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
}  # fmt: skip


def randint(
    generator: Generator | None,
    low: int,
    high: int,
    shape: Shape | None = None,
    dtype: DTypeLike = np.int64,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw integers from [low, high): ``torch.randint``, and ``Tensor.random_(low, high)`` with ``out``.

    RandomArgumentError for an empty range and for bounds that the dtype does not represent.
    """
    kind = np.dtype(dtype) if out is None else out.dtype
    low, high = int(low), int(high)
    if kind is _INT64 and out is None and 0 < high - low < _TWO_WORDS and -_TWO_WORDS < low < _TWO_WORDS:
        size = math.prod(shape or ())
        if size <= CHUNK:
            return _small_integers(stream_of(generator), low, high - low, size).reshape(shape or ())
    require(kind, _FROM_TO, "check_random_bounds")
    if low >= high:
        raise RandomArgumentError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}. `to` is "
            "exclusive."
        )
    if name_of(kind) in FLOATING:
        low, high = _representable_from(kind, low), _representable_to(kind, high)
        if low >= high:
            raise RandomArgumentError(
                "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got "
                f"from={low} >= to={high}. Use a wider dtype than {name_of(kind)}."
            )
    _check_range(kind, low, high - 1)
    return _integers(generator, low, high - low, shape, kind, out)


def random_(
    generator: Generator | None = None,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    from_: int | None = None,
    to: int | None = None,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw integers as ``Tensor.random_``: from [0, to), [from_, to), from ``from_`` to the dtype's largest
    value, or without bounds from 0 to that."""
    kind = np.dtype(dtype if out is None else out.dtype)
    if to is not None:
        return randint(generator, from_ or 0, to, shape, kind, out=out)
    if from_ is not None and from_ != _LOWEST:
        return _random_to_largest(generator, int(from_), shape, kind, out)
    if from_ is None:
        require(kind, (*NUMBERS, "bool"), "random_kernel_cpu")
    else:
        require(kind, ("int64", "float64", "float32", "bfloat16"), "random_full_64_bits_range_kernel_cpu")
    stream = stream_of(generator)

    def fill(flat: np.ndarray) -> None:
        for part in chunks(flat):
            part[...] = (
                _all_values(stream, part.size, kind)
                if from_ is None
                else words64(stream, part.size).view(np.int64)
            )

    with stream.lock:
        return deliver(fill, shape, kind, out)


def _random_to_largest(
    generator: Generator | None, low: int, shape: Shape | None, kind: np.dtype, out: np.ndarray | None
) -> np.ndarray:
    if name_of(kind) in FLOATING:
        last = 1 << DIGITS[name_of(kind)]
        low = _representable_from(kind, low)
        if low >= last:
            raise RandomArgumentError(
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to "
                "dtype, but got "
                f"from={low} > to_inc={last}. Pass `to` as well."
            )
    else:
        require(kind, (*INTEGRAL, "bool", *_UNSIGNED), "random_from_to_range_calc")
        last = 1 if kind.kind == "b" else min(int(np.iinfo(kind).max), _HIGHEST)
    _check_range(kind, low, last)
    return _integers(generator, low, last - low + 1, shape, kind, out)


def _small_integers(stream: MersenneTwister, low: int, count: int, size: int) -> np.ndarray:
    """``torch.randint`` in int64 from a small range: the most frequent case, which needs no checks."""
    with stream.lock:
        words = stream.take(size)
    values = (words % np.uint32(count)).astype(np.int64)
    if low:
        values += low
    return values


def _integers(
    generator: Generator | None,
    low: int,
    count: int,
    shape: Shape | None,
    kind: np.dtype,
    out: np.ndarray | None,
) -> np.ndarray:
    stream = stream_of(generator)

    def fill(flat: np.ndarray) -> None:
        for part in chunks(flat):
            if count >= _TWO_WORDS:
                values = words64(stream, part.size)
                values %= np.uint64(count)
            else:
                values = np.remainder(stream.take(part.size), np.uint32(count)).astype(np.uint64)
            if low:
                values += np.uint64(low & 0xFFFFFFFFFFFFFFFF)
            part[...] = values.view(np.int64)

    with stream.lock:
        return deliver(fill, shape, kind, out)


def words64(stream: MersenneTwister, n: int) -> np.ndarray:
    """The next ``n`` 64-bit words, each from two 32-bit words, the high one first."""
    words = stream.take(2 * n)
    values = words[0::2].astype(np.uint64)
    values <<= np.uint64(32)
    values |= words[1::2]
    return values


def _all_values(stream: MersenneTwister, n: int, kind: np.dtype) -> np.ndarray:
    name = name_of(kind)
    count = (
        (1 << DIGITS[name]) + 1 if name in FLOATING else 2 if name == "bool" else int(np.iinfo(kind).max) + 1
    )
    if name in ("int64", "float64"):
        return (words64(stream, n) % np.uint64(count)).view(np.int64)
    return (stream.take(n) % np.uint32(count)).astype(np.int64)


def _cast(kind: np.dtype, value: int) -> int:
    with np.errstate(over="ignore"):
        cast = (
            float(np.asarray(float(value)).astype(np.float32).astype(kind))
            if kind.itemsize < 8
            else float(value)
        )
    return int(cast) if math.isfinite(cast) else _LOWEST if cast < 0 else _HIGHEST


def _representable_from(kind: np.dtype, low: int) -> int:
    """The smallest integer from ``low`` up that ``kind`` represents, so that no cast leaves the range."""
    cast = _cast(kind, low + 1)
    if cast < low:
        low = cast + (1 << (abs(low + 1).bit_length() - DIGITS[name_of(kind)]))
    return low


def _representable_to(kind: np.dtype, high: int) -> int:
    cast = _cast(kind, high - 1)
    if cast >= high:
        high = cast - (1 << (abs(high - 1).bit_length() - DIGITS[name_of(kind)]))
    return high


def _check_range(kind: np.dtype, low: int, last: int) -> None:
    if name_of(kind) in FLOATING:
        largest = LARGEST[name_of(kind)]
        bounds = (-largest, largest)
    elif kind.kind == "b":
        bounds = (0, 1)
    else:
        bounds = (int(np.iinfo(kind).min), min(int(np.iinfo(kind).max), _HIGHEST))
    for name, value in (("from", low), ("to - 1", last)):
        if not bounds[0] <= value <= bounds[1]:
            raise RandomArgumentError(
                f"{name} is out of bounds for {_C_NAMES.get(name_of(kind), name_of(kind))}: {value} does "
                "not lie in "
                f"[{bounds[0]}, {bounds[1]}]. Narrow the range or use a wider dtype."
            )
        digits = DIGITS.get(name_of(kind))
        if digits is not None and not -(1 << digits) <= value <= 1 << digits:
            warnings.warn(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
                f"{name_of(kind)} can "
                "support discrete uniform distribution only within this range.",
                stacklevel=4,
            )


def bernoulli(
    generator: Generator | None = None,
    p: float | np.ndarray = 0.5,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw 1 with probability ``p``, else 0: ``Tensor.bernoulli_``; with an array ``p``, ``torch.bernoulli``.

    PyTorch draws a scalar ``p`` from MKL on Intel processors; these are its numbers everywhere else.
    """
    if isinstance(p, np.ndarray):
        return _bernoulli_of_array(generator, p, shape, dtype, out)
    if not 0 <= p <= 1:
        raise RandomArgumentError(f"bernoulli_ expects p to be in [0, 1], but got p={p}. Pass a probability.")
    kind = require(dtype if out is None else out.dtype, (*NUMBERS, "bool"), "bernoulli_scalar_cpu_")
    stream = stream_of(generator)
    threshold = float(p) * 2.0**53

    def fill(flat: np.ndarray) -> None:
        for part in chunks(flat):
            words = stream.take(2 * part.size)
            fast = loops_for(2 * flat.size) if part.dtype is _FLOAT32 else None
            if fast is None:
                part[...] = box_muller.integers53(words) < threshold
            else:
                fast.below(words, threshold, part)

    with stream.lock:
        return deliver(fill, shape, kind, out)


def _bernoulli_of_array(
    generator: Generator | None, p: np.ndarray, shape: Shape | None, dtype: DTypeLike, out: np.ndarray | None
) -> np.ndarray:
    require(p.dtype, FLOATING, "bernoulli_tensor_cpu_p_")
    if p.size and not (p.min() >= 0 and p.max() <= 1):
        raise RandomArgumentError(
            f"Expected p_in >= 0 && p_in <= 1 to be true, but the probabilities reach from {p.min()} to "
            f"{p.max()}. "
            "Pass probabilities, for example after sigmoid()."
        )
    if out is None:
        out = np.empty(p.shape if shape is None else tuple(shape), dtype)
    require(out.dtype, (*NUMBERS, "bool"), "bernoulli_tensor_cpu_self_")
    spread = np.broadcast_to(p, out.shape)
    stream = stream_of(generator)
    uniforms = np.empty_like(out, np.float64, subok=False)

    def fill(flat: np.ndarray) -> None:
        if p.dtype.itemsize == 8:
            flat[...] = box_muller.uniform53(stream.take(2 * flat.size))
        else:
            np.bitwise_and(stream.take(flat.size), 0xFFFFFF, out=flat, casting="unsafe")
            flat *= 2.0**-24

    with stream.lock:
        deliver(fill, None, np.float64, uniforms)
    out[...] = uniforms < as_double(spread)
    return out


def geometric(
    generator: Generator | None = None,
    p: float = 0.5,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw the number of trials until the first success, of probability ``p``: ``Tensor.geometric_``."""
    if not 0 < p < 1:
        raise RandomArgumentError(
            f"geometric_ expects p to be in (0, 1), but got p={p}. Pass a probability inside."
        )
    kind = require(dtype if out is None else out.dtype, NUMBERS, "geometric_cpu")
    stream = stream_of(generator)
    scale = math.log1p(-p)

    def fill(flat: np.ndarray) -> None:
        for part in chunks(flat):
            u = box_muller.uniform53(stream.take(2 * part.size))
            store(part, np.ceil(box_muller.libm_log_of_complement(1.0 - u) / scale))

    with stream.lock:
        return deliver(fill, shape, kind, out)
