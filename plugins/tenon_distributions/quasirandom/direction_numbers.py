"""Direction numbers of Sobol sequences: those of Joe and Kuo, which PyTorch uses; see README.md here.

The numbers ``m[0], m[1], ...`` of a dimension are odd, ``m[j] < 2**(j + 1)``. The table has the first,
as many as the dimension's primitive polynomial has degrees; the polynomial gives the rest.
"""

from __future__ import annotations

import functools
import importlib.resources
import io
from typing import Any

import numpy as np

BITS = 30
DIMENSIONS = 21201


@functools.cache
def _table() -> tuple[Any, Any]:
    """The polynomials, ascending, as integers of their coefficients; the bits of all first numbers."""
    packed = importlib.resources.files(__package__).joinpath("joe_kuo_6.npz").read_bytes()
    with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
        return 1 + 2 * np.cumsum(stored["gaps"], dtype=np.int64), np.unpackbits(stored["bits"])


def direction_numbers(dimension: int) -> Any:
    """``v[d, j] = m[d, j] * 2**(29 - j)`` of the first dimensions, as torch's ``sobolstate``."""
    m = np.ones((dimension, BITS), np.int64)  # all that the first dimension has
    polynomials, bits = _table()
    polynomials = polynomials[: dimension - 1]
    degrees = np.floor(np.log2(polynomials)).astype(np.int64)
    read = 0
    for degree in np.unique(degrees):
        rows = np.flatnonzero(degrees == degree)
        m[rows + 1], read = _of_degree(int(degree), polynomials[rows], bits, read)
    return m << np.arange(BITS - 1, -1, -1)


def _of_degree(degree: int, polynomials: Any, bits: Any, read: int) -> tuple[Any, int]:
    """The numbers of dimensions whose polynomials have one degree, and where the bits of the next begin."""
    m = np.ones((len(polynomials), BITS), np.int64)
    each = degree * (degree - 1) // 2
    own = bits[read : read + len(polynomials) * each].reshape(len(polynomials), each).astype(np.int64)
    for j in range(1, degree):
        place = j * (j - 1) // 2
        m[:, j] = 1 + 2 * (own[:, place : place + j] @ (1 << np.arange(j)))
    for j in range(degree, BITS):
        m[:, j] = m[:, j - degree] ^ (m[:, j - degree] << degree)
        for i in range(1, degree):
            m[:, j] ^= ((polynomials >> (degree - i)) & 1) * (m[:, j - i] << i)
    return m, read + len(polynomials) * each
