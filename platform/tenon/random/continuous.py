"""Continuous distributions on NumPy arrays, with exactly the numbers of PyTorch's CPU generator.

Every function takes a generator, by default the default one, then either ``shape`` and ``dtype`` for a new
array or ``out``, an existing array of any layout that is filled and returned. Arrays are filled in memory
order, see ``layout.py``. Arguments are checked before any number is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.errors import RandomArgumentError
from tenon.random import ahead, box_muller
from tenon.random.fma import fma32, fma64
from tenon.random.generator import Generator, stream_of
from tenon.random.layout import CHUNK, FLOATING, LARGEST, as_real, chunks, deliver, name_of, require, store
from tenon.random.mt19937 import MersenneTwister

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Shape = Sequence[int]

_LOW24 = 0xFFFFFF
_UNIT24 = np.float32(2.0**-24)
_BELOW_ONE = 1.0 - 2.0**-24
_FLOAT32 = np.dtype(np.float32)
_SMALL = 16


def uniform(
    generator: Generator | None = None,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    low: float = 0.0,
    high: float = 1.0,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw uniform numbers from [low, high): ``Tensor.uniform_``, and by default ``torch.rand``.

    RandomArgumentError for a range that is empty or too wide for the dtype.
    """
    kind = np.dtype(dtype) if out is None else out.dtype
    if kind is _FLOAT32 and out is None and low == 0 and high == 1:
        return _plain_uniform(stream_of(generator), shape or ())
    if kind.kind == "c":
        return _complex(uniform, generator, shape, kind, low, high, out)
    require(kind, FLOATING, "check_uniform_bounds")
    _check_uniform(kind, low, high)
    stream = stream_of(generator)
    fill = _uniform64 if kind.itemsize == 8 else _uniform32
    with stream.lock:
        return deliver(lambda flat: fill(stream, flat, low, high), shape, kind, out)


def _plain_uniform(stream: MersenneTwister, shape: Shape) -> np.ndarray:
    """``torch.rand`` in float32: the most frequent case, for which no argument needs a check."""
    size = math.prod(shape)
    if size > CHUNK:
        flat = np.empty(size, np.float32)
        with stream.lock:
            _uniform32(stream, flat, 0.0, 1.0)
    else:
        with stream.lock:
            words = stream.take(size)
        flat = (words & _LOW24).view(np.int32).astype(np.float32)
        flat *= _UNIT24
    return flat.reshape(shape)


def _check_uniform(kind: np.dtype, low: float, high: float) -> None:
    largest = LARGEST[name_of(kind)]
    for name, value in (("from", low), ("to", high)):
        if not -largest <= value <= largest:
            raise RandomArgumentError(
                f"{name} is out of bounds for {name_of(kind)}: {value}. Its largest number is {largest}."
            )
    if low > high:
        raise RandomArgumentError(
            "uniform_ expects to return a [from, to) range, but found "
            f"from={low} > to={high}. Swap the bounds."
        )
    if high - low > largest:
        raise RandomArgumentError(
            f"uniform_ expects to-from <= std::numeric_limits<{name_of(kind)}>::max(), but found to={high} "
            f"and from={low} which result in to-from to exceed the limit. Narrow the range or use a wider "
            "dtype."
        )


def _uniform32(stream: MersenneTwister, flat: np.ndarray, low: float, high: float) -> None:
    first, last = np.float32(low), np.float32(high)
    width = last - first
    direct = flat.dtype is _FLOAT32
    plain = first == 0 and last == 1
    # Rounding may reach the excluded upper bound; search for it only if the largest uniform reaches it.
    largest = float(width) * _BELOW_ONE + float(first)
    reaches = not direct or np.float32(largest + abs(largest) * 2.0**-50) >= last
    end = flat.dtype.type(high)
    for part in chunks(flat):
        words = np.bitwise_and(stream.take(part.size), _LOW24).view(np.int32)
        values = part if direct else np.empty(part.size, np.float32)
        np.copyto(values, words)
        values *= _UNIT24
        if not plain:
            values = fma32(values, width, first, unit=-24)
        if values is not part:
            part[...] = values
        if reaches:
            part[part == end] = flat.dtype.type(low)


def _uniform64(stream: MersenneTwister, flat: np.ndarray, low: float, high: float) -> None:
    for part in chunks(flat):
        values = box_muller.uniform53(stream.take(2 * part.size))
        if low != 0.0 or high != 1.0:
            values = fma64(values, high - low, low)
            values[values == high] = low
        part[...] = values


def normal(
    generator: Generator | None = None,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    mean: float | np.ndarray = 0.0,
    std: float | np.ndarray = 1.0,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw normal numbers: ``Tensor.normal_``, ``torch.randn``; with arrays, ``torch.normal``.

    The parts of a complex number have variance std**2 / 2 each.
    """
    if dtype is np.float32 and out is None and type(mean) is type(std) is float and std >= 0.0:
        size = math.prod(shape or ())
        if size < _SMALL:
            few = _few_normals(stream_of(generator), size, mean, std)
            return few if shape == (size,) else few.reshape(shape or ())
    if isinstance(mean, np.ndarray) or isinstance(std, np.ndarray):
        return _normal_of_arrays(generator, mean, std, out)
    kind = np.dtype(dtype) if out is None else out.dtype
    if not std >= 0.0:
        raise RandomArgumentError(
            f"normal expects std >= 0.0, but found std {std}. Pass a standard deviation, not a variance."
        )
    if kind.kind == "c":
        return _complex(normal, generator, shape, kind, mean, std / math.sqrt(2.0), out)
    stream = stream_of(generator)
    size = math.prod(shape or ()) if out is None else out.size
    require(kind, FLOATING, "normal_kernel_cpu")
    if size < _SMALL or not (out is None or out.flags.c_contiguous):
        fill = _normal_serial
    else:
        fill = _normal64 if kind.itemsize == 8 else _normal32
    with stream.lock:
        return deliver(lambda flat: fill(stream, flat, float(mean), float(std)), shape, kind, out)


def _few_normals(stream: MersenneTwister, size: int, mean: float, std: float) -> np.ndarray:
    """``torch.randn`` of fewer than 16 float32 numbers, which training loops call every step."""
    with stream.lock:
        values = box_muller.serial_list(stream, size)
    if mean == 0.0 and std == 1.0:
        return np.array(values, np.float32)
    return fma64(np.array(values), std, mean).astype(np.float32)


def _normal_of_arrays(
    generator: Generator | None, mean: float | np.ndarray, std: float | np.ndarray, out: np.ndarray | None
) -> np.ndarray:
    """``torch.normal``: one number for each element of the broadcast ``mean`` and ``std``."""
    if isinstance(std, np.ndarray):
        if std.dtype.kind == "c":
            raise RandomArgumentError(
                "normal expects standard deviation to be non-complex. Pass its real part."
            )
        if std.size and not std.min() >= 0:
            raise RandomArgumentError(
                f"normal expects all elements of std >= 0.0, but the smallest is {std.min()}. Pass standard "
                "deviations."
            )
    elif not std >= 0.0:
        raise RandomArgumentError(
            f"normal expects std >= 0.0, but found std {std}. Pass a standard deviation."
        )
    if out is None:
        source = mean if isinstance(mean, np.ndarray) else np.asarray(std)
        out = np.empty(np.broadcast_shapes(np.shape(mean), np.shape(std)), source.dtype)
    if isinstance(std, np.ndarray):
        normal(generator, out=out)
        np.multiply(out, std, out=out, casting="same_kind")
    else:
        normal(generator, std=std, out=out)
    mean = mean if isinstance(mean, np.ndarray) else out.dtype.type(mean)
    np.add(out, mean, out=out, casting="same_kind")
    return out


def _normal_serial(stream: MersenneTwister, flat: np.ndarray, mean: float, std: float) -> None:
    store(flat, fma64(box_muller.serial64(stream, flat.size), std, mean))


def _normal32(stream: MersenneTwister, flat: np.ndarray, mean: float, std: float) -> None:
    tail = flat.size % 16
    whole = flat.size - tail
    if flat.size <= ahead.LIMIT:
        if tail and flat.dtype is _FLOAT32:
            values = ahead.with_tail(stream, flat.size)
        else:
            values = ahead.whole_blocks(stream, whole + 16 if tail else whole)
        if values is not None:
            _scale32(values[:whole], flat[:whole], mean, std)
            if tail:
                _scale32(values[whole:], flat[-16:], mean, std)
            return
    for begin in range(0, whole, CHUNK):
        last = tail and begin + CHUNK >= whole
        part = flat[begin : min(begin + CHUNK, whole)]
        words = stream.take(part.size)
        if last:
            # PyTorch draws for the incomplete block too (not for half types), then redraws the last 16.
            if flat.dtype is _FLOAT32:
                words = words.copy()
                stream.take(tail)
            words = np.concatenate((words, stream.take(16)))
        values = part if part.dtype is _FLOAT32 and not last else np.empty(words.size, np.float32)
        box_muller.unit32(words, values)
        _scale32(values[: part.size], part, mean, std)
        if last:
            _scale32(values[part.size :], flat[-16:], mean, std)


def _scale32(values: np.ndarray, part: np.ndarray, mean: float, std: float) -> None:
    if mean == 0.0 and std == 1.0:
        if values is not part:
            part[...] = values
    elif mean == 0.0 and part.dtype is _FLOAT32:
        np.multiply(values, np.float32(std), out=part)
        part += np.float32(0.0)
    else:
        part[...] = fma32(values, np.float32(std), np.float32(mean))


def _normal64(stream: MersenneTwister, flat: np.ndarray, mean: float, std: float) -> None:
    tail = flat.size % 16
    whole = flat.size - tail
    for begin in range(0, whole, CHUNK):
        part = flat[begin : min(begin + CHUNK, whole)]
        part[...] = fma64(box_muller.unit64(stream.take(2 * part.size)), std, mean)
    if tail:
        stream.take(2 * tail)
        flat[-16:] = fma64(box_muller.unit64(stream.take(32)), std, mean)


def exponential(
    generator: Generator | None = None,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    lambd: float = 1.0,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw exponentially distributed numbers of rate ``lambd``: ``Tensor.exponential_``."""
    if not lambd > 0.0:
        raise RandomArgumentError(
            f"exponential_ expects lambda > 0.0, but found lambda={lambd}. Pass a positive rate."
        )

    def transform(u: np.ndarray) -> np.ndarray:
        values = box_muller.libm_log1p(-u)
        values *= -1.0 / lambd
        return values

    return _by_inverse(transform, "exponential_cpu", generator, shape, dtype, out)


def cauchy(
    generator: Generator | None = None,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    median: float = 0.0,
    sigma: float = 1.0,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw Cauchy-distributed numbers with this median and scale ``sigma``: ``Tensor.cauchy_``."""
    if not sigma > 0.0:
        raise RandomArgumentError(
            f"cauchy_ expects sigma > 0.0, but found sigma={sigma}. Pass a positive scale."
        )

    def transform(u: np.ndarray) -> np.ndarray:
        angle = math.pi * (u - 0.5)
        return fma64(
            np.fromiter(map(math.tan, angle.tolist()), np.float64, angle.size), float(sigma), float(median)
        )

    return _by_inverse(transform, "cauchy_cpu", generator, shape, dtype, out)


def log_normal(
    generator: Generator | None = None,
    shape: Shape | None = None,
    dtype: DTypeLike = np.float32,
    mean: float = 1.0,
    std: float = 2.0,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw numbers whose logarithm is normal, always in the serial form: ``Tensor.log_normal_``."""
    if not std > 0.0:
        raise RandomArgumentError(
            f"log_normal_ expects std > 0.0, but found std={std}. Pass a positive standard deviation."
        )
    kind = require(dtype if out is None else out.dtype, FLOATING, "log_normal_cpu")
    stream = stream_of(generator)

    def fill(flat: np.ndarray) -> None:
        exponent = fma64(box_muller.serial64(stream, flat.size), float(std), float(mean))
        with np.errstate(over="ignore"):
            store(flat, np.exp(exponent.astype(np.complex128)).real)

    with stream.lock:
        return deliver(fill, shape, kind, out)


def _by_inverse(
    transform: Callable[[np.ndarray], np.ndarray],
    operation: str,
    generator: Generator | None,
    shape: Shape | None,
    dtype: DTypeLike,
    out: np.ndarray | None,
) -> np.ndarray:
    """Fill with ``transform`` of float64 uniforms from [0, 1)."""
    kind = require(dtype if out is None else out.dtype, FLOATING, operation)
    stream = stream_of(generator)

    def fill(flat: np.ndarray) -> None:
        for part in chunks(flat):
            with np.errstate(over="ignore"):
                store(part, transform(box_muller.uniform53(stream.take(2 * part.size))))

    with stream.lock:
        return deliver(fill, shape, kind, out)


def _complex(
    draw: Callable[..., np.ndarray],
    generator: Generator | None,
    shape: Shape | None,
    dtype: DTypeLike,
    a: float,
    b: float,
    out: np.ndarray | None,
) -> np.ndarray:
    """Complex numbers whose parts ``draw`` draws with the parameters ``a`` and ``b``."""
    if out is None:
        out = np.empty(tuple(shape or ()), dtype)
    draw(generator, None, None, a, b, out=as_real(out))
    return out
