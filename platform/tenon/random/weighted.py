"""``torch.multinomial``: indices drawn by weight, with or without replacement.

Without replacement (and for a single sample) the weights are divided by exponential numbers and the largest
quotients are selected. With replacement, 53-bit uniforms are looked up in the cumulative weights.
"""

from __future__ import annotations

import numpy as np

from tenon.errors import RandomArgumentError
from tenon.random import box_muller
from tenon.random.continuous import exponential
from tenon.random.generator import Generator, stream_of
from tenon.random.layout import FLOATING, as_double, name_of

_MOST_CATEGORIES = 1 << 24


def multinomial(
    generator: Generator | None,
    probs: np.ndarray,
    num_samples: int,
    replacement: bool = False,
    *,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Draw int64 indices ``[num_samples]``, or ``[rows, num_samples]`` for a matrix of weights ``probs``.

    Equal quotients, which half types produce, keep their order here; PyTorch's order of them is unspecified.
    """
    check_multinomial(probs, num_samples, replacement)
    if probs.ndim == 2 and probs.shape[0] == 0:
        indices = np.empty((0, num_samples), np.int64)
    else:
        _check_weights(probs)
        draw = _with_replacement if replacement and num_samples > 1 else _without_replacement
        indices = draw(generator, probs, num_samples)
    if out is None:
        return indices
    out[...] = indices
    return out


def check_multinomial(probs: np.ndarray, num_samples: int, replacement: bool) -> None:
    """Raise RandomArgumentError unless so many samples can be drawn by weights of this shape and dtype."""
    if not 1 <= probs.ndim <= 2:
        raise RandomArgumentError(
            f"prob_dist must be 1 or 2 dim, got shape {probs.shape}. Reshape the leading axes to one."
        )
    if name_of(probs.dtype) not in FLOATING:
        raise RandomArgumentError(
            f"multinomial only supports floating-point dtypes for input, got: {name_of(probs.dtype)}. "
            "Convert "
            "with .float()."
        )
    if num_samples <= 0:
        raise RandomArgumentError(f"cannot sample n_sample <= 0 samples, got {num_samples}.")
    categories = probs.shape[-1]
    if not replacement and num_samples > categories:
        raise RandomArgumentError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement, got "
            f"{num_samples} > {categories}. Pass replacement=True or fewer samples."
        )
    if categories > _MOST_CATEGORIES:
        raise RandomArgumentError(f"number of categories cannot exceed 2^24, got {categories}.")


def _check_weights(probs: np.ndarray) -> None:
    values = as_double(probs)
    if not (values.size and values.min() >= 0 and values.max() < np.inf):
        raise RandomArgumentError(
            "probability tensor contains either `inf`, `nan` or element < 0 "
            f"(shape {probs.shape}). Pass weights, for example after softmax()."
        )
    if not values.sum(axis=-1).all():
        raise RandomArgumentError(
            "invalid multinomial distribution (sum of probabilities <= 0). Some row is all zeros."
        )


def _without_replacement(generator: Generator | None, probs: np.ndarray, num_samples: int) -> np.ndarray:
    quotients = np.empty_like(probs, subok=False)
    exponential(generator, out=quotients)
    np.divide(probs, quotients, out=quotients)
    if num_samples == 1:
        return quotients.argmax(axis=-1, keepdims=True)
    return _largest(quotients if quotients.dtype == np.float32 else as_double(quotients), num_samples)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` largest values of each row, in descending order; stable for equal values."""
    negated = -values
    if 4 * count <= values.shape[-1]:  # otherwise sorting all is as fast
        first = np.sort(np.argpartition(negated, count - 1, axis=-1)[..., :count], axis=-1)
        largest = np.take_along_axis(negated, first, axis=-1)
        if (np.count_nonzero(negated <= largest.max(axis=-1, keepdims=True), axis=-1) == count).all():
            order = np.argsort(largest, axis=-1, kind="stable")
            return np.take_along_axis(first, order, axis=-1)
    return np.ascontiguousarray(np.argsort(negated, axis=-1, kind="stable")[..., :count])


def _with_replacement(generator: Generator | None, probs: np.ndarray, num_samples: int) -> np.ndarray:
    rows = probs.reshape(-1, probs.shape[-1])
    width = np.float64 if rows.dtype == np.float64 else np.float32
    stream = stream_of(generator)
    with stream.lock:
        uniforms = box_muller.uniform53(stream.take(2 * num_samples * rows.shape[0])).reshape(
            rows.shape[0], num_samples
        )
    indices = np.empty(uniforms.shape, np.int64)
    for row, drawn, out in zip(rows, uniforms, indices, strict=True):
        cumulative = np.cumsum(row.astype(width), dtype=width)
        np.divide(cumulative, cumulative[-1], out=cumulative)
        cumulative[-1] = 1
        out[...] = np.searchsorted(cumulative.astype(np.float64), drawn, side="left")
    return indices.reshape(*probs.shape[:-1], num_samples)
