"""What all compiled kernels need: conditions on arrays, arrays in the form they require, work for threads.

Kernels take large contiguous float32 arrays. All other calls go to the NumPy kernels, and so do all calls
where numba is missing or turned off. The choice depends on a call's arguments alone, not on earlier calls.
"""

from __future__ import annotations

import numpy as np

from tenon_cpu.jit.compiler import team
from tenon_cpu.jit.compiler.compile import Argument, Kernel, available

#: Elements from which compiled kernels are used.
MIN_ELEMENTS = 1 << 13
#: Work, in tenths of nanoseconds, from which a second thread pays.
SHARED = 400_000

FLOAT, INDEX = np.dtype(np.float32), np.dtype(np.int64)


def fits(*arrays: np.ndarray | np.generic) -> bool:
    """Whether all arrays are float32, and kernels can be compiled."""
    return all(a.dtype is FLOAT for a in arrays) and available()


def plain(x: np.ndarray) -> np.ndarray:
    """``x``, or a copy of it, in C order, aligned and writable, as kernels require."""
    return x if x.flags.carray else np.array(x, order="C")


def memory_order(x: np.ndarray) -> tuple[int, ...]:
    """The axes of ``x`` by falling stride, if its memory has no gaps; else an empty tuple."""
    strides = x.strides
    if 0 in strides:
        return ()
    axes = tuple(sorted(range(x.ndim), key=strides.__getitem__, reverse=True))
    return axes if x.transpose(axes).flags.carray else ()


def aligned(*arrays: np.ndarray) -> tuple[list[np.ndarray], tuple[int, ...] | None]:
    """Arrays of one shape in C order, and the axes that transpose a result of them back; None for none.

    Arrays of one memory order without gaps, such as channels last, are transposed to it instead of copied.
    """
    first = arrays[0]
    if not first.flags.carray and all(a.strides == first.strides for a in arrays[1:]):
        axes = memory_order(first)
        if axes and all(a.flags.writeable and a.flags.aligned for a in arrays):
            back = tuple(sorted(range(len(axes)), key=axes.__getitem__))
            return [a.transpose(axes) for a in arrays], back
    return [plain(a) for a in arrays], None


def indices_fit(array: np.ndarray) -> bool:
    """Whether an array of indices is int64 in C order, as kernels require."""
    return bool(array.dtype is INDEX and array.flags.carray)


def share(kernel: Kernel, args: tuple[Argument, ...], count: int, cost: int) -> None:
    """Run ``kernel(*args, start, stop)`` over ``range(count)``, on all threads where that pays.

    ``cost`` is the time of the whole range on one thread, in tenths of nanoseconds.
    """
    if cost < SHARED or count < 2 or not team.several():
        kernel.ready()(*args, 0, count)
    else:
        team.run(kernel, args, count)
