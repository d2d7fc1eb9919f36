"""Selection between float32 arrays and numbers by a condition of bytes that may be repeated."""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compile import kernel

_NONE = np.uint8(0)


@kernel("void(uint8[::1], float32[::1], float32[::1], float32[::1])")
def choose(condition, x, y, out):  # type: ignore[no-untyped-def]
    """``x`` where the condition holds, else ``y``."""
    for i in range(out.size):
        out[i] = x[i] if condition[i] != _NONE else y[i]


@kernel("void(uint8[::1], uint8, float32, float32[::1], float32[::1])")
def put(condition, flipped, value, kept, out):  # type: ignore[no-untyped-def]
    """``value`` where the condition holds (``flipped``: where it does not), else ``kept``."""
    count = condition.size
    for first in range(0, out.size, count):
        part, made = kept[first : first + count], out[first : first + count]
        for i in range(count):
            made[i] = value if condition[i] != flipped else part[i]
