"""The streams that programs draw from, started anew at an address: tenon's, Python's and NumPy's.

What draws from a stream (``tenon.rand`` in a forward, augmentation in a data set) gets numbers that depend on
all draws before, and so on which samples this rank had. Where a run must not depend on that, the streams
begin anew for each part of a batch.
"""

from __future__ import annotations

import hashlib
import random as python

import numpy as np

from tenon.random.generator import manual_seed


def begin(seed: int, *address: int | str) -> None:
    """Start all three streams as a function of ``seed`` and ``address`` alone.

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
