"""Which calls of an op a compiled kernel serves, and how threads share them.

Kernels take contiguous float32 arrays of some size. Everything else goes to the NumPy kernels, as all does
where numba is missing or turned off. What a call gets depends on its arguments alone, never on what ran
before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon_cpu.jit.compiler import team
from tenon_cpu.jit.compiler.compile import Kernel, available

#: Elements from which a kernel is worth loading numba for.
WORTH = 1 << 13
#: Tenths of nanoseconds of work that a second thread is worth being woken for.
SHARED = 400_000

FLOAT, INDEX = np.dtype(np.float32), np.dtype(np.int64)


def fits(*arrays: Any) -> bool:
    """All are float32, and numba is there."""
    return all(a.dtype is FLOAT for a in arrays) and available()


def plain(x: Any) -> Any:
    """``x`` as kernels take it: contiguous, aligned, writable. A copy costs less than walking it askew."""
    return x if x.flags.carray else np.array(x, order="C")


def memory_order(x: Any) -> tuple[int, ...]:
    """The axes of ``x`` as they lie in its memory, if that has no gaps; else none."""
    strides = x.strides
    if 0 in strides:
        return ()
    axes = tuple(sorted(range(x.ndim), key=strides.__getitem__, reverse=True))
    return axes if x.transpose(axes).flags.carray else ()


def aligned(*arrays: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Arrays of one shape as kernels take them, and the axes by which a result gets their order back.

    Those that lie in one and the same order without gaps are seen in it: nothing is copied, and channels that
    lie last stay there.
    """
    first = arrays[0]
    if not first.flags.carray and all(a.strides == first.strides for a in arrays[1:]):
        axes = memory_order(first)
        if axes and all(a.flags.writeable and a.flags.aligned for a in arrays):
            back = tuple(sorted(range(len(axes)), key=axes.__getitem__))
            return [a.transpose(axes) for a in arrays], back
    return [plain(a) for a in arrays], None


def indices_fit(array: Any) -> bool:
    """It holds indices as kernels take them."""
    return bool(array.dtype is INDEX and array.flags.carray)


def share(kernel: Kernel, args: tuple[Any, ...], count: int, tenths: int) -> None:
    """``kernel(*args, start, stop)`` over ``range(count)``, by several threads where it takes ``tenths`` of
    nanoseconds enough."""
    if tenths < SHARED or count < 2 or not team.several():
        kernel.ready()(*args, 0, count)
    else:
        team.run(kernel, args, count)
