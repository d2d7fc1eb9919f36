"""The random slopes of the randomized leaky ReLU."""

from __future__ import annotations

import numpy as np

from tenon import random
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.random import keys


class RreluNoise(Primitive):
    """1 where ``x`` is positive, else a number between ``lower`` and ``upper``, in ``x``'s dtype.

    One number is drawn for each element that needs one, in their order, as PyTorch draws them; with keys
    (``random.keyed``) the numbers belong to the samples of the step.
    """

    kind = Kind.RANDOM

    def infer(self, x, *, lower, upper):
        """``x``'s own aval."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(self, xp, x, *, lower, upper):
        """Drawn on the host in float64."""
        gate = x <= 0
        address = keys.current()
        noise = xp.ones(gate.shape, np.float64)
        if address is None:
            drawn = random.uniform(None, (int(gate.sum()),), np.float64)
            noise[gate] = xp.asarray(lower + drawn * (upper - lower))
        else:
            noise[gate] = xp.asarray(lower + address.uniform(gate.shape) * (upper - lower))[gate]
        return noise.astype(x.dtype)


rrelu_noise = RreluNoise()
