"""Random ops. Numbers are drawn on the host, so that a seed gives the same numbers on every device."""

from __future__ import annotations

import numpy as np

from tenon import random
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.kernels.order import memory_order
from tenon.random import keys


class DropoutMask(Primitive):
    """``1 / (1 - p)`` with probability ``1 - p``, else 0, in ``shape`` (by default ``x``'s) and ``x``'s
    dtype.

    Within ``random.keyed`` the numbers depend on the samples of the step; else they come from the default
    generator, as PyTorch draws them.
    """

    kind = Kind.RANDOM
    draws_by_shape = True

    def infer(self, x, *, p, shape=None):
        """``shape``."""
        return Aval(tuple(x.shape if shape is None else shape), x.dtype)

    def forward(self, xp, x, *, p, shape=None):
        """Draw in float32 or float64 and in the memory order of ``x``, as PyTorch does; scale in place."""
        axes = memory_order(x) if shape is None else None
        shape = tuple(x.shape if shape is None else shape)
        wide = x.dtype if x.dtype.name in ("float32", "float64") else np.dtype(np.float32)
        buffer = np.empty(shape if axes is None else [shape[a] for a in axes], wide)
        noise = buffer if axes is None else buffer.transpose(np.argsort(axes))
        address = keys.current()
        if p == 1:
            noise[...] = 0
        elif address is None:
            random.bernoulli(None, 1.0 - p, out=buffer)
            noise /= wide.type(1.0 - p)
        else:
            noise[...] = address.uniform(shape) >= p
            noise /= wide.type(1.0 - p)
        return xp.asarray(noise.astype(x.dtype, copy=False))


dropout_mask = DropoutMask()
