"""Direction numbers of Sobol sequences: those of Joe and Kuo, which PyTorch uses; see README.md here.

The numbers ``m[0], m[1], ...`` of a dimension are odd, ``m[j] < 2**(j + 1)``. The table has the initial ones,
as many as the degree of the dimension's primitive polynomial; a recurrence with its coefficients gives the
rest.
"""

from __future__ import annotations

import functools
import importlib.resources
import io

import numpy as np

BITS = 30
DIMENSIONS = 21201


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Return the polynomials' coefficients as ascending integers, and the bits of all initial numbers."""
    packed = importlib.resources.files(__package__).joinpath("joe_kuo_6.npz").read_bytes()
    with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
        return 1 + 2 * np.cumsum(stored["gaps"], dtype=np.int64), np.unpackbits(stored["bits"])


def direction_numbers(dimension: int) -> np.ndarray:
    """Return ``v[d, j] = m[d, j] * 2**(29 - j)`` of the first dimensions, as PyTorch's ``sobolstate``."""
    m = np.ones((dimension, BITS), np.int64)  # the first dimension has only ones
    polynomials, bits = _table()
    polynomials = polynomials[: dimension - 1]
    degrees = np.floor(np.log2(polynomials)).astype(np.int64)
    read = 0
    for degree in np.unique(degrees):
        rows = np.flatnonzero(degrees == degree)
        m[rows + 1], read = _of_degree(int(degree), polynomials[rows], bits, read)
    return m << np.arange(BITS - 1, -1, -1)


def _of_degree(degree: int, polynomials: np.ndarray, bits: np.ndarray, read: int) -> tuple[np.ndarray, int]:
    """Return the numbers of the dimensions of one degree, and where the bits of the next degree begin."""
    m = np.ones((len(polynomials), BITS), np.int64)
    per_dimension = degree * (degree - 1) // 2
    initial = (
        bits[read : read + len(polynomials) * per_dimension]
        .reshape(len(polynomials), per_dimension)
        .astype(np.int64)
    )
    for j in range(1, degree):
        start = j * (j - 1) // 2
        m[:, j] = 1 + 2 * (initial[:, start : start + j] @ (1 << np.arange(j)))
    for j in range(degree, BITS):
        m[:, j] = m[:, j - degree] ^ (m[:, j - degree] << degree)
        for i in range(1, degree):
            m[:, j] ^= ((polynomials >> (degree - i)) & 1) * (m[:, j - i] << i)
    return m, read + len(polynomials) * per_dimension
