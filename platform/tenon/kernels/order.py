"""The memory layout of elementwise results: the axis order of PyTorch's TensorIterator.

NumPy's results are in C order unless all operands have the same other order. PyTorch orders axes by the
strides of the first operand; those over which it is broadcast by the strides of the next, and so on. The
order is visible in ``stride()``, and in random numbers, which are drawn in memory order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.engine.types import Array, Attrs, Operand
from tenon.kernels.following import LAST, channels_lie_last
from tenon.kernels.rounding import Kernel


def inward(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """Sort the axes of ``shape`` from the outermost to the innermost, by the strides of ``operands``.

    An insertion sort, as in TensorIterator: axes are inserted from the last to the first, each moved inward
    past axes of larger stride. Axes that no operand orders keep their order.
    """
    axes = list(range(len(shape)))
    for start in range(len(shape) - 2, -1, -1):
        at = start
        for inner in range(start + 1, len(shape)):
            verdict = _compare(axes[inner], axes[at], shape, operands)
            if verdict > 0:
                axes[inner], axes[at] = axes[at], axes[inner]
                at = inner
            elif verdict < 0:
                break
    return axes


def _compare(inner: int, outer: int, shape: Sequence[int], operands: Sequence[Sequence[int]]) -> int:
    """Return 1 if the axes should be swapped, -1 if not, 0 if every operand is ambiguous."""
    for strides in operands:
        inner_stride, outer_stride = strides[inner], strides[outer]
        if inner_stride == 0 or outer_stride == 0:
            continue
        if inner_stride != outer_stride:
            return 1 if inner_stride > outer_stride else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0


def memory_order(x: Array) -> tuple[int, ...] | None:
    """Return the axes, from the outermost to the innermost, in which ``empty_like(x)`` stores its elements;
    None for C order."""
    if not hasattr(x, "flags") or not x.size:
        return None
    if x.flags.c_contiguous:
        return LAST[x.ndim] if channels_lie_last(x) else None
    axes = inward(x.shape, (x.strides,))
    return None if axes == list(range(x.ndim)) else tuple(axes)


def _broadcast(arrays: Sequence[Array]) -> list[int] | None:
    """Return the broadcast shape; None if the shapes do not broadcast."""
    shape = [1] * max(a.ndim for a in arrays)
    for a in arrays:
        for axis, size in enumerate(a.shape, len(shape) - a.ndim):
            if size != 1:
                if shape[axis] not in (1, size):
                    return None
                shape[axis] = size
    return shape


def ordered(kernel: Kernel, operands: Sequence[Operand], attrs: Attrs) -> Array:
    """Return ``kernel(*operands, **attrs)`` of an elementwise op, with the memory layout of TensorIterator.

    The kernel receives transposed operands, whose axes are in that order, so its C-ordered result is right.
    """
    for a in operands:
        if hasattr(a, "flags") and not a.flags.c_contiguous:
            break
    else:
        return kernel(*operands, **attrs)
    arrays = [a for a in operands if getattr(a, "ndim", 0)]
    shape = _broadcast(arrays)
    if shape is None or len(shape) < 2 or 0 in shape:
        return kernel(*operands, **attrs)
    rank = len(shape)
    axes = inward(shape, [_strides(a, shape) for a in arrays])
    back = sorted(range(rank), key=axes.__getitem__)
    permuted = [
        a.reshape((1,) * (rank - a.ndim) + a.shape).transpose(axes) if getattr(a, "ndim", 0) else a
        for a in operands
    ]
    out = kernel(*permuted, **attrs)
    if out.flags.c_contiguous:
        return out.reshape(-1).reshape(out.shape).transpose(back)  # axes of length 1 get C order's strides
    return out.copy(order="C").transpose(back)


def _strides(x: Array, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of ``x`` broadcast to ``shape``; 0 in broadcast axes."""
    missing: int = len(shape) - x.ndim
    target = shape[missing:]
    strides = (0 if n == 1 != m else stride for n, m, stride in zip(x.shape, target, x.strides, strict=True))
    return (0,) * missing + tuple(strides)
