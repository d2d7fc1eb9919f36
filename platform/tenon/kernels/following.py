"""Propagate the ``channels_last`` memory format through ops whose kernels write C order only.

Kernels of convolutions, pools and similar ops write contiguous results. If the strides of an input are those
of channels_last, the result is copied into that format (one more pass over it, which contiguous inputs
avoid), as PyTorch users expect of ``stride()`` and ``is_contiguous(memory_format=...)``.
"""

from __future__ import annotations

from tenon.engine.op import Op
from tenon.engine.types import Array, ArrayNamespace, Operand
from tenon.kernels.rounding import Kernel

#: By rank, the permutation of axes into the memory order of channels_last, and its inverse.
LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
BACK = {4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}


def channels_lie_last(x: Array) -> bool:
    """Whether an array of four or five axes has the strides of channels_last, by the rules of
    c10's ``is_channels_last_strides_2d``.

    Gaps do not matter. The strides of axes of size 1 count: only they distinguish ``[N, 1, H, W]`` in either
    format; if they do not, it is contiguous.
    """
    rank = x.ndim
    if rank != 4 and rank != 5:
        return False
    strides = x.strides
    least = strides[1]
    if least > strides[-1] or least == 0:
        return False
    shape = x.shape
    for axis in (1, *range(rank - 1, 1, -1), 0):
        size, stride = shape[axis], strides[axis]
        if size == 0 or stride < least or (axis == 0 and least == strides[1]):
            return False
        least = stride * size if size > 1 else stride
    return True


def as_channels_last(xp: ArrayNamespace, x: Array) -> Array:
    """Return ``x`` as a dense channels_last array: a copy, or ``x`` itself if it is one or has another
    rank."""
    axes = LAST.get(x.ndim)
    if axes is None:
        return x
    permuted = x.transpose(axes)
    if permuted.flags.c_contiguous and channels_lie_last(x):
        return x
    result = xp.empty(permuted.shape, x.dtype)
    result[...] = permuted
    return result.transpose(BACK[x.ndim])


def in_c_order(xp: ArrayNamespace, x: Array) -> Array:
    """Return ``x`` in C order; NumPy's loops may have preserved the order of their input."""
    return x if x.flags.c_contiguous else xp.ascontiguousarray(x)


def plain(kernel: Kernel, xp: ArrayNamespace) -> Kernel:
    """Wrap ``kernel`` so that its outputs are in C order."""

    def call(x: Array, *others: Operand, **attrs: object) -> Operand:
        out = kernel(x, *others, **attrs)
        return tuple(in_c_order(xp, o) for o in out) if out.__class__ is tuple else in_c_order(xp, out)

    return call


def following(kernel: Kernel, op: Op, xp: ArrayNamespace) -> Kernel:
    """Wrap ``kernel`` so that its outputs have the memory format of the first ``op.follows`` inputs."""
    visible, both = op.outputs, op.follows > 1

    def call(x: Array, *others: Operand, **attrs: object) -> Operand:
        out = kernel(x, *others, **attrs)
        if not (channels_lie_last(x) or (both and channels_lie_last(others[0]))):
            return out
        if out.__class__ is tuple:
            return (*(as_channels_last(xp, o) for o in out[:visible]), *out[visible:])
        return as_channels_last(xp, out)

    return call
