"""Reseed all sequential generators (tenon's, Python's and NumPy's) from an address.

A draw from a sequential generator (``tenon.rand`` in a forward, augmentation in a data set) depends on all
earlier draws, and so on the samples that this rank has processed. For runs that must not depend on that, the
generators are reseeded for each part of a batch.
"""

from __future__ import annotations

import hashlib
import random as python

import numpy as np

from tenon.random.generator import manual_seed


def begin(seed: int, *address: int | str) -> None:
    """Reseed all three generators as a function of ``seed`` and ``address`` alone.

    >>> begin(7, "step", 3)
    >>> first = python.random()
    >>> begin(7, "step", 3)
    >>> first == python.random()
    True
    """
    text = " ".join(map(str, (seed, *address)))
    start = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
    manual_seed(start)
    python.seed(start)
    np.random.seed(start)
