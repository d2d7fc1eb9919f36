"""The random slopes of the randomized leaky ReLU, ``rrelu``."""

from __future__ import annotations

import numpy as np

from tenon import random
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.random import keys


class RreluNoise(Primitive):
    """1 where ``x`` is positive, else a number between ``lower`` and ``upper``, in ``x``'s dtype.

    One number is drawn for each element that is not positive, in C order, as PyTorch draws them; within
    ``random.keyed`` the numbers depend on the samples of the step.
    """

    kind = Kind.RANDOM

    def infer(self, x, *, lower, upper):
        """``x``'s own aval."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, *, lower, upper):
        """Draw on the host in float64."""
        not_positive = x <= 0
        address = keys.current()
        noise = xp.ones(not_positive.shape, np.float64)
        if address is None:
            drawn = random.uniform(None, (int(not_positive.sum()),), np.float64)
            noise[not_positive] = xp.asarray(lower + drawn * (upper - lower))
        else:
            noise[not_positive] = xp.asarray(lower + address.uniform(not_positive.shape) * (upper - lower))[
                not_positive
            ]
        return noise.astype(x.dtype)


rrelu_noise = RreluNoise()
